// Package storetest is the conformance suite of the store contract. Every engine runs it. It also
// has a store that delays changes, for tests of readers that are behind (Lag).
package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/store"
)

// Run tests the contract. open returns an empty store, which the test closes; Run calls it once per
// test.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	tests := []struct {
		name string
		test func(t *testing.T, s store.Store)
	}{
		{"a key that was never written does not exist", neverWritten},
		{"a commit applies only if every condition holds", compareAndSwap},
		{"a failed commit changes nothing and shows the current state", failedCommit},
		{"concurrent writers of one key do not lose an update", noLostUpdate},
		{"all writes of a commit have its revision", atomicity},
		{"an empty commit reads its conditions", emptyCommit},
		{"a range honours prefix, limit, from, and counts", ranges},
		{"reads at a revision show exactly that revision", exactRevision},
		{"a page continues at the revision of the first page", pagination},
		{"reading the future fails", future},
		{"reading a compacted revision fails", compaction},
		{"a watch delivers every change once, in order, whole revisions", watchOrder},
		{"a watch from a past revision is gap-free during writes", watchFromPast},
		{"a watch from now sees every commit after it returned", watchFromNow},
		{"a watch delivers only its prefix", watchPrefix},
		{"a watch from before a compaction fails", watchCompacted},
		{"a slow watch loses nothing", slowWatch},
		{"progress brings a stream to the newest revision", progress},
		{"a closed stream ends", closeStream},
		{"a waiting Next ends with its context", nextContext},
		{"a read shows at least what a watch has delivered", readAfterWatch},
		{"an expired lease deletes its keys", leaseExpires},
		{"a renewed lease stays", leaseKeptAlive},
		{"a revoked lease deletes its keys", leaseRevoked},
		{"a value of many bytes comes back", bigValue},
		{"a transaction that is too large is refused", tooLarge},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := open(t)
			defer s.Close()
			tt.test(t, s)
		})
	}
}

func ctx(t *testing.T) context.Context {
	c, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return c
}

// put writes a key unconditionally and returns the revision.
func put(t *testing.T, s store.Store, key, value string) int64 {
	t.Helper()
	r, err := s.Commit(ctx(t), nil, store.Op{Key: key, Value: []byte(value)})
	if err != nil || !r.Succeeded {
		t.Fatalf("put %s: %+v, %v", key, r, err)
	}
	return r.Revision
}

func del(t *testing.T, s store.Store, key string) int64 {
	t.Helper()
	r, err := s.Commit(ctx(t), nil, store.Op{Key: key, Delete: true})
	if err != nil || !r.Succeeded {
		t.Fatalf("delete %s: %+v, %v", key, r, err)
	}
	return r.Revision
}

func get(t *testing.T, s store.Store, key string, rev int64) *store.KeyValue {
	t.Helper()
	kv, _, err := s.Get(ctx(t), key, rev)
	if err != nil {
		t.Fatalf("get %s at %d: %v", key, rev, err)
	}
	return kv
}

func rng(t *testing.T, s store.Store, prefix string, o store.RangeOptions) store.RangeResult {
	t.Helper()
	r, err := s.Range(ctx(t), prefix, o)
	if err != nil {
		t.Fatalf("range %s %+v: %v", prefix, o, err)
	}
	return r
}

func watch(t *testing.T, s store.Store, prefix string, after int64) store.Stream {
	t.Helper()
	w, err := s.Watch(ctx(t), prefix, after)
	if err != nil {
		t.Fatalf("watch %s after %d: %v", prefix, after, err)
	}
	t.Cleanup(w.Close)
	return w
}

// collect reads events up to the revision, and checks that batches are ordered and revisions whole.
func collect(t *testing.T, w store.Stream, upTo int64) []store.Event {
	t.Helper()
	var out []store.Event
	var last int64
	for last < upTo {
		b, err := w.Next(ctx(t))
		if err != nil {
			t.Fatalf("next after %d events at revision %d: %v", len(out), last, err)
		}
		for i, e := range b.Events {
			if e.KV.ModRevision <= last && i == 0 {
				t.Fatalf("a batch begins at revision %d although everything up to %d was delivered", e.KV.ModRevision, last)
			}
			if i > 0 && e.KV.ModRevision < b.Events[i-1].KV.ModRevision {
				t.Fatalf("revision %d came after %d", e.KV.ModRevision, b.Events[i-1].KV.ModRevision)
			}
			if e.KV.ModRevision > b.Revision {
				t.Fatalf("an event of revision %d in a batch of revision %d", e.KV.ModRevision, b.Revision)
			}
		}
		if b.Revision < last {
			t.Fatalf("a batch of revision %d after one of %d", b.Revision, last)
		}
		last = b.Revision
		out = append(out, b.Events...)
	}
	return out
}

