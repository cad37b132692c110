package apps_test

import (
	"testing"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestErrorsOfNewControllerRevisionsComeInOrder(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a revision without data", "apiVersion: apps/v1\nkind: ControllerRevision\nrevision: -1\n",
			[]string{"data: Required value: data is mandatory", "revision: Invalid value: -1: must be greater than or equal to 0"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.ExpectInOrder(t, resourcetest.Create(s, obj), c.want)
		})
	}
}

func TestNewControllerRevisionsAreValidated(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a ControllerRevision with data that is not an object", "apiVersion: apps/v1\nkind: ControllerRevision\nrevision: 1\ndata: 1\n", []string{"data: Required value: data must be a valid JSON object"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestUpdatesOfControllerRevisionsAreValidated(t *testing.T) {
	revision := func(data string) string {
		return "apiVersion: apps/v1\nkind: ControllerRevision\nrevision: 1\n" + data + "\n"
	}
	cases := []struct {
		name, old, obj string
		want           []string
	}{
		{"a ControllerRevision without its old data", revision("data: {a: b}"), revision(""), []string{"data: Invalid value: "}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := resourcetest.Read(t, rules.For, c.old)
			obj, _ := resourcetest.Read(t, rules.For, c.obj)
			resourcetest.Expect(t, s.ValidateUpdate(obj, old), c.want...)
		})
	}
}
