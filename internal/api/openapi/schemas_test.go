package openapi

import (
	"encoding/json"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// published returns the folder of upstream's OpenAPI documents in the module cache.
func published(t *testing.T) string {
	t.Helper()
	cache := os.Getenv("GOMODCACHE")
	if cache == "" {
		home, _ := os.UserHomeDir()
		cache = filepath.Join(home, "go", "pkg", "mod")
	}
	dir := filepath.Join(cache, "k8s.io", "kubernetes@v1.36.3", "api", "openapi-spec")
	if _, err := os.Stat(dir); err != nil {
		t.Skip("upstream's published documents are not in the module cache")
	}
	return dir
}

type document struct {
	Components struct{ Schemas map[string]map[string]any }
	Paths      map[string]map[string]any
}

func readDocument(t *testing.T, path string) document {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var d document
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDocumentsAreUpstreams compares every definition and every path with upstream's published
// documents.
func TestDocumentsAreUpstreams(t *testing.T) {
	dir := published(t)
	for _, gv := range groupVersions(nil) {
		if gv.Group == "metrics.k8s.io" {
			continue // only knarr has it
		}
		name := "api__v1_openapi.json"
		if gv.Group != "" {
			name = "apis__" + gv.Group + "__" + gv.Version + "_openapi.json"
		}
		want := readDocument(t, filepath.Join(dir, "v3", name))
		doc, err := groupVersionDocument(gv, nil)
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		var got document
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		compare(t, gv.String(), want.Components.Schemas, got.Components.Schemas)
		compare(t, gv.String(), want.Paths, got.Paths)
	}
}

func compare(t *testing.T, where string, want, got map[string]map[string]any) {
	t.Helper()
	for name, value := range got {
		have, ok := want[name]
		if !ok {
			t.Errorf("%s: upstream has no %s", where, name)
			continue
		}
		normalize(have)
		normalize(value)
		if diff := cmp.Diff(have, value); diff != "" {
			t.Errorf("%s %s:\n%s", where, name, short(diff))
		}
	}
	for name := range want {
		if _, ok := got[name]; !ok {
			t.Errorf("%s: %s is missing", where, name)
		}
	}
}

// short keeps the lines that differ.
func short(diff string) string {
	var lines []string
	for _, l := range strings.Split(diff, "\n") {
		if strings.HasPrefix(l, "+") || strings.HasPrefix(l, "-") || strings.Contains(l, `string("`) {
			lines = append(lines, l)
		}
	}
	return strings.Join(lines, "\n")
}

// normalize drops irrelevant differences: the order of lists that are sets, and the default list
// type.
func normalize(value any) {
	switch v := value.(type) {
	case map[string]any:
		// Upstream publishes without the feature OpenAPIEnums, which is on by default, and with
		// CBOR, which is off by default.
		delete(v, "enum")
		for k := range v {
			if strings.Contains(k, "cbor") {
				delete(v, k)
			}
		}
		if v["x-kubernetes-list-type"] == "atomic" {
			delete(v, "x-kubernetes-list-type")
		}
		if required, ok := v["required"].([]any); ok {
			sort.Slice(required, func(i, j int) bool { return required[i].(string) < required[j].(string) })
		}
		// Descriptions come from another generator, which truncates some of them.
		if _, ok := v["description"].(string); ok {
			delete(v, "description")
		}
		if all, ok := v["allOf"].([]any); ok && len(all) == 1 {
			v["$ref"] = all[0].(map[string]any)["$ref"]
			delete(v, "allOf")
		}
		for _, child := range v {
			normalize(child)
		}
	case []any:
		for _, child := range v {
			normalize(child)
		}
	}
}
