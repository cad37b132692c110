package storage_test

import (
	"slices"
	"testing"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestDeprecationsInCSIStorageCapacitiesAreWarnedOf(t *testing.T) {
	const arch = `deprecated since v1.14; use "kubernetes.io/arch" instead`
	for _, c := range []struct {
		name, manifest string
		always         bool // checked in updates too
		want           []string
	}{
		{"a storage capacity with deprecated labels", "apiVersion: storage.k8s.io/v1\nkind: CSIStorageCapacity\nstorageClassName: s\nnodeTopology: {matchLabels: {beta.kubernetes.io/arch: a, b: c}, matchExpressions: [{key: beta.kubernetes.io/arch, operator: Exists}]}\n", true,
			[]string{"nodeTopology.matchExpressions[0].key: beta.kubernetes.io/arch is " + arch, "nodeTopology.matchLabels.beta.kubernetes.io/arch: " + arch}},
		{"a storage capacity without topology", "apiVersion: storage.k8s.io/v1\nkind: CSIStorageCapacity\nstorageClassName: s\n", true, nil},
	} {
		obj, s := resourcetest.Read(t, rules.For, c.manifest)
		if got := s.Warnings(obj, nil); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q", c.name, got)
		}
		if !c.always {
			c.want = nil
		}
		if got := s.Warnings(obj, obj); !slices.Equal(got, c.want) {
			t.Errorf("%s, updated: got %q", c.name, got)
		}
	}
}

func TestNewCSIStorageCapacitiesAreValidated(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a storage capacity with a negative volume size", "apiVersion: storage.k8s.io/v1\nkind: CSIStorageCapacity\nstorageClassName: s\nmaximumVolumeSize: -1\n", nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}