func neverWritten(t *testing.T, s store.Store) {
	before, err := s.Revision(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	kv, rev, err := s.Get(ctx(t), "/nothing", 0)
	if kv != nil || err != nil {
		t.Errorf("got %+v, %v; want nil, nil", kv, err)
	}
	if rev < before || rev == 0 {
		t.Errorf("read at revision %d, the newest before was %d", rev, before)
	}
}

func compareAndSwap(t *testing.T, s store.Store) {
	create := func(rev int64, value string) store.TxnResult {
		r, err := s.Commit(ctx(t), []store.Condition{{Key: "/k", ModRevision: rev}}, store.Op{Key: "/k", Value: []byte(value)})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := create(0, "one")
	if !first.Succeeded {
		t.Fatal("a create of a missing key failed")
	}
	if r := create(0, "two"); r.Succeeded {
		t.Error("a create of an existing key succeeded")
	}
	second := create(first.Revision, "two")
	if !second.Succeeded || second.Revision <= first.Revision {
		t.Errorf("an update at the right revision: %+v", second)
	}
	if r := create(first.Revision, "three"); r.Succeeded {
		t.Error("an update at an old revision succeeded")
	}
	kv := get(t, s, "/k", 0)
	if string(kv.Value) != "two" || kv.CreateRevision != first.Revision || kv.ModRevision != second.Revision {
		t.Errorf("got %+v", kv)
	}
	if now, err := s.Revision(ctx(t)); err != nil || now != second.Revision {
		t.Errorf("the newest revision is %d, %v; want %d", now, err, second.Revision)
	}
	both, err := s.Commit(ctx(t), []store.Condition{{Key: "/k", ModRevision: second.Revision}, {Key: "/other", ModRevision: 5}},
		store.Op{Key: "/k", Delete: true})
	if err != nil || both.Succeeded {
		t.Errorf("a commit with one of two conditions broken: %+v, %v", both, err)
	}
}

func failedCommit(t *testing.T, s store.Store) {
	at := put(t, s, "/a", "1")
	r, err := s.Commit(ctx(t), []store.Condition{{Key: "/a", ModRevision: at + 7}, {Key: "/b"}}, store.Op{Key: "/a", Value: []byte("2")},
		store.Op{Key: "/b", Value: []byte("2")})
	if err != nil || r.Succeeded {
		t.Fatalf("got %+v, %v", r, err)
	}
	if len(r.Current) != 2 || r.Current[0] == nil || r.Current[0].ModRevision != at || string(r.Current[0].Value) != "1" || r.Current[1] != nil {
		t.Errorf("current state: %+v", r.Current)
	}
	if now, _ := s.Revision(ctx(t)); now != at || r.Revision != at {
		t.Errorf("revision went from %d to %d (the result says %d)", at, now, r.Revision)
	}
	if get(t, s, "/b", 0) != nil {
		t.Error("an operation of a failed commit was applied")
	}
}

func noLostUpdate(t *testing.T, s store.Store) {
	const writers, each = 8, 20
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				for {
					kv, _, err := s.Get(ctx(t), "/counter", 0)
					if err != nil {
						t.Error(err)
						return
					}
					var n int
					var rev int64
					if kv != nil {
						fmt.Sscan(string(kv.Value), &n)
						rev = kv.ModRevision
					}
					r, err := s.Commit(ctx(t), []store.Condition{{Key: "/counter", ModRevision: rev}},
						store.Op{Key: "/counter", Value: fmt.Append(nil, n+1)})
					if err != nil {
						t.Error(err)
						return
					}
					if r.Succeeded {
						break
					}
				}
			}
		})
	}
	wg.Wait()
	if kv := get(t, s, "/counter", 0); string(kv.Value) != fmt.Sprint(writers*each) {
		t.Errorf("%d increments made %s", writers*each, kv.Value)
	}
}

