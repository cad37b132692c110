package node_test

import (
	"slices"
	"testing"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestDeprecationsInRuntimeClassesAreWarnedOf(t *testing.T) {
	const arch = `deprecated since v1.14; use "kubernetes.io/arch" instead`
	for _, c := range []struct {
		name, manifest string
		always         bool // checked in updates too
		want           []string
	}{
		{"a runtime class with deprecated labels", "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nhandler: h\nscheduling: {nodeSelector: {beta.kubernetes.io/arch: a, c: d}}\n", true, []string{"scheduling.nodeSelector: " + arch}},
		{"a runtime class without scheduling", "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nhandler: h\n", true, nil},
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

func TestErrorsOfNewRuntimeClassesComeInOrder(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a runtime class", "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nhandler: Kata\n",
			[]string{`handler: Invalid value: "Kata": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.ExpectInOrder(t, resourcetest.Create(s, obj), c.want)
		})
	}
}

func TestNewRuntimeClassesAreValidated(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a toleration operator of a disabled feature", "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nhandler: h\nscheduling: {tolerations: [{key: a, operator: Gt, value: '1'}]}\n", []string{`scheduling.tolerations[0].operator: Unsupported value: "Gt": supported values: "Equal", "Exists", "Lt", "Gt"`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}
