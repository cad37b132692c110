package storage_test

import (
	"slices"
	"testing"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestDeprecationsInStorageClassesAreWarnedOf(t *testing.T) {
	const arch = `deprecated since v1.14; use "kubernetes.io/arch" instead`
	for _, c := range []struct {
		name, manifest string
		always         bool // checked in updates too
		want           []string
	}{
		{"a topology with deprecated labels", "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nprovisioner: p\nallowedTopologies: [{matchLabelExpressions: [{key: a, values: [b]}, {key: beta.kubernetes.io/arch, values: [b]}]}]\n", true, []string{"allowedTopologies[0].matchLabelExpressions[1].key: " + arch}},
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

func TestErrorsOfNewStorageClassesComeInOrder(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a storage class", "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nprovisioner: kubernetes.io/no-provisioner\n", nil},
		{"a storage class without provisioner", "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nreclaimPolicy: Recycle\nparameters: {'': x}\n",
			[]string{"provisioner: Required value", `parameters: Invalid value: "": field can not be empty.`,
				`reclaimPolicy: Unsupported value: "Recycle": supported values: "Delete", "Retain"`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.ExpectInOrder(t, resourcetest.Create(s, obj), c.want)
		})
	}
}

func TestNewStorageClassesAreValidated(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"an empty topology term", "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nprovisioner: p\nallowedTopologies: [{}]\n", []string{`allowedTopologies[0].matchLabelExpressions: Duplicate value: ""`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}
