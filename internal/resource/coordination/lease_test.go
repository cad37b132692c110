package coordination_test

import (
	"testing"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestErrorsOfNewLeasesComeInOrder(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a lease with a duration of zero", "apiVersion: coordination.k8s.io/v1\nkind: Lease\nspec: {leaseDurationSeconds: 0}\n",
			[]string{"spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.ExpectInOrder(t, resourcetest.Create(s, obj), c.want)
		})
	}
}
