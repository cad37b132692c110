package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/store"
)

func watchOrder(t *testing.T, s store.Store) {
	w := watch(t, s, "/p/", 0)
	one := put(t, s, "/p/a", "1")
	two := put(t, s, "/p/a", "2")
	r, err := s.Commit(ctx(t), nil, store.Op{Key: "/p/b", Value: []byte("3")}, store.Op{Key: "/p/c", Value: []byte("3")},
		store.Op{Key: "/p/a", Delete: true})
	if err != nil {
		t.Fatal(err)
	}
	three := r.Revision
	four := put(t, s, "/p/a", "4")

	got := collect(t, w, four)
	want := []string{
		fmt.Sprint("put /p/a 1 ", one, " ", one), fmt.Sprint("put /p/a 2 ", one, " ", two),
		fmt.Sprint("put /p/b 3 ", three, " ", three), fmt.Sprint("put /p/c 3 ", three, " ", three), fmt.Sprint("deleted /p/a ", three),
		fmt.Sprint("put /p/a 4 ", four, " ", four),
	}
	if len(got) != len(want) {
		t.Fatalf("%d events, want %d: %+v", len(got), len(want), got)
	}
	for i, e := range got {
		text := fmt.Sprint("put ", e.KV.Key, " ", string(e.KV.Value), " ", e.KV.CreateRevision, " ", e.KV.ModRevision)
		if e.Type == store.Deleted {
			text = fmt.Sprint("deleted ", e.KV.Key, " ", e.KV.ModRevision)
		}
		if text != want[i] {
			t.Errorf("event %d is %q, want %q", i, text, want[i])
		}
	}
}

func watchFromPast(t *testing.T, s store.Store) {
	const before, during = 1500, 300 // more than one answer of an engine holds
	start := put(t, s, "/p/start", "")
	for i := range before {
		put(t, s, fmt.Sprint("/p/", i), "")
	}
	w := watch(t, s, "/p/", start)
	last := make(chan int64, 1)
	go func() {
		var rev int64
		for i := range during {
			r, err := s.Commit(ctx(t), nil, store.Op{Key: fmt.Sprint("/p/more/", i)})
			if err != nil {
				t.Error(err)
			}
			rev = r.Revision
		}
		last <- rev
	}()
	got := collect(t, w, start+before+during)
	if rev := <-last; rev != start+before+during {
		t.Fatalf("the last write has revision %d, want %d", rev, start+before+during)
	}
	for i, e := range got {
		if e.KV.ModRevision != start+1+int64(i) {
			t.Fatalf("event %d has revision %d, want %d", i, e.KV.ModRevision, start+1+int64(i))
		}
	}
}

func watchFromNow(t *testing.T, s store.Store) {
	put(t, s, "/p/before", "")
	for i := range 50 {
		w := watch(t, s, "/p/", 0)
		rev := put(t, s, fmt.Sprint("/p/", i), "")
		got := collect(t, w, rev)
		if len(got) != 1 || got[0].KV.ModRevision != rev {
			t.Fatalf("got %+v, want the write of revision %d alone", got, rev)
		}
		w.Close()
	}
}

func watchPrefix(t *testing.T, s store.Store) {
	w := watch(t, s, "/p/", 0)
	put(t, s, "/o/1", "")
	put(t, s, "/p", "")
	one := put(t, s, "/p/1", "")
	put(t, s, "/p0", "")
	two := put(t, s, "/p/2", "")
	got := collect(t, w, two)
	if len(got) != 2 || got[0].KV.ModRevision != one || got[1].KV.ModRevision != two {
		t.Errorf("got %+v", got)
	}
}

func watchCompacted(t *testing.T, s store.Store) {
	one := put(t, s, "/p/1", "1")
	put(t, s, "/p/1", "2")
	three := put(t, s, "/p/1", "3")
	put(t, s, "/p/1", "4")
	if err := s.Compact(ctx(t), three); err != nil {
		t.Fatal(err)
	}
	w := watch(t, s, "/p/", one-1)
	if b, err := w.Next(ctx(t)); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("got %+v, %v; want ErrCompacted", b, err)
	}
	w = watch(t, s, "/p/", three)
	if got := collect(t, w, three+1); len(got) != 1 || string(got[0].KV.Value) != "4" {
		t.Errorf("from the compaction's revision on: %+v", got)
	}
}

func slowWatch(t *testing.T, s store.Store) {
	const n = 600
	w := watch(t, s, "/p/", 0)
	var first, last int64
	for i := range n {
		last = put(t, s, "/p/k", fmt.Sprint(i))
		if i == 0 {
			first = last
		}
	}
	got := collect(t, w, last)
	if len(got) != n {
		t.Fatalf("%d events, want %d", len(got), n)
	}
	for i, e := range got {
		if e.KV.ModRevision != first+int64(i) || string(e.KV.Value) != fmt.Sprint(i) {
			t.Fatalf("event %d: %+v", i, e)
		}
	}
	// The stream is up to date again.
	rev := put(t, s, "/p/k", "end")
	if got := collect(t, w, rev); len(got) != 1 {
		t.Errorf("got %+v", got)
	}
}

func progress(t *testing.T, s store.Store) {
	w := watch(t, s, "/p/", 0)
	put(t, s, "/p/1", "")
	rev := put(t, s, "/elsewhere", "")
	seen := 0
	deadline := time.Now().Add(time.Minute)
	for at := int64(0); at < rev; {
		if time.Now().After(deadline) {
			t.Fatalf("progress reached %d, want %d", at, rev)
		}
		if err := w.Progress(ctx(t)); err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(ctx(t), 200*time.Millisecond)
		b, err := w.Next(short)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		seen += len(b.Events)
		at = b.Revision
	}
	if seen != 1 {
		t.Errorf("progress overtook events: %d of 1 seen", seen)
	}
}

func closeStream(t *testing.T, s store.Store) {
	w := watch(t, s, "/p/", 0)
	done := make(chan error, 1)
	go func() {
		_, err := w.Next(ctx(t))
		done <- err
	}()
	time.Sleep(20 * time.Millisecond)
	w.Close()
	select {
	case err := <-done:
		if err == nil {
			t.Error("a closed stream gave a batch")
		}
	case <-time.After(time.Minute):
		t.Error("Next does not return after Close")
	}
	w.Close()
}

func nextContext(t *testing.T, s store.Store) {
	w := watch(t, s, "/p/", 0)
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if b, err := w.Next(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %+v, %v", b, err)
	}
	// The stream still works.
	rev := put(t, s, "/p/1", "")
	if got := collect(t, w, rev); len(got) != 1 {
		t.Errorf("got %+v", got)
	}
}

func readAfterWatch(t *testing.T, s store.Store) {
	const writes = 300
	w := watch(t, s, "/p/", 0)
	c := ctx(t)
	go func() {
		for i := range writes {
			if _, err := s.Commit(c, nil, store.Op{Key: "/p/a", Value: []byte{byte(i)}}); err != nil {
				return // the reader waits for this write in vain and fails
			}
		}
	}()
	for seen := 0; seen < writes; {
		b, err := w.Next(c)
		if err != nil {
			t.Fatalf("after %d changes: %v", seen, err)
		}
		seen += len(b.Events)
		if kv := get(t, s, "/p/a", 0); b.Revision > 0 && len(b.Events) > 0 && (kv == nil || kv.ModRevision < b.Revision) {
			t.Fatalf("the watch was at revision %d, a read shows %+v", b.Revision, kv)
		}
	}
}
