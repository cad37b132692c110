package cache

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/store"
)

// lossy is a store whose watches can be made to fail.
type lossy struct {
	store.Store
	mu      sync.Mutex
	streams []*lossyStream
}

type lossyStream struct {
	store.Stream
	broken context.Context // done once the watch has failed
	fail   context.CancelCauseFunc
}

func (l *lossy) Watch(ctx context.Context, prefix string, after int64) (store.Stream, error) {
	s, err := l.Store.Watch(ctx, prefix, after)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	ls := &lossyStream{Stream: s}
	ls.broken, ls.fail = context.WithCancelCause(context.Background())
	l.streams = append(l.streams, ls)
	return ls, nil
}

func (s *lossyStream) Next(ctx context.Context) (store.Batch, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.broken, func() { cancel(context.Cause(s.broken)) })()
	b, err := s.Stream.Next(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return b, cause
	}
	return b, err
}

// lose makes the newest watch fail with err.
func (l *lossy) lose(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.streams[len(l.streams)-1].fail(err)
}

func (l *lossy) watches() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.streams)
}

func (l *lossy) waitForWatch(t *testing.T, n int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); l.watches() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d watches were opened, want %d", l.watches(), n)
		}
	}
}

// ending returns the error that ends a cursor, or nil if it does not end.
func ending(t *testing.T, cur *Cursor) (err error) {
	t.Helper()
	for ctx := patient(t); err == nil && ctx.Err() == nil; {
		_, _, err = cur.Next(ctx)
	}
	return err
}

