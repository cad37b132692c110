package resource

import (
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"
)

// What the comparison with upstream's API server has found.
func TestWhatTheComparisonFound(t *testing.T) {
	quota := func(spec string) string { return "apiVersion: v1\nkind: ResourceQuota\nspec: " + spec + "\n" }
	event := func(rest string) string { return "apiVersion: v1\nkind: Event\n" + rest + "\n" }
	whole := "eventTime: '2024-01-01T00:00:00.000000Z'\nreportingComponent: a\nreportingInstance: b\naction: c\nreason: d"
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"resources of a group count in every scope", quota("{hard: {count/deployments.apps: 1, requests.cpu: 1}, scopes: [NotBestEffort]}"), nil},
		{"each resource outside of a scope is said", quota("{hard: {secrets: 1, services: 1}, scopes: [Terminating]}"), []string{
			`spec.scopes: Invalid value: ["Terminating"]: unsupported scope applied to resource`, `spec.scopes: Invalid value: ["Terminating"]: unsupported scope applied to resource`}},
		{"a new event may be about another namespace", event("involvedObject: {namespace: other}\n" + whole), nil},
		{"a StatefulSet without containers", "apiVersion: apps/v1\nkind: StatefulSet\nspec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: []}}}\n", []string{"spec.template.spec.containers: Required value"}},
		{"a StatefulSet mounts what its claims bring", workload("StatefulSet", ", volumeClaimTemplates: [{metadata: {name: d}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]"), nil},
		{"a namespace with a strange finalizer", "apiVersion: v1\nkind: Namespace\nspec: {finalizers: [x]}\n", []string{`spec.finalizers: Invalid value: "x": name is neither a standard finalizer name nor is it fully qualified`}},
		{"a range that is none is only said to be none", "apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nspec: {cidrs: [10.0.0.0/24, a/b]}\n", []string{`spec.cidrs[1]: Invalid value: "a/b": must be a valid CIDR value`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := read(t, c.manifest)
			expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestFieldsOfFeaturesThatAreOffAreDropped(t *testing.T) {
	driver := func(set *bool) *storagev1.CSIDriver {
		return &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{PreventPodSchedulingIfMissing: set}}
	}
	s := csiDriverStrategy()
	created := driver(ptr.To(true))
	if s.PrepareCreate(created); created.Spec.PreventPodSchedulingIfMissing != nil {
		t.Error("a new object has the field")
	}
	kept := driver(ptr.To(true))
	if s.PrepareUpdate(kept, driver(ptr.To(false))); kept.Spec.PreventPodSchedulingIfMissing == nil {
		t.Error("an object that had the field has lost it")
	}
}
