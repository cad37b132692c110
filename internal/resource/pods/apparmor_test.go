package pods_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

const appArmorAnnotation = "container.apparmor.security.beta.kubernetes.io/"

func TestAppArmorAnnotationsOfANewPodBecomeFields(t *testing.T) {
	const told = `metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: deprecated since v1.30; use the "appArmorProfile" field instead`
	own := ", securityContext: {appArmorProfile: {type: Unconfined}}"
	pods := "securityContext: {appArmorProfile: {type: RuntimeDefault}}"
	cases := []struct {
		name, annotation, container, spec string
		want, localhost                   string // the container's profile
		warned                            bool
	}{
		{"the runtime's default profile", "runtime/default", "", "", "RuntimeDefault", "", true},
		{"none", "unconfined", "", "", "Unconfined", "", true},
		{"a localhost profile", "localhost/a/b", "", "", "Localhost", "a/b", true},
		{"a profile other than the pod's", "unconfined", "", pods, "Unconfined", "", true},
		{"the pod's profile", "runtime/default", "", pods, "", "", false},
		{"the container has a field", "runtime/default", own, "", "Unconfined", "", false},
		{"the container has an equal field", "unconfined", own, "", "Unconfined", "", false},
		{"a localhost profile without name", "localhost/", "", "", "", "", true},
		{"a localhost profile with a space", "'localhost/ a'", "", "", "", "", true},
		{"an invalid profile", "other", "", "", "", "", true},
		{"windows", "runtime/default", "", "os: {name: windows}", "", "", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, "apiVersion: v1\nkind: Pod\nmetadata: {annotations: {container.apparmor.security.beta.kubernetes.io/c: "+c.annotation+"}}\nspec: {containers: [{name: c, image: i"+c.container+"}], "+c.spec+"}\n")
			var want []string
			if c.warned {
				want = []string{told}
			}
			if got := s.WarningsAsSent(obj); !slices.Equal(got, want) {
				t.Errorf("warned of %q, want %q", got, want)
			}
			s.PrepareCreate(obj)
			if got := s.Warnings(obj, nil); got != nil {
				t.Errorf("warned of %q when it has been prepared", got)
			}
			got := &corev1.AppArmorProfile{}
			if sc := obj.(*corev1.Pod).Spec.Containers[0].SecurityContext; sc != nil {
				got = sc.AppArmorProfile
			}
			if string(got.Type) != c.want || ptr.Deref(got.LocalhostProfile, "") != c.localhost {
				t.Errorf("the profile is %v, want %s %s", got, c.want, c.localhost)
			}
		})
	}
}

