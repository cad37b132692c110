package lead_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/store/etcd"
	"github.com/knarr-project/knarr/internal/store/lead"
)

const key = "/registry/knarr/leaders/test"

// never is longer than any test: a test that passes with it has not waited for a lease.
const never = time.Hour

func open(t *testing.T) store.Store {
	t.Helper()
	e, err := etcd.Open(t.Context(), etcd.Options{DataDir: filepath.Join(t.TempDir(), "etcd"), UnsafeNoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return store.Fenced(e, 0)
}

// breakable is one candidate's connection to the store.
type breakable struct {
	store.Store
	broken atomic.Bool
}

func (b *breakable) err() error {
	if b.broken.Load() {
		return store.ErrUnavailable
	}
	return nil
}

func (b *breakable) Commit(ctx context.Context, c []store.Condition, ops ...store.Op) (store.TxnResult, error) {
	if err := b.err(); err != nil {
		return store.TxnResult{}, err
	}
	return b.Store.Commit(ctx, c, ops...)
}

func (b *breakable) Range(ctx context.Context, p string, o store.RangeOptions) (store.RangeResult, error) {
	if err := b.err(); err != nil {
		return store.RangeResult{}, err
	}
	return b.Store.Range(ctx, p, o)
}

func (b *breakable) Grant(ctx context.Context, ttl time.Duration) (store.LeaseID, error) {
	if err := b.err(); err != nil {
		return 0, err
	}
	return b.Store.Grant(ctx, ttl)
}

func (b *breakable) KeepAlive(ctx context.Context, id store.LeaseID) error {
	if err := b.err(); err != nil {
		return err
	}
	return b.Store.KeepAlive(ctx, id)
}

func (b *breakable) Revoke(ctx context.Context, id store.LeaseID) error {
	if err := b.err(); err != nil {
		return err
	}
	return b.Store.Revoke(ctx, id)
}

// runner runs a candidate.
type runner struct {
	*breakable
	lead.Candidate
	terms  chan *lead.Term // each term that begins
	ended  chan *lead.Term // each term that ends
	cancel context.CancelFunc
	done   chan error
}

func run(t *testing.T, s store.Store, name string, change ...func(*lead.Candidate)) *runner {
	t.Helper()
	r := &runner{breakable: &breakable{Store: s}, terms: make(chan *lead.Term, 1000), ended: make(chan *lead.Term, 1000), done: make(chan error, 1)}
	r.Candidate = lead.Candidate{
		Store: r.breakable, Key: key, TTL: never, Log: slog.New(slog.DiscardHandler),
		Self: lead.Holder{Name: name, Home: "home of " + name, Process: name + " " + fmt.Sprint(time.Now().UnixNano())},
	}
	for _, fn := range change {
		fn(&r.Candidate)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r.cancel = cancel
	go func() {
		r.done <- r.Run(ctx, func(ctx context.Context, term *lead.Term) error {
			r.terms <- term
			<-ctx.Done()
			r.ended <- term
			return nil
		})
	}()
	t.Cleanup(func() { r.stop(t) })
	return r
}

func (r *runner) stop(t *testing.T) {
	t.Helper()
	if r.cancel == nil {
		return
	}
	r.cancel()
	r.cancel = nil
	if err := <-r.done; err != nil {
		t.Error(err)
	}
}

func next(t *testing.T, of chan *lead.Term, what string) *lead.Term {
	t.Helper()
	select {
	case term := <-of:
		return term
	case <-time.After(time.Minute):
		t.Fatalf("%s: not within a minute", what)
		return nil
	}
}

func (r *runner) leads(t *testing.T) *lead.Term {
	t.Helper()
	return next(t, r.terms, r.Self.Name+" leads")
}

// waits fails the test if the candidate leads. A candidate that leads by mistake does so soon.
func (r *runner) waits(t *testing.T) {
	t.Helper()
	select {
	case <-r.terms:
		t.Fatalf("%s leads too", r.Self.Name)
	case <-time.After(50 * time.Millisecond):
	}
}

func write(t *testing.T, s store.Store, term *lead.Term) error {
	_, err := s.Commit(store.WithFence(t.Context(), term.Fence), nil, store.Op{Key: "/registry/x", Value: []byte(term.Name)})
	return err
}

func short(c *lead.Candidate) { c.TTL = 0 }

func TestALeaderThatStopsHandsOverAtOnce(t *testing.T) {
	s := open(t)
	a := run(t, s, "a")
	first := a.leads(t)
	b, c := run(t, s, "b"), run(t, s, "c")
	b.waits(t)
	c.waits(t)
	if err := write(t, s, first); err != nil {
		t.Fatal(err)
	}
	a.stop(t)
	var second *lead.Term
	select {
	case second = <-b.terms:
		c.waits(t)
	case second = <-c.terms:
		b.waits(t)
	case <-time.After(time.Minute):
		t.Fatal("nobody leads")
	}
	if second.Previous == nil || second.Previous.Name != "a" || second.Term <= first.Term || second.Revision <= first.Revision {
		t.Errorf("%+v follows %+v", second, first)
	}
	if err := write(t, s, first); !errors.Is(err, store.ErrFenced) {
		t.Errorf("the first leader still writes: %v", err)
	}
	if err := write(t, s, second); err != nil {
		t.Error(err)
	}
}

func TestALeaderWhoseStoreIsOutOfReachStopsAndIsReplaced(t *testing.T) {
	s := open(t)
	a := run(t, s, "a", short)
	first := a.leads(t)
	b := run(t, s, "b", short)
	b.waits(t)
	a.broken.Store(true)
	next(t, a.ended, "the term of a ends")
	second := b.leads(t)
	if err := write(t, s, first); !errors.Is(err, store.ErrFenced) {
		t.Errorf("the first leader still writes: %v", err)
	}
	a.broken.Store(false)
	b.stop(t)
	if third := a.leads(t); third.Revision <= second.Revision {
		t.Errorf("%+v follows %+v", third, second)
	}
}

// The paused leader notices nothing: not even its own clock ends its term.
func TestALeaderThatWasPausedWritesNothing(t *testing.T) {
	s := open(t)
	var paused atomic.Bool
	a := run(t, s, "a", short, func(c *lead.Candidate) { c.Alone = paused.Load })
	first := a.leads(t)
	b := run(t, s, "b", short)
	b.waits(t)
	paused.Store(true)
	a.broken.Store(true)
	second := b.leads(t)
	select {
	case <-a.ended:
		// The watch has told it already.
	default:
	}
	if err := write(t, s, first); !errors.Is(err, store.ErrFenced) {
		t.Errorf("the paused leader writes: %v", err)
	}
	if err := write(t, s, second); err != nil {
		t.Error(err)
	}
}

// The refused write itself ends the term, before any watch or lease.
func TestARefusedWriteEndsTheTerm(t *testing.T) {
	s := open(t)
	a := run(t, s, "a")
	first := a.leads(t)
	first.Fence.Lost()
	next(t, a.ended, "the term ends")
	if again := a.leads(t); again.Revision <= first.Revision {
		t.Errorf("%+v follows %+v", again, first)
	}
}

func TestTheNextProcessOfAHomeDoesNotWait(t *testing.T) {
	s := open(t)
	a := run(t, s, "a")
	a.leads(t)
	a.broken.Store(true) // it dies without handing over
	a.stop(t)
	b := run(t, s, "b")
	b.waits(t)
	again := run(t, s, "a")
	again.leads(t)
	b.waits(t)
}

func TestACandidateThatIsAloneDoesNotWait(t *testing.T) {
	s := open(t)
	a := run(t, s, "a")
	a.leads(t)
	a.broken.Store(true)
	a.stop(t)
	run(t, s, "b", func(c *lead.Candidate) { c.Alone = func() bool { return true } }).leads(t)
}

// Such as a slow disk: the lease expires, and there is no other candidate.
func TestATermOutlivesALeaseThatNobodyMisses(t *testing.T) {
	s := open(t)
	a := run(t, s, "a", short, func(c *lead.Candidate) { c.Alone = func() bool { return true } })
	term := a.leads(t)
	lease := func() store.LeaseID {
		kv, _, err := s.Get(t.Context(), key+"/holder", 0)
		if err != nil {
			t.Fatal(err)
		}
		if kv == nil {
			return 0
		}
		return kv.Lease
	}
	old := lease()
	if err := s.Revoke(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); lease() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("there is no new lease")
		}
	}
	if err := write(t, s, term); err != nil {
		t.Error(err)
	}
	select {
	case <-a.ended:
		t.Error("the term has ended")
	default:
	}
}

func TestATermIsKnownInFurtherStores(t *testing.T) {
	s := open(t)
	e, err := etcd.Open(t.Context(), etcd.Options{DataDir: filepath.Join(t.TempDir(), "etcd"), UnsafeNoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	place := store.Fenced(e, 1)
	both := func(c *lead.Candidate) { c.Places = []store.Store{place} }
	a := run(t, s, "a", both)
	first := a.leads(t)
	if err := write(t, place, first); err != nil {
		t.Fatal(err)
	}
	b := run(t, s, "b", both)
	a.stop(t)
	second := b.leads(t)
	if err := write(t, place, first); !errors.Is(err, store.ErrFenced) {
		t.Errorf("the first leader still writes: %v", err)
	}
	if err := write(t, place, second); err != nil {
		t.Error(err)
	}
}

func TestAFailureOfTheLedPartEndsRunAndHandsOver(t *testing.T) {
	s := open(t)
	broken := errors.New("broken")
	c := lead.Candidate{Store: s, Key: key, TTL: never, Self: lead.Holder{Name: "a", Home: "a", Process: "a"}}
	if err := c.Run(t.Context(), func(context.Context, *lead.Term) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	run(t, s, "b").leads(t)
}

// When others join the store, they must not wait for the long lease of a leader that was alone.
func TestALeaderThatIsNotAloneAnyMoreHasAShortLease(t *testing.T) {
	s := open(t)
	var alone atomic.Bool
	alone.Store(true)
	a := run(t, s, "a", short, func(c *lead.Candidate) { c.Alone, c.AloneTTL = alone.Load, never })
	a.leads(t)
	kv, _, err := s.Get(t.Context(), key+"/holder", 0)
	if err != nil || kv == nil {
		t.Fatal(kv, err)
	}
	alone.Store(false)
	b := run(t, s, "b", short)
	b.waits(t)
	for deadline, old := time.Now().Add(time.Minute), kv.Lease; kv == nil || kv.Lease == old; time.Sleep(10 * time.Millisecond) {
		if kv, _, err = s.Get(t.Context(), key+"/holder", 0); err != nil || time.Now().After(deadline) {
			t.Fatalf("the lease is the same: %v", err)
		}
	}
	a.broken.Store(true)
	b.leads(t)
}
