package etcd

import (
	"errors"
	"testing"

	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/store/storetest"
)

func TestAStoreThatHonoursFencesMeetsTheContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return store.Fenced(openHere(t), 0) })
}

func TestAFencedWriteNeedsItsTerm(t *testing.T) {
	stores := map[string]func(t *testing.T) store.Store{
		"embedded": func(t *testing.T) store.Store { return openHere(t) },
		"embedded, with another root": func(t *testing.T) store.Store {
			return store.Reroot(openHere(t), "/registry", "/elsewhere")
		},
		"outside etcd": func(t *testing.T) store.Store {
			r, err := Connect(t.Context(), RemoteOptions{Endpoints: []string{startEtcd(t)}})
			if err != nil {
				t.Fatal(err)
			}
			return r
		},
	}
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			under := open(t)
			t.Cleanup(func() { under.Close() })
			testFence(t, store.Fenced(under, 0))
		})
	}
}

const termKey, fencedKey = "/registry/knarr/term", "/registry/pods/a"

func testFence(t *testing.T, s store.Store) {
	put := func(key string) int64 {
		t.Helper()
		res, err := s.Commit(t.Context(), nil, store.Op{Key: key, Value: []byte("v")})
		if err != nil || !res.Succeeded {
			t.Fatal(res, err)
		}
		return res.Revision
	}
	lost := 0
	f := &store.Fence{
		Conditions: []store.Condition{{Key: termKey, ModRevision: put(termKey)}}, Lost: func() { lost++ },
	}
	ctx := store.WithFence(t.Context(), f)
	op := store.Op{Key: fencedKey, Value: []byte("fenced")}

	res, err := s.Commit(ctx, []store.Condition{{Key: fencedKey}}, op)
	if err != nil || !res.Succeeded {
		t.Fatalf("a write within the term: %+v, %v", res, err)
	}
	first := res.Revision
	res, err = s.Commit(ctx, []store.Condition{{Key: fencedKey}, {Key: "/registry/none"}}, op)
	if err != nil || res.Succeeded || len(res.Current) != 2 || res.Current[0].ModRevision != first || res.Current[1] != nil {
		t.Fatalf("a write whose ordinary condition does not hold: %+v, %v", res, err)
	}
	if err := f.Check(t.Context(), s, 0); err != nil || lost != 0 {
		t.Fatalf("the term holds: %v, lost %d times", err, lost)
	}

	put(termKey) // the next term
	if _, err := s.Commit(ctx, []store.Condition{{Key: fencedKey, ModRevision: first}}, op); !errors.Is(err, store.ErrFenced) || lost != 1 {
		t.Errorf("a write after the term: %v, lost %d times", err, lost)
	}
	if _, err := s.Commit(ctx, []store.Condition{{Key: fencedKey}}, op); !errors.Is(err, store.ErrFenced) {
		t.Errorf("a write after the term, whose ordinary condition does not hold either: %v", err)
	}
	if _, err := s.Commit(ctx, nil, store.Op{Key: fencedKey, Delete: true}); !errors.Is(err, store.ErrFenced) {
		t.Errorf("a deletion after the term: %v", err)
	}
	if err := f.Check(t.Context(), s, 0); !errors.Is(err, store.ErrFenced) {
		t.Errorf("a check after the term: %v", err)
	}
	if _, err := s.Commit(t.Context(), nil, store.Op{Key: termKey, Delete: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(ctx, nil, op); !errors.Is(err, store.ErrFenced) {
		t.Errorf("a write when the term's key is gone: %v", err)
	}
	kv, _, err := s.Get(t.Context(), fencedKey, 0)
	if err != nil || kv == nil || kv.ModRevision != first {
		t.Errorf("a write after the term was committed: %+v, %v", kv, err)
	}
	if _, err := store.Fenced(s, 1).Commit(ctx, nil, op); err == nil {
		t.Error("a write was committed in a place for which the fence has no condition")
	}
}
