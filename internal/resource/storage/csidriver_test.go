package storage_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestErrorsOfNewCSIDriversComeInOrder(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a driver", "apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: d.example}\nspec: {tokenRequests: [{audience: a, expirationSeconds: 1}, {audience: a}]}\n",
			[]string{"spec.tokenRequests[0].expirationSeconds: Invalid value: 1: may not specify a duration less than 10 minutes",
				`spec.tokenRequests[1].audience: Duplicate value: "a"`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.ExpectInOrder(t, resourcetest.Create(s, obj), c.want)
		})
	}
}

func TestNewCSIDriversAreValidated(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a token duration below the minimum", "apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nspec: {nodeAllocatableUpdatePeriodSeconds: 5, serviceAccountTokenInSecrets: true}\n", []string{
			"spec.serviceAccountTokenInSecrets: Invalid value: true: serviceAccountTokenInSecrets is set but no tokenRequests are specified",
			"spec.nodeAllocatableUpdatePeriodSeconds: Invalid value: 5: must be greater than or equal to 10 seconds"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestNewCSIDriversAreValidatedWithTheirMetadata(t *testing.T) {
	driver := func(rest string) string {
		return "apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nspec: {" + rest + "}\n"
	}
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a repeated audience is checked once", driver("tokenRequests: [{audience: a}, {audience: a, expirationSeconds: 1}]"), []string{`spec.tokenRequests[1].audience: Duplicate value: "a"`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateNew(obj, obj.(metav1.Object).GetNamespace() != ""), c.want...)
		})
	}
}
