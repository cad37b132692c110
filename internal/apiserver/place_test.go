package apiserver

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

// elsewhere gives a server a second store for the resources.
func elsewhere(t *testing.T, c *Config, resources ...schema.GroupResource) store.Store {
	t.Helper()
	db, err := etcd.Open(t.Context(), etcd.Options{DataDir: t.TempDir(), UnsafeNoSync: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	c.Places = append(c.Places, registry.Override{Store: db, Resources: resources})
	return db
}

func eventOf(name string) *corev1.Event {
	return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, InvolvedObject: corev1.ObjectReference{Namespace: "default", Name: "x"}}
}

// keysBelow returns the keys of a store.
func keysBelow(t *testing.T, db store.Store, prefix string) (keys []string) {
	t.Helper()
	res, err := db.Range(t.Context(), prefix, store.RangeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range res.KVs {
		keys = append(keys, res.KVs[i].Key)
	}
	return keys
}

func TestKindsInAStoreOfTheirOwn(t *testing.T) {
	var main, other store.Store
	s := newTestServer(t, func(c *Config) {
		main, other = c.Store, elsewhere(t, c, schema.GroupResource{Resource: "events"}, schema.GroupResource{Group: "apps", Resource: "*"})
	})
	ctx, c := t.Context(), s.Client(auth.Component("tester"))
	for range 20 { // so that the two stores have different revisions
		if _, err := other.Commit(ctx, nil, store.Op{Key: "/elsewhere", Value: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.Create(ctx, c, configMap("one")); err != nil {
		t.Fatal(err)
	}
	first, err := client.Create(ctx, c, eventOf("one"))
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewServer(s.Handler())
	t.Cleanup(ts.Close)
	if resp, list := fetch(t, ts.URL+"/api/v1/events"); strings.Count(list, `"name":"one"`) != 1 {
		t.Errorf("listed: %s %s", resp.Status, list)
	}
	if _, err := client.Create(ctx, c, eventOf("two")); err != nil {
		t.Fatal(err)
	}
	if _, seen := fetch(t, ts.URL+"/api/v1/events?watch=1&timeoutSeconds=1&resourceVersion="+first.ResourceVersion); strings.Count(seen, `"type":"ADDED"`) != 1 || !strings.Contains(seen, `"name":"two"`) {
		t.Errorf("watched: %s", seen)
	}
	first.Message = "changed"
	if first, err = client.Update(ctx, c, first); err != nil || first.Message != "changed" {
		t.Errorf("update: %v", err)
	}
	if shown, err := client.Get[*eventsv1.Event](ctx, c, "default", "one"); err != nil || shown.Note != "changed" {
		t.Errorf("in its other group: %+v, %v", shown, err)
	}
	if keys := keysBelow(t, main, "/registry/events/"); len(keys) != 0 {
		t.Errorf("in the main store: %v", keys)
	}
	if keys := keysBelow(t, other, "/registry/"); fmt.Sprint(keys) != "[/registry/events/default/one /registry/events/default/two]" {
		t.Errorf("in the other store: %v", keys)
	}
	if keys := keysBelow(t, main, "/registry/configmaps/"); len(keys) != 1 {
		t.Errorf("config maps: %v", keys)
	}
	if err := c.Delete(ctx, schema.GroupVersionResource{Version: "v1", Resource: "events"}, "default", "two", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if keys := keysBelow(t, other, "/registry/"); len(keys) != 1 {
		t.Errorf("after the deletion: %v", keys)
	}
}

func TestListsExpireWithTheirOwnStore(t *testing.T) {
	var other store.Store
	s := newTestServer(t, func(c *Config) { other = elsewhere(t, c, schema.GroupResource{Resource: "events"}) })
	ctx, c := t.Context(), s.Client(auth.Component("tester"))
	ts := httptest.NewServer(s.Handler())
	t.Cleanup(ts.Close)
	for _, name := range []string{"one", "two", "three"} {
		if _, err := client.Create(ctx, c, eventOf(name)); err != nil {
			t.Fatal(err)
		}
	}
	_, page := fetch(t, ts.URL+"/api/v1/namespaces/default/events?limit=1")
	_, token, _ := strings.Cut(page, `"continue":"`)
	token, _, _ = strings.Cut(token, `"`)
	if resp, body := fetch(t, ts.URL+"/api/v1/namespaces/default/events?limit=1&continue="+token); resp.StatusCode != http.StatusOK || !strings.Contains(body, `"name":"three"`) {
		t.Errorf("the second page: %s %s", resp.Status, body)
	}
	if _, err := client.Create(ctx, c, eventOf("four")); err != nil {
		t.Fatal(err)
	}
	revision, err := other.Revision(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Compact(ctx, revision); err != nil {
		t.Fatal(err)
	}
	s.shared.Places[1].Cache.Compacted(revision)
	if resp, body := fetch(t, ts.URL+"/api/v1/namespaces/default/events?limit=1&continue="+token); resp.StatusCode != http.StatusGone {
		t.Errorf("after the compaction: %s %s", resp.Status, body)
	}
}

func TestEventsInAnotherStoreExpire(t *testing.T) {
	var other store.Store
	s := newTestServer(t, func(c *Config) {
		other = elsewhere(t, c, schema.GroupResource{Resource: "events"})
		c.EventTTL = time.Hour
	})
	if _, err := client.Create(t.Context(), s.Client(auth.Component("tester")), eventOf("one")); err != nil {
		t.Fatal(err)
	}
	kv, _, err := other.Get(t.Context(), "/registry/events/default/one", 0)
	if err != nil || kv == nil || kv.Lease == 0 {
		t.Errorf("got %+v, %v", kv, err)
	}
}

// silentStore is a store that may not answer.
type silentStore struct {
	store.Store
	away atomic.Bool
}

func (d *silentStore) Revision(ctx context.Context) (int64, error) {
	if d.away.Load() {
		return 0, store.ErrUnavailable
	}
	return d.Store.Revision(ctx)
}

func TestHealthChecksEachStore(t *testing.T) {
	var other silentStore
	s := newTestServer(t, func(c *Config) {
		other.Store = elsewhere(t, c, schema.GroupResource{Resource: "events"})
		c.Places[0].Store = &other
	})
	ts := httptest.NewServer(s.Handler())
	t.Cleanup(ts.Close)
	ask := func(want int) {
		t.Helper()
		for _, at := range []string{"/healthz/etcd-override-0", "/readyz/etcd-override-0", "/readyz/etcd-override-readiness-0"} {
			if resp, body := fetch(t, ts.URL+at); resp.StatusCode != want {
				t.Errorf("%s: %s %s", at, resp.Status, body)
			}
		}
	}
	ask(http.StatusOK)
	if _, page := fetch(t, ts.URL+"/metrics"); !strings.Contains(page, `apiserver_storage_size_bytes{storage_cluster_id="etcd-1"}`) {
		t.Error("its size is missing")
	}
	if _, page := fetch(t, ts.URL+"/api/v1/componentstatuses"); !strings.Contains(page, `"name":"etcd-1"`) {
		t.Errorf("componentstatuses: %s", page)
	}
	other.away.Store(true)
	ask(http.StatusInternalServerError)
	// The server lives while a store is away: a restart would not help.
	for _, at := range []string{"/livez/etcd", "/livez/etcd-override-0"} {
		if resp, body := fetch(t, ts.URL+at); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %s", at, resp.Status, body)
		}
	}
}

func TestKindsThatCannotHaveTheirOwnStore(t *testing.T) {
	for given, want := range map[schema.GroupResource]string{
		{Resource: "services"}: "one transaction", {Resource: "*"}: "one transaction", {Group: "networking.k8s.io", Resource: "ipaddresses"}: "one transaction",
		{Group: "events.k8s.io", Resource: "events"}: "the same objects as /events: name that resource",
		{Group: "events.k8s.io", Resource: "*"}:      "the same objects as /events: name that resource",
		{Resource: "pod"}:                            "not a stored built-in kind", {Resource: "bindings"}: "not a stored built-in kind", {Group: "example.com", Resource: "*"}: "not a stored built-in kind",
	} {
		t.Run(given.String(), func(t *testing.T) {
			db, err := etcd.Open(t.Context(), etcd.Options{DataDir: t.TempDir(), UnsafeNoSync: true, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = db.Close() }()
			_, err = New(Config{Store: db, Places: []registry.Override{{Store: db, Resources: []schema.GroupResource{given}}}})
			if err == nil || !strings.Contains(err.Error(), "etcd-servers-overrides: "+given.Group+"/"+given.Resource+": ") || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v", err)
			}
		})
	}
}
