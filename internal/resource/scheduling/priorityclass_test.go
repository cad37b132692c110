package scheduling_test

import (
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
			resourcetest.ExpectInOrder(t, resourcetest.Create(s, obj), c.want)
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
			obj, _ := resourcetest.Read(t, rules.For, c.obj)
			resourcetest.ExpectInOrder(t, resourcetest.Update(s, obj, old), c.want)
		})
	}
}
