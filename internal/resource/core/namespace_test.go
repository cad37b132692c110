package core_test

import (
	"testing"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestNewNamespacesAreValidated(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a namespace with an unknown finalizer", "apiVersion: v1\nkind: Namespace\nspec: {finalizers: [x]}\n", []string{`spec.finalizers: Invalid value: "x": name is neither a standard finalizer name nor is it fully qualified`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}
