package scheduling_test

import (
	"strings"
	"testing"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestErrorsOfNewPriorityClassesComeInOrder(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a priority class with the system's prefix", "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: system-x}\nvalue: 1\n",
			[]string{"metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: system-x is not a known system priority class"}},
		{"the system's priority class", "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: system-node-critical}\nvalue: 2000001000\n", nil},
		{"a priority above users'", "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nvalue: 1000000001\n",
			[]string{"value: Forbidden: maximum allowed value of a user defined priority is 1000000000"}},
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

func TestErrorsOfUpdatesOfPriorityClassesComeInOrder(t *testing.T) {
	cases := []struct {
		name, old, obj string
		want           []string
	}{
		{"a priority's value is immutable", "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nvalue: 1\n", "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nvalue: 2\n",
			[]string{"value: Forbidden: may not be changed in an update."}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := resourcetest.Read(t, rules.For, c.old)
			if s.PrepareCreate != nil {
				s.PrepareCreate(old)
			}
			obj, _ := resourcetest.Read(t, rules.For, c.obj)
			if s.PrepareCreate != nil {
				s.PrepareCreate(obj) // clients send the generated labels back
			}
			if s.PrepareUpdate != nil {
				s.PrepareUpdate(obj, old)
			}
			var got []string
			for _, err := range s.ValidateUpdate(obj, old) {
				got = append(got, err.Error())
			}
			if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(c.want, "\n  "))
			}
		})
	}
}
