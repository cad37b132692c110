package discovery

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// published returns the folder of upstream's discovery documents in the module cache.
func published(t *testing.T) string {
	t.Helper()
	cache := os.Getenv("GOMODCACHE")
	if cache == "" {
		home, _ := os.UserHomeDir()
		cache = filepath.Join(home, "go", "pkg", "mod")
	}
	dir := filepath.Join(cache, "k8s.io", "kubernetes@v1.36.3", "api", "discovery")
	if _, err := os.Stat(dir); err != nil {
		t.Skip("upstream's published documents are not in the module cache")
	}
	return dir
}

func get(t *testing.T, h http.Handler, path, accept string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest("GET", path, nil)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestDocumentsAreUpstreams(t *testing.T) {
	dir := published(t)
	h := New(nil, "10.10.10.10:8050", nil)
	files, _ := filepath.Glob(filepath.Join(dir, "api*.json"))
	compared := 0
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		if strings.Contains(name, "alpha") || strings.Contains(name, "beta") {
			continue
		}
		if strings.Contains(name, "internal.apiserver") || strings.Contains(name, "storagemigration") {
			continue // not served by default
		}
		path := "/" + strings.ReplaceAll(name, "__", "/")
		t.Run(path, func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var want, got any
			if err := json.Unmarshal(data, &want); err != nil {
				t.Fatal(err)
			}
			w := get(t, h, path, "")
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatalf("%d %v: %s", w.Code, err, w.Body)
			}
			if diff := cmp.Diff(withoutPreviews(want), withoutPreviews(got)); diff != "" {
				t.Error(diff)
			}
		})
		compared++
	}
	if compared < 40 {
		t.Errorf("compared only %d documents", compared)
	}
	data, err := os.ReadFile(filepath.Join(dir, "aggregated_v2.json"))
	if err != nil {
		t.Fatal(err)
	}
	var want, got any
	_ = json.Unmarshal(data, &want)
	_ = json.Unmarshal(get(t, h, "/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList").Body.Bytes(), &got)
	if diff := cmp.Diff(withoutPreviews(want), withoutPreviews(got)); diff != "" {
		t.Error(diff)
	}
}

// withoutPreviews drops two sets of versions: alpha and beta versions, which upstream publishes but
// does not serve by default, and metrics.k8s.io, which only knarr serves.
func withoutPreviews(doc any) any {
	preview := func(v any) bool {
		name, _ := v.(map[string]any)["version"].(string)
		return strings.Contains(name, "alpha") || strings.Contains(name, "beta")
	}
	m := doc.(map[string]any)
	if versions, ok := m["versions"].([]any); ok {
		var kept []any
		for _, v := range versions {
			if _, isText := v.(string); isText || !preview(v) {
				kept = append(kept, v)
			}
		}
		m["versions"] = kept
	}
	for _, key := range []string{"groups", "items"} {
		list, ok := m[key].([]any)
		if !ok {
			continue
		}
		var kept []any
		for _, g := range list {
			if g = withoutPreviews(g); g.(map[string]any)["versions"].([]any) != nil {
				kept = append(kept, g)
			}
		}
		m[key] = kept
	}
	return m
}

func TestClientGoReadsBothForms(t *testing.T) {
	server := httptest.NewServer(New(nil, "x", nil))
	defer server.Close()
	for name, legacy := range map[string]bool{"aggregated": false, "one document per version": true} {
		t.Run(name, func(t *testing.T) {
			for _, media := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
				c := discovery.NewDiscoveryClientForConfigOrDie(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{AcceptContentTypes: media}})
				c.UseLegacyDiscovery = legacy
				groups, lists, err := c.ServerGroupsAndResources()
				if err != nil {
					t.Fatal(err)
				}
				if len(groups) != 22 || groups[0].Name != "" {
					t.Errorf("%d groups, the first is %q", len(groups), groups[0].Name)
				}
				if len(lists) != 23 {
					t.Errorf("%d versions", len(lists))
				}
			}
		})
	}
}

type customs struct {
	revision uint64
	list     []GroupVersion
}

func (c *customs) Revision() uint64              { return c.revision }
func (c *customs) GroupVersions() []GroupVersion { return c.list }

func TestCustomGroupsFollowTheBuiltInOnes(t *testing.T) {
	c := &customs{}
	h := New(c, "x", nil)
	const accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
	first := get(t, h, "/apis", accept)
	etag := first.Header().Get("ETag")
	if w := get(t, h, "/apis", accept, "If-None-Match", etag); w.Code != http.StatusNotModified {
		t.Errorf("same document again: %d", w.Code)
	}
	c.list = []GroupVersion{
		{GroupVersion: schema.GroupVersion{Group: "b.io", Version: "v1beta1"}, GroupPriority: CustomGroupPriority, VersionPriority: CustomVersionPriority},
		{GroupVersion: schema.GroupVersion{Group: "b.io", Version: "v1"}, GroupPriority: CustomGroupPriority, VersionPriority: CustomVersionPriority,
			Resources: []metav1.APIResource{{Name: "cows", Kind: "Cow"}, {Name: "cows/status", Kind: "Cow"}}},
		{GroupVersion: schema.GroupVersion{Group: "a.io", Version: "v1"}, GroupPriority: CustomGroupPriority, VersionPriority: CustomVersionPriority},
	}
	c.revision++
	if w := get(t, h, "/apis", accept, "If-None-Match", etag); w.Code != http.StatusOK || w.Header().Get("ETag") == etag {
		t.Errorf("changed document: %d", w.Code)
	}
	var groups metav1.APIGroupList
	if err := json.Unmarshal(get(t, h, "/apis", "").Body.Bytes(), &groups); err != nil {
		t.Fatal(err)
	}
	n := len(groups.Groups)
	if a, b := groups.Groups[n-3], groups.Groups[n-2]; a.Name != "a.io" || b.Name != "b.io" || b.PreferredVersion.Version != "v1" {
		t.Errorf("last groups: %v %v", a, b)
	}
	// Where upstream lists the metrics server's group.
	if last := groups.Groups[n-1].Name; last != "metrics.k8s.io" {
		t.Errorf("the last group is %s", last)
	}
	for path, code := range map[string]int{"/apis/b.io": 200, "/apis/b.io/v1": 200, "/apis/b.io/v2": 404, "/apis/c.io": 404, "/api/v1/": 200, "/api/v2": 404} {
		if w := get(t, h, path, ""); w.Code != code {
			t.Errorf("%s: %d, want %d", path, w.Code, code)
		}
	}
}

func TestALaterProviderReplacesEarlierOnesAndTheTable(t *testing.T) {
	of := func(version, resource string) GroupVersion {
		return GroupVersion{GroupVersion: schema.GroupVersion{Group: "apps", Version: version}, Resources: []metav1.APIResource{{Name: resource}}}
	}
	first, second := &customs{revision: 1, list: []GroupVersion{of("v9", "first")}}, &customs{revision: 1}
	h := New(Providers{first, second}, "", nil)
	names := func() string {
		var names []string
		lists, _ := h.Lists()
		for _, list := range lists {
			if list.GroupVersion == "apps/v9" || list.GroupVersion == "apps/v1" && len(list.APIResources) == 1 {
				names = append(names, list.GroupVersion+" "+list.APIResources[0].Name)
			}
		}
		return strings.Join(names, ", ")
	}
	if got := names(); got != "apps/v9 first" {
		t.Errorf("got %s", got)
	}
	second.list = []GroupVersion{of("v9", "second"), of("v1", "own")}
	second.revision++
	if got := names(); got != "apps/v9 second, apps/v1 own" {
		t.Errorf("got %s", got)
	}
}
