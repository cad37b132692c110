package coordination_test

import (
	"strings"
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
			if s.PrepareCreate != nil {
				s.PrepareCreate(obj)
			}
			var got []string
			for _, err := range s.ValidateCreate(obj) {
				got = append(got, err.Error())
			}
			if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(c.want, "\n  "))
			}
		})
	}
}