func atomicity(t *testing.T, s store.Store) {
	put(t, s, "/gone", "x")
	r, err := s.Commit(ctx(t), nil, store.Op{Key: "/a", Value: []byte("1")}, store.Op{Key: "/b", Value: []byte("2")},
		store.Op{Key: "/gone", Delete: true})
	if err != nil || !r.Succeeded {
		t.Fatal(r, err)
	}
	for _, k := range []string{"/a", "/b"} {
		if kv := get(t, s, k, 0); kv == nil || kv.ModRevision != r.Revision {
			t.Errorf("%s: %+v, want revision %d", k, kv, r.Revision)
		}
	}
	if get(t, s, "/gone", 0) != nil {
		t.Error("/gone is still there")
	}
	if get(t, s, "/gone", r.Revision-1) == nil {
		t.Error("/gone was not there a revision before")
	}
}

func emptyCommit(t *testing.T, s store.Store) {
	at := put(t, s, "/a", "1")
	r, err := s.Commit(ctx(t), []store.Condition{{Key: "/a", ModRevision: at}})
	if err != nil || !r.Succeeded || r.Revision != at {
		t.Errorf("a check that holds: %+v, %v", r, err)
	}
	r, err = s.Commit(ctx(t), []store.Condition{{Key: "/a"}})
	if err != nil || r.Succeeded {
		t.Errorf("a check that does not hold: %+v, %v", r, err)
	}
}

func exactRevision(t *testing.T, s store.Store) {
	one := put(t, s, "/k", "1")
	two := put(t, s, "/k", "2")
	three := del(t, s, "/k")
	four := put(t, s, "/k", "4")
	for rev, want := range map[int64]string{one: "1", two: "2", four: "4"} {
		kv, at, err := s.Get(ctx(t), "/k", rev)
		if err != nil || kv == nil || string(kv.Value) != want || at != rev {
			t.Errorf("at %d: %+v, read at %d, %v; want %q", rev, kv, at, err, want)
		}
		if r := rng(t, s, "/k", store.RangeOptions{Revision: rev}); len(r.KVs) != 1 || string(r.KVs[0].Value) != want || r.Revision != rev {
			t.Errorf("range at %d: %+v", rev, r)
		}
	}
	if get(t, s, "/k", three) != nil {
		t.Error("it exists at the revision of its deletion")
	}
	if kv := get(t, s, "/k", 0); kv.CreateRevision != four {
		t.Errorf("created again at %d, says %d", four, kv.CreateRevision)
	}
}

func future(t *testing.T, s store.Store) {
	at := put(t, s, "/k", "1")
	if _, _, err := s.Get(ctx(t), "/k", at+1); !errors.Is(err, store.ErrFutureRevision) {
		t.Errorf("get: %v", err)
	}
	if _, err := s.Range(ctx(t), "/", store.RangeOptions{Revision: at + 100}); !errors.Is(err, store.ErrFutureRevision) {
		t.Errorf("range: %v", err)
	}
}

func compaction(t *testing.T, s store.Store) {
	one := put(t, s, "/k", "1")
	two := put(t, s, "/k", "2")
	three := put(t, s, "/k", "3")
	if err := s.Compact(ctx(t), two); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Get(ctx(t), "/k", one); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("get: %v", err)
	}
	if _, err := s.Range(ctx(t), "/", store.RangeOptions{Revision: one}); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("range: %v", err)
	}
	if kv := get(t, s, "/k", two); kv == nil || string(kv.Value) != "2" {
		t.Errorf("at the compaction's revision: %+v", kv)
	}
	if kv := get(t, s, "/k", three); kv == nil || string(kv.Value) != "3" {
		t.Errorf("after the compaction: %+v", kv)
	}
	if err := s.Compact(ctx(t), one); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("compacting again to an older revision: %v", err)
	}
	if err := s.Compact(ctx(t), three+10); !errors.Is(err, store.ErrFutureRevision) {
		t.Errorf("compacting the future: %v", err)
	}
}

func bigValue(t *testing.T, s store.Store) {
	v := make([]byte, 1<<20)
	for i := range v {
		v[i] = byte(i)
	}
	put(t, s, "/big", string(v))
	if kv := get(t, s, "/big", 0); string(kv.Value) != string(v) {
		t.Error("it came back otherwise")
	}
	put(t, s, "/empty", "")
	if kv := get(t, s, "/empty", 0); kv == nil || len(kv.Value) != 0 {
		t.Errorf("an empty value came back as %+v", kv)
	}
}

func tooLarge(t *testing.T, s store.Store) {
	_, err := s.Commit(ctx(t), nil, store.Op{Key: "/big", Value: make([]byte, 2<<20)})
	if !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("2 MiB: %v", err)
	}
	put(t, s, "/k", "still works")
}
