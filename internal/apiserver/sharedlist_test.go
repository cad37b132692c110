package apiserver

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
)

func TestListsOfEverythingShareABodyUntilSomethingChanges(t *testing.T) {
	s := newTestServer(t)
	c := s.Client(auth.Component("tester"))
	add := func(name string) {
		t.Helper()
		if _, err := client.Create(context.Background(), c, configMap(name)); err != nil {
			t.Fatal(err)
		}
	}
	list := func(query string) corev1.ConfigMapList {
		t.Helper()
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/default/configmaps"+query, nil))
		var out corev1.ConfigMapList
		if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || w.Code != http.StatusOK {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		return out
	}
	add("one")
	add("two")
	for range 2 {
		for query, want := range map[string]int{"": 2, "?limit=1": 1, "?fieldSelector=metadata.name%3Dtwo": 1, "?resourceVersion=0": 2} {
			if got := list(query); len(got.Items) != want || got.ResourceVersion == "" {
				t.Errorf("%q: %d items at %q, want %d", query, len(got.Items), got.ResourceVersion, want)
			}
		}
	}
	before := list("").ResourceVersion
	add("three")
	if got := list(""); len(got.Items) != 3 || got.ResourceVersion == before {
		t.Errorf("after a change: %d items at %s (before: %s)", len(got.Items), got.ResourceVersion, before)
	}
}

func TestASharedListIsMadeOnceForARevision(t *testing.T) {
	var s sharedLists
	made := 0
	encode := func() ([]byte, error) { made++; return []byte("body"), nil }
	get := func(revision int64, whole string) []byte {
		t.Helper()
		body, err := s.body("json", &page{revision: revision, whole: whole}, encode)
		if err != nil {
			t.Fatal(err)
		}
		return body
	}
	first, second := get(1, "/p/"), get(1, "/p/")
	if made == 1 && &first[0] != &second[0] { // the garbage collector may have come by
		t.Error("the second one got a copy")
	}
	made = 0
	get(2, "/p/")
	get(1, "/p/")
	get(2, "")
	get(2, "/q/")
	if made != 4 {
		t.Errorf("made %d times for another revision, an older one, a part and another namespace, want 4", made)
	}
}