func TestAppArmorAnnotationsAreValidated(t *testing.T) {
	const field = "spec.containers[0].securityContext.appArmorProfile"
	own := func(profile string) string { return ", securityContext: {appArmorProfile: {" + profile + "}}" }
	cases := []struct {
		name, container, annotation string // container is the one that the annotation names
		field, spec                 string
		want                        []string // for a pod; for a template below its own path
		// Further errors of a template, whose annotations do not set fields.
		template []string
	}{
		{"the runtime's default profile", "c", "runtime/default", "", "", nil, nil},
		{"none", "c", "unconfined", "", "", nil, nil},
		{"a localhost profile", "c", "localhost/a", "", "", nil, nil},
		{"a localhost profile without name", "c", "localhost/", "", "", nil, nil},
		{"nothing", "c", "", "", "", nil, nil},
		{"an invalid profile", "c", "Unconfined", "", "", []string{`annotations[` + appArmorAnnotation + `c]: Invalid value: "Unconfined": invalid AppArmor profile name: "Unconfined"`}, nil},
		{"an invalid profile, on windows", "c", "x", "", "os: {name: windows}", []string{`invalid AppArmor profile name: "x"`}, nil},
		{"a missing container", "d", "localhost", "", "", []string{`annotations[` + appArmorAnnotation + `d]: Invalid value: "d": container not found`, `invalid AppArmor profile name: "localhost"`}, nil},
		{"an init container", "i", "unconfined", "", "initContainers: [{name: i, image: i}]", nil, nil},
		{"the field has the same profile", "c", "localhost/a", own("type: Localhost, localhostProfile: a"), "", nil, nil},
		{"the field has another profile name", "c", "localhost/a", own("type: Localhost, localhostProfile: b"), "", []string{field + ".localhostProfile: Forbidden: apparmor profile in annotation and field must match"}, nil},
		{"the field has another type", "c", "localhost/a", own("type: RuntimeDefault"), "", []string{field + ".type: Forbidden: apparmor type in annotation and field must match"}, nil},
		{"a field with an empty annotation", "c", "", own("type: Unconfined"), "", []string{field + ".type: Forbidden: apparmor type in annotation and field must match"}, nil},
		{"the field has an invalid type", "c", "unconfined", own("type: x"), "", []string{field + ".type: Unsupported value"}, nil},
		{"the pod has another profile", "c", "unconfined", "", "securityContext: {appArmorProfile: {type: RuntimeDefault}}", nil, []string{field + ".type: Forbidden: apparmor type in annotation and field must match"}},
		{"a field on windows", "c", "unconfined", own("type: RuntimeDefault"), "os: {name: windows}", []string{field + ": Forbidden: cannot be set for a windows pod"}, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			meta := "{annotations: {" + appArmorAnnotation + c.container + ": '" + c.annotation + "'}}"
			spec := "{containers: [{name: c, image: i" + c.field + "}], " + c.spec + "}"
			obj, s := resourcetest.Read(t, rules.For, "apiVersion: v1\nkind: Pod\nmetadata: "+meta+"\nspec: "+spec+"\n")
			s.PrepareCreate(obj)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
			obj, s = resourcetest.Read(t, rules.For, "apiVersion: v1\nkind: PodTemplate\ntemplate: {metadata: "+meta+", spec: "+spec+"}\n")
			resourcetest.Expect(t, s.ValidateCreate(obj), append(c.want, c.template...)...)
			if errs := s.ValidateCreate(obj); len(errs) > 0 && !strings.HasPrefix(errs[0].Field, "template.") {
				t.Errorf("the path is %s", errs[0].Field)
			}
		})
	}
}

func TestAppArmorAnnotationsOfPodsAreImmutable(t *testing.T) {
	pod := func(annotation string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {annotations: {" + annotation + "}}\nspec: {containers: [{name: c, image: i}]}\n"
	}
	const at = "metadata.annotations[" + appArmorAnnotation + "c]: "
	cases := []struct {
		name, before, after string
		// Errors about the change; itself are the annotation's own errors, which a pod update
		// reports twice.
		want   []string
		itself []string
	}{
		{"an unchanged annotation", appArmorAnnotation + "c: unconfined", appArmorAnnotation + "c: unconfined", nil, nil},
		{"another annotation changes", "a: b", "a: c", nil, nil},
		{"the annotation is added", "", appArmorAnnotation + "c: unconfined", []string{at + "Forbidden: may not add AppArmor annotations"}, nil},
		{"the annotation is removed", appArmorAnnotation + "c: unconfined", "", []string{at + "Forbidden: may not remove or update AppArmor annotations"}, nil},
		{"the annotation changes", appArmorAnnotation + "c: unconfined", appArmorAnnotation + "c: x", []string{at + "Forbidden: may not remove or update AppArmor annotations"}, []string{at + `Invalid value: "x": invalid AppArmor profile name: "x"`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := resourcetest.Read(t, rules.For, pod(c.before))
			s.PrepareCreate(old)
			obj := old.DeepCopyObject()
			changed, _ := resourcetest.Read(t, rules.For, pod(c.after))
			obj.(*corev1.Pod).Annotations = changed.(*corev1.Pod).Annotations
			resourcetest.Expect(t, s.ValidateUpdate(obj, old), append(append(c.want, c.itself...), c.itself...)...)
			resourcetest.Expect(t, s.ValidateStatus(obj, old), append(c.want, c.itself...)...)
		})
	}
}