func TestABrokenWatchContinuesAtItsRevision(t *testing.T) {
	s := &lossy{Store: openStore(t)}
	k := openKind(t, openCache(t, s), pods)
	rev := write(t, s, pods, pod("a", "1", "", nil))
	wait(t, k, rev)
	c, err := k.Watch(rev, Interest{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := range 3 {
		s.lose(store.ErrUnavailable)
		rev = write(t, s, pods, pod("a", fmt.Sprint("during", i), "", nil))
		changes, _, err := c.Next(patient(t))
		if err != nil || len(changes) != 1 || changes[0].Revision != rev {
			t.Fatalf("got %+v, %v; want the change of revision %d alone", changes, err, rev)
		}
	}
}

func TestAWatchOvertakenByCompactionListsAgain(t *testing.T) {
	s := &lossy{Store: openStore(t)}
	c := openCache(t, s)
	k := openKind(t, c, pods)
	write(t, s, pods, pod("a", "1", "", nil))
	wait(t, k, write(t, s, pods, pod("a", "2", "", nil)))
	cur, err := k.Watch(k.Revision(), Interest{})
	if err != nil {
		t.Fatal(err)
	}
	s.lose(fmt.Errorf("test: %w", store.ErrCompacted))
	remove(t, s, pods, "a", "1")
	rev := write(t, s, pods, pod("a", "3", "", nil))
	if err := ending(t, cur); !errors.Is(err, ErrTooOld) {
		t.Errorf("a cursor over the gap got %v", err)
	}
	s.waitForWatch(t, 2)
	if got := names(wait(t, k, rev), pods+"/", ""); got != "a/2 a/3" {
		t.Errorf("got %q", got)
	}
	rev = write(t, s, pods, pod("a", "4", "", nil))
	if got := names(wait(t, k, rev), pods+"/", ""); got != "a/2 a/3 a/4" {
		t.Errorf("got %q", got)
	}
	if n := k.Opened(); n != 2 {
		t.Errorf("it was opened %d times, not twice", n)
	}
}

// slow is a lossy store whose lists wait for the test to choose their outcome.
type slow struct {
	lossy
	on    atomic.Bool
	began chan struct{}
	ends  chan error
}

func (s *slow) Range(ctx context.Context, prefix string, o store.RangeOptions) (store.RangeResult, error) {
	if s.on.Load() {
		s.began <- struct{}{}
		if err := <-s.ends; err != nil {
			return store.RangeResult{}, err
		}
	}
	return s.lossy.Range(ctx, prefix, o)
}

func newSlow(t *testing.T) *slow {
	return &slow{lossy: lossy{Store: openStore(t)}, began: make(chan struct{}, 10), ends: make(chan error)}
}

// relisting returns a kind with the pod a/1 that is being listed again. The list waits for s.ends,
// and its result arrives in listed. The cursor was opened before.
func relisting(t *testing.T) (s *slow, k *Kind, cur *Cursor, listed <-chan error) {
	t.Helper()
	s = newSlow(t)
	c := openCache(t, s)
	k = openKind(t, c, pods)
	wait(t, k, write(t, s, pods, pod("a", "1", "", nil)))
	cur, err := k.Watch(k.Revision(), Interest{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cur.Close)
	s.on.Store(true)
	outcome := make(chan error)
	go func() { outcome <- c.Relist(t.Context(), pods) }()
	<-s.began
	return s, k, cur, outcome
}

func TestAFailedListingBeforeAnotherLeavesNoGap(t *testing.T) {
	s, k, cur, failed := relisting(t)
	s.lose(fmt.Errorf("test: %w", store.ErrCompacted))
	s.waitForWatch(t, 2)
	remove(t, s, pods, "a", "1") // the new stream may or may not contain this deletion
	s.ends <- store.ErrUnavailable
	if err := <-failed; !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("the failing list returned %v", err)
	}
	<-s.began // the listing that the lost stream needs
	s.on.Store(false)
	s.ends <- nil
	if err := ending(t, cur); !errors.Is(err, ErrTooOld) {
		t.Errorf("a cursor over the gap got %v", err)
	}
	rev := write(t, s, pods, pod("a", "2", "", nil))
	if got := names(wait(t, k, rev), pods+"/", ""); got != "a/2" {
		t.Errorf("got %q", got)
	}
}

func TestACursorReadDuringARelistIsTooOld(t *testing.T) {
	k := openKind(t, openCache(t, openStore(t)), pods)
	wait(t, k, write(t, k.store, pods, pod("a", "1", "", nil)))
	for name, open := range map[string]func(*Snapshot) (*Cursor, error){
		"one that only tells changes":          func(from *Snapshot) (*Cursor, error) { return k.Watch(from.Revision(), Interest{}) },
		"one that records the delivered state": func(from *Snapshot) (*Cursor, error) { return k.Follow(from, Interest{}, false) },
	} {
		t.Run(name, func(t *testing.T) {
			from := k.Snapshot()
			cur, err := open(from)
			if err != nil {
				t.Fatal(err)
			}
			defer cur.Close()
			if _, _, err := cur.Poll(); err != nil {
				t.Fatal(err)
			}
			base, _ := cur.Delivered()
			k.mu.Lock()
			cur.signalled.Store(true)
			polled := make(chan error)
			go func() {
				_, _, err := cur.Poll()
				polled <- err
			}()
			for cur.signalled.Load() { // Poll resets it first
				runtime.Gosched()
			}
			// So that Poll is most likely waiting for the lock; the result must be right either
			// way.
			time.Sleep(10 * time.Millisecond)
			k.begin(newTree(), from.Revision())
			k.cursors.fail(ErrTooOld)
			k.mu.Unlock()
			if err := <-polled; !errors.Is(err, ErrTooOld) {
				t.Errorf("it got %v", err)
			}
			if after, since := cur.Delivered(); after != base || len(since) > 0 {
				t.Errorf("it says that it has delivered something else than before, and %v", since)
			}
		})
	}
}

func TestTrimmingDuringAnOpeningIsHarmless(t *testing.T) {
	s := newSlow(t)
	c := openCache(t, s)
	rev := write(t, s, pods, pod("a", "1", "", nil))
	s.on.Store(true)
	opened := make(chan *Kind)
	go func() {
		k, err := c.Kind(podSchema(pods))
		if err != nil {
			t.Error(err)
		}
		opened <- k
	}()
	<-s.began
	c.trim(time.Now())
	s.on.Store(false)
	s.ends <- nil
	if got := names(wait(t, <-opened, rev), pods+"/", ""); got != "a/1" {
		t.Errorf("got %q", got)
	}
}

func TestReadersSeeWritesWhileAKindIsListedAgain(t *testing.T) {
	for name, outcome := range map[string]error{"and the list fails": store.ErrUnavailable, "and the list succeeds": nil} {
		t.Run(name, func(t *testing.T) {
			s, k, cur, listed := relisting(t)
			rev := write(t, s, pods, pod("a", "2", "", nil))
			if got := names(wait(t, k, rev), pods+"/", ""); got != "a/1 a/2" {
				t.Errorf("while it is listed: %q", got)
			}
			changes, _, err := cur.Next(patient(t))
			if err != nil || len(changes) != 1 || changes[0].Revision != rev {
				t.Errorf("a watcher got %+v, %v", changes, err)
			}
			s.on.Store(false)
			s.ends <- outcome
			if err := <-listed; !errors.Is(err, outcome) {
				t.Fatal(err)
			}
			if _, _, err = cur.Poll(); errors.Is(err, ErrTooOld) != (outcome == nil) {
				t.Errorf("afterwards the watcher got %v", err)
			}
			rev = write(t, s, pods, pod("a", "3", "", nil))
			if got := names(wait(t, k, rev), pods+"/", ""); got != "a/1 a/2 a/3" {
				t.Errorf("afterwards: %q", got)
			}
		})
	}
}

func TestReadersSeeEveryWriteWhileOthersWriteAndWatch(t *testing.T) {
	const writers, writes = 4, 60
	s := openStore(t)
	k := openKind(t, openCache(t, s), pods)
	start := k.Revision()
	ctx := patient(t)
	var watchers, writing sync.WaitGroup
	counts, wanted := make([]int, 6), make([]int, 6)
	for i := range counts {
		interest := Interest{}
		if wanted[i] = writers * writes; i%2 == 1 {
			interest.Namespace, wanted[i] = fmt.Sprint("w", i%writers), writes
		}
		c, err := k.Watch(start, interest)
		if err != nil {
			t.Fatal(err)
		}
		watchers.Go(func() {
			defer c.Close()
			for last := start; counts[i] < wanted[i]; {
				changes, _, err := c.Next(ctx)
				if err != nil {
					return
				}
				for _, ch := range changes {
					if ch.Revision <= last {
						t.Errorf("watcher %d got a change of revision %d after one of %d", i, ch.Revision, last)
					}
					last = ch.Revision
				}
				counts[i] += len(changes)
			}
		})
	}
	for w := range writers {
		writing.Go(func() {
			ns := fmt.Sprint("w", w)
			for i := range writes {
				rev := write(t, s, pods, pod(ns, fmt.Sprint(i%7), fmt.Sprint(i), nil))
				snap := wait(t, k, rev)
				e, ok := snap.Get(pods + "/" + ns + "/" + fmt.Sprint(i%7))
				if !ok || e.Revision < rev {
					t.Errorf("write %d of %s is not shown", i, ns)
				}
				if at := start + rand.Int64N(rev-start); at > start {
					if old, err := k.At(ctx, at); err != nil || old.Revision() != at {
						t.Errorf("at %d: %v", at, err)
					}
				}
			}
		})
	}
	writing.Wait()
	watchers.Wait()
	for i, n := range counts {
		if n != wanted[i] {
			t.Errorf("watcher %d got %d changes, want %d", i, n, wanted[i])
		}
	}
}

func TestAFeedTurnsAListingIntoChanges(t *testing.T) {
	f := NewFeed()
	defer f.Close()
	fedPod := func(name, uid string, rev int64) FedObject {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
		return FedObject{Key: "/a/" + name, Revision: rev, Object: p, Header: Header{Namespace: "a", Name: name, UID: uid}}
	}
	f.Replace([]FedObject{fedPod("1", "u1", 3), fedPod("2", "u2", 4), fedPod("3", "u3", 5)}, 10)
	c, err := f.Watch(f.Revision(), Interest{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f.Put(fedPod("4", "u4", 11))
	f.Delete("/a/1", 12)
	f.Replace([]FedObject{fedPod("2", "u2", 4), fedPod("3", "u3b", 15), fedPod("5", "u5", 16)}, 20)
	// The server lost its data, so the newest state has an older revision.
	f.Replace([]FedObject{fedPod("2", "u2", 2)}, 9)
	got := ""
	for {
		changes, _, err := c.Poll()
		if err != nil {
			t.Fatal(err)
		}
		if len(changes) == 0 {
			break
		}
		for _, ch := range changes {
			got += fmt.Sprintf("%c%s@%d ", "AMD"[ch.Type], ch.Entry.Name, ch.Revision)
		}
	}
	if want := "A4@11 D1@12 D3@20 A3@20 A5@20 D4@20 M2@20 D3@20 D5@20 "; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := names(f.Snapshot(), "/", ""); got != "a/2" {
		t.Errorf("in the end %q", got)
	}
}

func TestOldStatesInTheLogAreDecodedAgain(t *testing.T) {
	s := openStore(t)
	k := openKind(t, openCache(t, s), pods)
	start := k.Revision()
	c, err := k.Watch(start, Interest{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var rev int64
	for i := range hotEvents + 10 {
		rev = write(t, s, pods, pod("a", "1", fmt.Sprint(i), nil))
	}
	wait(t, k, rev)
	k.mu.RLock()
	first, newest := k.log.at(k.log.first), k.log.at(k.log.next-1)
	k.mu.RUnlock()
	if first.new.object.Load() != nil {
		t.Error("the oldest state is still decoded")
	}
	if newest.old.object.Load() == nil || newest.new.object.Load() == nil {
		t.Error("the newest states are not decoded")
	}
	changes, _, err := c.Poll()
	if err != nil || len(changes) == 0 {
		t.Fatal(changes, err)
	}
	obj, err := changes[0].Entry.Object()
	if err != nil || obj.(*corev1.Pod).Spec.NodeName != "0" {
		t.Errorf("the first change came as %v, %v", obj, err)
	}
}

// compacting is a store that compacts all but the newest revision between the pages of a list.
type compacting struct{ store.Store }

func (c compacting) Range(ctx context.Context, prefix string, o store.RangeOptions) (store.RangeResult, error) {
	if o.From == "" {
		return c.Store.Range(ctx, prefix, o)
	}
	newer, err := c.Store.Commit(ctx, nil, store.Op{Key: "/else", Value: []byte("newer")})
	if err != nil {
		return store.RangeResult{}, err
	}
	if err := c.Store.Compact(ctx, newer.Revision); err != nil {
		return store.RangeResult{}, err
	}
	return c.Store.Range(ctx, prefix, o)
}

func TestAListingSurvivesACompactionBetweenPages(t *testing.T) {
	s := openStore(t)
	const pods = pageSize + 1
	for i := range pods {
		write(t, s, "/pods", pod("default", fmt.Sprintf("p-%04d", i), "", nil))
	}
	c := openCache(t, compacting{s})
	k := openKind(t, c, "/pods")
	for _, when := range []string{"opened", "listed again"} {
		if n := k.Snapshot().Len(); n != pods {
			t.Errorf("%s: %d pods, want %d", when, n, pods)
		}
		if err := c.Relist(patient(t), "/pods"); err != nil {
			t.Fatal(err)
		}
	}
}
