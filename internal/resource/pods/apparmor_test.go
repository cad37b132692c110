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
		{"the runtime's", "runtime/default", "", "", "RuntimeDefault", "", true},
		{"none", "unconfined", "", "", "Unconfined", "", true},
		{"the node's", "localhost/a/b", "", "", "Localhost", "a/b", true},
		{"another one than the pod's", "unconfined", "", pods, "Unconfined", "", true},
		{"the pod's", "runtime/default", "", pods, "", "", false},
		{"the container has one", "runtime/default", own, "", "Unconfined", "", false},
		{"the container has the same", "unconfined", own, "", "Unconfined", "", false},
		{"the node's without a name", "localhost/", "", "", "", "", true},
		{"the node's with a space", "'localhost/ a'", "", "", "", "", true},
		{"what there is not", "other", "", "", "", "", true},
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
		{"the runtime's", "c", "runtime/default", "", "", nil, nil},
		{"none", "c", "unconfined", "", "", nil, nil},
		{"the node's", "c", "localhost/a", "", "", nil, nil},
		{"the node's without a name", "c", "localhost/", "", "", nil, nil},
		{"nothing", "c", "", "", "", nil, nil},
		{"what there is not", "c", "Unconfined", "", "", []string{`annotations[` + appArmorAnnotation + `c]: Invalid value: "Unconfined": invalid AppArmor profile name: "Unconfined"`}, nil},
		{"what there is not, on windows", "c", "x", "", "os: {name: windows}", []string{`invalid AppArmor profile name: "x"`}, nil},
		{"of no container", "d", "localhost", "", "", []string{`annotations[` + appArmorAnnotation + `d]: Invalid value: "d": container not found`, `invalid AppArmor profile name: "localhost"`}, nil},
		{"of an init container", "i", "unconfined", "", "initContainers: [{name: i, image: i}]", nil, nil},
		{"the field says the same", "c", "localhost/a", own("type: Localhost, localhostProfile: a"), "", nil, nil},
		{"the field says another name", "c", "localhost/a", own("type: Localhost, localhostProfile: b"), "", []string{field + ".localhostProfile: Forbidden: apparmor profile in annotation and field must match"}, nil},
		{"the field says another type", "c", "localhost/a", own("type: RuntimeDefault"), "", []string{field + ".type: Forbidden: apparmor type in annotation and field must match"}, nil},
		{"the field says something", "c", "", own("type: Unconfined"), "", []string{field + ".type: Forbidden: apparmor type in annotation and field must match"}, nil},
		{"the field says what there is not", "c", "unconfined", own("type: x"), "", []string{field + ".type: Unsupported value"}, nil},
		{"the pod says something else", "c", "unconfined", "", "securityContext: {appArmorProfile: {type: RuntimeDefault}}", nil, []string{field + ".type: Forbidden: apparmor type in annotation and field must match"}},
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
		{"it stays", appArmorAnnotation + "c: unconfined", appArmorAnnotation + "c: unconfined", nil, nil},
		{"another one comes", "a: b", "a: c", nil, nil},
		{"it comes", "", appArmorAnnotation + "c: unconfined", []string{at + "Forbidden: may not add AppArmor annotations"}, nil},
		{"it goes", appArmorAnnotation + "c: unconfined", "", []string{at + "Forbidden: may not remove or update AppArmor annotations"}, nil},
		{"it changes", appArmorAnnotation + "c: unconfined", appArmorAnnotation + "c: x", []string{at + "Forbidden: may not remove or update AppArmor annotations"}, []string{at + `Invalid value: "x": invalid AppArmor profile name: "x"`}},
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
