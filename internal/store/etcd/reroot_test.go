package etcd

import (
	"bytes"
	"testing"

	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/store/storetest"
)

func TestAStoreWithAnotherRootMeetsTheContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return store.Reroot(openHere(t), "/p", "/elsewhere/p") })
}

func openHere(t *testing.T) *Engine {
	t.Helper()
	e, err := Open(t.Context(), Options{DataDir: dataDir(t), UnsafeNoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestTwoRootsDoNotSeeEachOther(t *testing.T) {
	e := openHere(t)
	defer e.Close()
	first, second := store.Reroot(e, "/registry", "/registry"), store.Reroot(e, "/registry", "/clusters/b")
	seen, err := second.Watch(t.Context(), "/registry/", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer seen.Close()
	for value, s := range map[string]store.Store{"first": first, "second": second} {
		if _, err := s.Commit(t.Context(), []store.Condition{{Key: "/registry/pods/a"}}, store.Op{Key: "/registry/pods/a", Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
	}
	for value, s := range map[string]store.Store{"first": first, "second": second} {
		got, err := s.Range(t.Context(), "/registry/", store.RangeOptions{From: "/registry/pods"})
		if err != nil || len(got.KVs) != 1 || got.KVs[0].Key != "/registry/pods/a" || string(got.KVs[0].Value) != value {
			t.Errorf("the %s sees %v, %v", value, got.KVs, err)
		}
	}
	if kv, _, err := e.Get(t.Context(), "/clusters/b/pods/a", 0); err != nil || kv == nil || store.Stored(second, "/registry/pods/a") != kv.Key {
		t.Errorf("the second's key is stored as %v, %v", kv, err)
	}
	b, err := seen.Next(t.Context())
	if err != nil || len(b.Events) != 1 || b.Events[0].KV.Key != "/registry/pods/a" || string(b.Events[0].KV.Value) != "second" {
		t.Errorf("the second's watch tells %v, %v", b, err)
	}
	var out bytes.Buffer
	if err := second.(store.Snapshotter).Snapshot(t.Context(), &out); err != nil || out.Len() == 0 {
		t.Errorf("a snapshot of %d bytes, %v", out.Len(), err)
	}
	if res, err := second.Commit(t.Context(), []store.Condition{{Key: "/registry/pods/a"}}, store.Op{Key: "/registry/pods/a", Delete: true}); err != nil || res.Succeeded || res.Current[0].Key != "/registry/pods/a" {
		t.Errorf("a refused commit shows %v, %v", res, err)
	}
	if key := store.Stored(second, "/other"); key != "/other" {
		t.Errorf("a key beside the root is moved to %s", key)
	}
}
