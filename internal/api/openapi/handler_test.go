package openapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi3"
	"k8s.io/client-go/rest"
)

func TestVersion2IsUpstreams(t *testing.T) {
	dir := published(t)
	data, err := os.ReadFile(filepath.Join(dir, "swagger.json"))
	if err != nil {
		t.Fatal(err)
	}
	type swagger struct{ Definitions, Paths map[string]map[string]any }
	var want, got swagger
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	doc, err := build2(nil)
	if err != nil {
		t.Fatal(err)
	}
	data, err = json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	for name := range want.Definitions {
		if _, ok := got.Definitions[name]; !ok {
			// Of alpha and beta versions; the version 3 test proves that no other is missing.
			delete(want.Definitions, name)
		}
	}
	// List all group versions, including alpha and beta.
	for _, name := range []string{"DeleteOptions", "WatchEvent"} {
		delete(want.Definitions, "io.k8s.apimachinery.pkg.apis.meta.v1."+name)
		delete(got.Definitions, "io.k8s.apimachinery.pkg.apis.meta.v1."+name)
	}
	for _, list := range []map[string]map[string]any{got.Definitions, got.Paths} {
		maps.DeleteFunc(list, func(name string, _ map[string]any) bool {
			// Only knarr has them.
			return strings.Contains(name, "metrics.") || name == "io.k8s.apimachinery.pkg.apis.meta.v1.Duration"
		})
	}
	compare(t, "v2", want.Definitions, got.Definitions)
	for name := range got.Paths {
		if _, ok := want.Paths[name]; !ok {
			t.Errorf("upstream has no path %s", name)
		}
	}
	if len(got.Definitions) < 500 || len(got.Paths) < 400 {
		t.Errorf("%d definitions, %d paths", len(got.Definitions), len(got.Paths))
	}
}

func TestClientGoReadsTheDocuments(t *testing.T) {
	server := httptest.NewServer(New(nil, nil))
	defer server.Close()
	// Test machines may be slow.
	c := discovery.NewDiscoveryClientForConfigOrDie(&rest.Config{Host: server.URL, Timeout: 10 * time.Minute})
	doc, err := c.OpenAPISchema() // version 2, in protobuf
	if err != nil {
		t.Fatal(err)
	}
	if n := len(doc.GetDefinitions().GetAdditionalProperties()); n < 500 {
		t.Errorf("version 2 has %d definitions", n)
	}
	root := openapi3.NewRoot(c.OpenAPIV3())
	gvs, err := root.GroupVersions()
	if err != nil || len(gvs) != 23 {
		t.Fatalf("%v: %d group versions", err, len(gvs))
	}
	apps, err := root.GVSpec(schema.GroupVersion{Group: "apps", Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	if apps.Paths.Paths["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"].Patch == nil {
		t.Error("no patch of deployments")
	}
	paths, err := c.OpenAPIV3().Paths()
	if err != nil {
		t.Fatal(err)
	}
	body, err := paths["apis/batch/v1"].Schema("application/com.github.proto-openapi.spec.v3@v1.0+protobuf")
	if err != nil || len(body) < 10000 {
		t.Errorf("version 3 in protobuf: %d bytes, %v", len(body), err)
	}
}

func TestHashesSaveTransfers(t *testing.T) {
	h := New(nil, nil)
	get := func(path, etag string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set("If-None-Match", etag)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	first := get("/openapi/v3/apis/node.k8s.io/v1", "")
	etag := first.Header().Get("Etag")
	if first.Code != http.StatusOK || etag == "" {
		t.Fatalf("%d, ETag %q", first.Code, etag)
	}
	if w := get("/openapi/v3/apis/node.k8s.io/v1", etag); w.Code != http.StatusNotModified {
		t.Errorf("the same again: %d", w.Code)
	}
	if w := get("/openapi/v3/apis/node.k8s.io/v1?hash=OLD", ""); w.Code != http.StatusMovedPermanently {
		t.Errorf("an old hash: %d", w.Code)
	}
	if w := get("/openapi/v3/apis/none.k8s.io/v1", ""); w.Code != http.StatusNotFound {
		t.Errorf("no such document: %d", w.Code)
	}
}

// BenchmarkDocuments makes each document for the first time; the version 2 document contains all
// kinds.
func BenchmarkDocuments(b *testing.B) {
	for _, p := range []page{{"api/v1", false}, {"apis/apps/v1", false}, {"apis/apps/v1", true}, {rootV2, false}, {rootV2, true}} {
		b.Run(fmt.Sprint(p), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := New(nil, nil).page(p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestDocumentsAreServedAsUpstreamServesThem(t *testing.T) {
	h := New(nil, nil)
	const proto = mediaProto3 + ".v1.0+protobuf"
	for _, c := range []struct {
		name, method, path, accept string
		code                       int
		media                      string
	}{
		{"any method", http.MethodPost, rootV3 + "/apis/batch/v1", mediaJSON, 200, mediaJSON},
		{"a missing document in an unavailable format", http.MethodGet, rootV3 + "/nowhere", "application/yaml", 404, ""},
		{"an unavailable format", http.MethodGet, rootV3 + "/apis/batch/v1", "application/yaml", 406, ""},
		{"the preferred format", http.MethodGet, rootV3 + "/apis/batch/v1", "application/json;q=0.5," + proto, 200, proto},
		{"the first of two equally preferred formats", http.MethodGet, rootV3 + "/apis/batch/v1", "application/json," + proto, 200, mediaJSON},
	} {
		r := httptest.NewRequest(c.method, c.path, nil)
		r.Header.Set("Accept", c.accept)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.code || w.Header().Get("Content-Type") != c.media || (c.code == 200) != (w.Body.Len() > 0) {
			t.Errorf("%s: got %d %q, %d bytes", c.name, w.Code, w.Header().Get("Content-Type"), w.Body.Len())
		}
	}
}
