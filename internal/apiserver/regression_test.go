package apiserver

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/store/storetest"
)

// Known bugs of other API servers, one test per class: go test -run Regression ./internal/... runs
// them all.

// k/k#123072 and similar. The client has got a revision from another server of the same store, and
// watches from it at a server that has not reached it, beside an existing watch with the same
// interest.
func TestRegressionDuplicateEventsOnALaggingServer(t *testing.T) {
	t.Parallel()
	ahead := newTestServer(t)
	behind := storetest.Lag(ahead.cfg.Store)
	s := newTestServer(t, func(c *Config) { c.Store = behind })
	url, one, two := secure(t, s)
	// Opens the cache.
	if _, err := s.endpoints.Registry("", "configmaps").Cache(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := ahead.Client(auth.Component("tester"))
	for proto, by := range map[int]*http.Client{1: one, 2: two} {
		t.Run(fmt.Sprintf("HTTP/%d", proto), func(t *testing.T) {
			first, err := client.Create(t.Context(), c, configMap(fmt.Sprint("first-", proto)))
			if err != nil {
				t.Fatal(err)
			}
			early, _ := linesBy(t, by, proto, url+defaultMaps+"?watch=1&resourceVersion="+first.ResourceVersion)
			if _, err := client.Create(t.Context(), c, configMap(fmt.Sprint("second-", proto))); err != nil {
				t.Fatal(err)
			}
			if _, obj := event(t, early()); obj.Name != fmt.Sprint("second-", proto) {
				t.Fatalf("the first event is of %s", obj.Name)
			}
			pass := behind.Hold()
			defer pass()
			seen, err := client.Create(t.Context(), c, configMap(fmt.Sprint("seen-", proto)))
			if err != nil {
				t.Fatal(err)
			}
			late, _ := linesBy(t, by, proto, url+defaultMaps+"?watch=1&resourceVersion="+seen.ResourceVersion)
			pass()
			if _, err := client.Create(t.Context(), c, configMap(fmt.Sprint("unseen-", proto))); err != nil {
				t.Fatal(err)
			}
			if _, obj := event(t, early()); obj.Name != seen.Name {
				t.Errorf("the early watch gets %s, want %s", obj.Name, seen.Name)
			}
			if _, obj := event(t, late()); obj.Name != fmt.Sprint("unseen-", proto) {
				t.Errorf("the watch from %s on gets %s of %s", seen.ResourceVersion, obj.Name, obj.ResourceVersion)
			}
		})
	}
}

// oneEvent records a response, and calls enough after its first line.
type oneEvent struct {
	*httptest.ResponseRecorder
	enough func()
}

func (w *oneEvent) Write(p []byte) (int, error) {
	n, err := w.ResponseRecorder.Write(p)
	if w.enough != nil && bytes.ContainsRune(p, '\n') {
		w.enough()
	}
	return n, err
}

// k/k#59848. A client that has seen a revision gets nothing older, neither from a server that lags
// behind nor from one that has just started.
func TestRegressionTimeTravelAfterARestart(t *testing.T) {
	t.Parallel()
	ahead := newTestServer(t)
	store := storetest.Lag(ahead.cfg.Store)
	behind := newTestServer(t, func(c *Config) { c.Store = store })
	c := ahead.Client(auth.Component("tester"))
	made, err := client.Create(t.Context(), c, configMap("one"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Get[*corev1.ConfigMap](t.Context(), behind.Client(auth.Component("tester")), "default", "one"); err != nil {
		t.Fatal(err) // it has the first state
	}
	pass := store.Hold()
	defer pass()
	changed := made.DeepCopy()
	changed.Data["a"] = "2"
	if changed, err = client.Update(t.Context(), c, changed); err != nil {
		t.Fatal(err)
	}
	seen := changed.ResourceVersion
	requests := map[string]string{
		"get, no older":  "/one?resourceVersion=" + seen,
		"list, no older": "?resourceVersionMatch=NotOlderThan&resourceVersion=" + seen,
		"list, exactly":  "?resourceVersionMatch=Exact&resourceVersion=" + seen,
		"list, a page":   "?limit=1&resourceVersion=" + seen,
		"initial events": "?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&resourceVersion=" + seen,
		"get":            "/one?",
		"list":           "?",
	}
	ask := func(s *Server, query string) (int, string) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w := &oneEvent{ResponseRecorder: httptest.NewRecorder()}
		if strings.Contains(query, "watch=1") {
			w.enough = cancel
		}
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, defaultMaps+query, nil).WithContext(ctx))
		return w.Code, w.Body.String()
	}
	t.Run("behind", func(t *testing.T) {
		for name, query := range requests {
			t.Run(name, func(t *testing.T) {
				t.Parallel() // each waits a second
				if code, answer := ask(behind, query+"&timeout=1s"); code != http.StatusGatewayTimeout || strings.Contains(answer, `"a":"1"`) {
					t.Errorf("%d %s", code, answer)
				}
			})
		}
	})
	pass()
	known, err := client.Open[*corev1.ConfigMap](t.Context(), behind.Client(auth.Component("tester")), client.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	revision, err := strconv.ParseInt(seen, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if err := known.WaitFor(t.Context(), revision); err != nil {
		t.Fatal(err)
	}
	fresh := newTestServer(t, func(c *Config) { c.Store = storetest.Lag(ahead.cfg.Store) })
	requests["watch, what there is"] = "?watch=1"
	for who, s := range map[string]*Server{"caught up": behind, "just begun": fresh} {
		for name, query := range requests {
			t.Run(who+": "+name, func(t *testing.T) {
				if code, answer := ask(s, query); code != http.StatusOK || !strings.Contains(answer, `"a":"2"`) || strings.Contains(answer, `"a":"1"`) {
					t.Errorf("%d %s", code, answer)
				}
			})
		}
	}
}

// Otherwise a write that changes nothing in the stale state of a lagging server would be
// acknowledged and lost.
func TestRegressionLaggingServerWritesToTheNewestState(t *testing.T) {
	t.Parallel()
	ahead := newTestServer(t)
	store := storetest.Lag(ahead.cfg.Store)
	behind := newTestServer(t, func(c *Config) { c.Store = store })
	near, far := ahead.Client(auth.Component("tester")), behind.Client(auth.Component("tester"))
	made, err := client.Create(t.Context(), near, configMap("one"))
	if err != nil {
		t.Fatal(err)
	}
	held := configMap("two")
	held.Finalizers = []string{"example.com/hold"}
	if held, err = client.Create(t.Context(), near, held); err != nil {
		t.Fatal(err)
	}
	if err := client.Delete[*corev1.ConfigMap](t.Context(), near, "default", "two", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one", "two"} { // it has both
		if _, err := client.Get[*corev1.ConfigMap](t.Context(), far, "default", name); err != nil {
			t.Fatal(err)
		}
	}
	pass := store.Hold()
	defer pass()
	changed := made.DeepCopy()
	changed.Data["a"] = "2"
	if _, err = client.Update(t.Context(), near, changed); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Patch[*corev1.ConfigMap](t.Context(), near, "default", "two", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Patch[*corev1.ConfigMap](t.Context(), far, "default", "one", types.MergePatchType, []byte(`{"data":{"a":"1"}}`)); err != nil {
		t.Fatal(err)
	}
	if got, err := client.Get[*corev1.ConfigMap](t.Context(), near, "default", "one"); err != nil || got.Data["a"] != "1" {
		t.Errorf("after an acknowledged patch it is %v, %v", got, err)
	}
	if err := client.Delete[*corev1.ConfigMap](t.Context(), far, "default", "two", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the removed object (UID %s) is deleted again: %v", held.UID, err)
	}
}
