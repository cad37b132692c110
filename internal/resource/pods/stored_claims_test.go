package pods_test

import (
	"testing"

	apiequality "k8s.io/apimachinery/pkg/api/equality"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestObjectsStoredWithIllegalClaimMetadataCanBeUpdated(t *testing.T) {
	volume := func(name, metadata string) string {
		return "{name: " + name + ", ephemeral: {volumeClaimTemplate: {metadata: {" + metadata + "}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}"
	}
	spec := func(volume string) string {
		return "{volumes: [" + volume + "], containers: [{name: c, image: i, volumeMounts: [{name: v, mountPath: /v}]}]}"
	}
	pod := func(finalizers, volume string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: a, finalizers: [" + finalizers + "]}\nspec: " + spec(volume) + "\nstatus: {qosClass: BestEffort}\n"
	}
	deployment := func(replicas, volume string) string {
		return "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {replicas: " + replicas + ", selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: " + spec(volume) + "}}\n"
	}
	controller := func(template string) string {
		return "apiVersion: v1\nkind: ReplicationController\nmetadata: {name: a}\nspec: {selector: {a: b}" + template + "}\n"
	}
	const odd, uid = "uid: u, generation: 3, selfLink: /me, creationTimestamp: '2026-01-01T00:00:00Z', managedFields: [{manager: m}]", "volumeClaimTemplate.metadata.uID: Forbidden: cannot be set"
	const unmounted = `containers[0].volumeMounts[0].name: Not found: "v"`
	cases := []struct {
		name, old, obj string
		want           []string
	}{
		{"a removed finalizer of a pod", pod("example.com/a", volume("v", odd)), pod("", volume("v", odd)), nil},
		{"a pod's claim gets a uid", pod("", volume("v", "")), pod("", volume("v", "uid: u")), []string{uid, unmounted, "pod updates may not change fields"}},
		{"a pod's claim loses its uid", pod("", volume("v", "uid: u")), pod("", volume("v", "")), []string{"pod updates may not change fields"}},
		{"a deployment is scaled", deployment("1", volume("v", odd)), deployment("2", volume("v", odd)), nil},
		{"a claim's labels change", deployment("1", volume("v", "uid: u")), deployment("1", volume("v", "uid: u, labels: {c: d}")), nil},
		{"labels of a claim that become invalid", deployment("1", volume("v", "uid: u")), deployment("1", volume("v", "uid: u, labels: {c: '-'}")), []string{"volumeClaimTemplate.metadata.labels: Invalid value", unmounted}},
		{"swapped volumes", deployment("1", volume("v", "uid: u")+", "+volume("w", "")), deployment("1", volume("w", "")+", "+volume("v", "uid: u")), nil},
		{"a uid that moves to another volume", deployment("1", volume("v", "uid: u")+", "+volume("w", "")), deployment("1", volume("v", "")+", "+volume("w", "uid: u")), []string{"volumes[1].ephemeral." + uid}},
		{"another uid", deployment("1", volume("v", "uid: u")), deployment("1", volume("v", "uid: w")), []string{uid, unmounted}},
		{"more metadata than before", deployment("1", volume("v", "uid: u")), deployment("1", volume("v", "uid: u, generation: 3")), []string{uid, "metadata.generation: Forbidden", unmounted}},
		{"another volume source before", deployment("1", "{name: v, emptyDir: {}}"), deployment("1", volume("v", "uid: u")), []string{uid, unmounted}},
		{"no template before", controller(""), controller(", template: {metadata: {labels: {a: b}}, spec: " + spec(volume("v", "uid: u")) + "}"), []string{uid, unmounted}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := resourcetest.Read(t, rules.For, c.old)
			obj, _ := resourcetest.Read(t, rules.For, c.obj)
			before := obj.DeepCopyObject()
			resourcetest.Expect(t, s.ValidateUpdate(obj, old), c.want...)
			if !apiequality.Semantic.DeepEqual(obj, before) {
				t.Error("the object is another one than before")
			}
		})
	}
	t.Run("a pod's status", func(t *testing.T) {
		old, s := resourcetest.Read(t, rules.For, pod("", volume("v", odd)))
		obj := old.DeepCopyObject()
		resourcetest.Expect(t, s.ValidateStatus(obj, old))
		resourcetest.Expect(t, s.Subresource["resize"].Validate(obj, old))
		resourcetest.Expect(t, s.Subresource["ephemeralcontainers"].Validate(obj, old))
	})
	t.Run("a new pod", func(t *testing.T) {
		obj, s := resourcetest.Read(t, rules.For, pod("", volume("v", "uid: u, selfLink: /me, finalizers: [example.com/a], name: claim")))
		for range 20 { // the order of errors is stable
			errs := s.ValidateCreate(obj)
			resourcetest.Expect(t, errs, "metadata.name: Forbidden", "metadata.selfLink: Forbidden", "metadata.uID: Forbidden", "metadata.finalizers: Forbidden", unmounted)
		}
	})
}
