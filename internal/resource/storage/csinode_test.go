package storage_test

import (
	"testing"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestNewCSINodesAreValidated(t *testing.T) {
	node := func(driver string) string {
		return "apiVersion: storage.k8s.io/v1\nkind: CSINode\nspec: {drivers: [{name: d.example, nodeID: node" + driver + "}]}\n"
	}
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"repeated topology keys", node(", topologyKeys: [a, a]"), []string{`spec.drivers[0]: Duplicate value: "a"`}},
		{"an empty topology key", node(", topologyKeys: ['']"), []string{"spec.drivers[0]: Required value", `spec.drivers[0]: Invalid value: "": name part must be non-empty`, `spec.drivers[0]: Invalid value: "": name part must consist`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestUpdatesOfCSINodesAreValidated(t *testing.T) {
	cases := []struct {
		name, old, obj string
		want           []string
	}{
		{"a changed CSI driver of a node", "apiVersion: storage.k8s.io/v1\nkind: CSINode\nspec: {drivers: [{name: d.example, nodeID: a}]}\n", "apiVersion: storage.k8s.io/v1\nkind: CSINode\nspec: {drivers: [{name: d.example, nodeID: b}]}\n", []string{"spec.drivers: Invalid value: "}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := resourcetest.Read(t, rules.For, c.old)
			obj, _ := resourcetest.Read(t, rules.For, c.obj)
			resourcetest.Expect(t, s.ValidateUpdate(obj, old), c.want...)
		})
	}
}
