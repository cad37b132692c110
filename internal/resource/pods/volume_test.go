package pods_test

import (
	"testing"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestPathsInVolumesAreReportedAtUpstreamsFields(t *testing.T) {
	token := func(path string) string {
		return "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: c, image: i}], serviceAccountName: a, volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: '" + path + "'}}]}}]}\n"
	}
	file := func(path string) string {
		return "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: c, image: i, env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: '" + path + "', key: K}}}]}], volumes: [{name: v, emptyDir: {}}]}\n"
	}
	for _, c := range []struct {
		name, manifest string
		want           []string
	}{
		{"a token", token("a/b"), nil},
		{"a token with an absolute path", token("/a"), []string{`spec.volumes[0].projected.path: Invalid value: "/a": must be a relative path`}},
		{"a token outside of the volume", token("a/../../b"), []string{`spec.volumes[0].projected.path: Invalid value: "a/../../b": must not contain '..'`}},
		{"a token with a reserved name", token("..a"), []string{`spec.volumes[0].projected.path: Invalid value: "..a": must not start with '..'`}},
		{"a file may begin with a slash", file("/a"), nil},
		{"a file may have any name", file("..a"), nil},
		{"a file may not leave the volume", file("../a"), []string{`spec.containers[0].env[0].valueFrom.fileKeyRef.path: Invalid value: "../a": must not contain '..'`}},
	} {
		obj, s := resourcetest.Read(t, rules.For, c.manifest)
		t.Run(c.name, func(t *testing.T) { resourcetest.Expect(t, s.ValidateCreate(obj), c.want...) })
	}
}
