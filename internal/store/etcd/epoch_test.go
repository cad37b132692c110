package etcd

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/knarr-project/knarr/internal/store"
)

// counter increases a number in the store. No other writer has its key, so a condition that does
// not hold means that a write was made twice, or without an answer.
type counter struct {
	key      string
	n        int
	revision int64
}

func (c *counter) increase(ctx context.Context, e *Engine) error {
	next := strconv.Itoa(c.n + 1)
	r, err := e.Commit(ctx, []store.Condition{{Key: c.key, ModRevision: c.revision}}, store.Op{Key: c.key, Value: []byte(next)})
	if err != nil {
		return fmt.Errorf("%s: write %s: %w", c.key, next, err)
	}
	if !r.Succeeded {
		return fmt.Errorf("%s: write %s: the key is %+v, want revision %d", c.key, next, r.Current[0], c.revision)
	}
	c.n, c.revision = c.n+1, r.Revision
	return nil
}

// whileCounting runs a counter at each member meanwhile, and reports failed writes.
func whileCounting(t *testing.T, members []*Engine, do func()) []*counter {
	t.Helper()
	var all []*counter
	var group sync.WaitGroup
	var ended atomic.Bool
	for i, e := range members {
		for j := range 4 {
			c := &counter{key: fmt.Sprintf("/count/%d-%d", i, j)}
			all = append(all, c)
			group.Go(func() {
				for !ended.Load() {
					if err := c.increase(t.Context(), e); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	do()
	ended.Store(true)
	group.Wait()
	return all
}

func leaderOf(t *testing.T, members []*Engine) (leader *Engine, others []*Engine) {
	t.Helper()
	eventually(t, "a leader", func() error {
		leader, others = nil, nil
		for _, e := range members {
			if e.server.Leader() == e.server.MemberID() {
				leader = e
			} else {
				others = append(others, e)
			}
		}
		if leader == nil || len(others) != len(members)-1 {
			return fmt.Errorf("none of %d members leads alone", len(members))
		}
		return nil
	})
	return leader, others
}

func TestNoWriteFailsWhileTheLeaderHandsOver(t *testing.T) {
	t.Parallel()
	a, b, c := three(t)
	all := []*Engine{a, b, c}
	counters := whileCounting(t, all, func() {
		for range 10 {
			leader, _ := leaderOf(t, all)
			if err := leader.HandOver(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
	for _, c := range counters {
		sees(t, a, c.key, strconv.Itoa(c.n))
	}
}

func TestNoWriteOfOthersFailsWhenTheLeaderEnds(t *testing.T) {
	t.Parallel()
	a, b, c := three(t)
	leader, others := leaderOf(t, []*Engine{a, b, c})
	counters := whileCounting(t, others, func() {
		if err := leader.Close(); err != nil {
			t.Error(err)
		}
		if _, err := others[0].Revision(t.Context()); err != nil { // there is another leader
			t.Error(err)
		}
	})
	for _, c := range counters {
		sees(t, others[0], c.key, strconv.Itoa(c.n))
	}
}

// A leader that was paused may pass on a write long after the others gave it up.
func TestALateWriteChangesNothing(t *testing.T) {
	t.Parallel()
	a, b, _ := three(t)
	c := &counter{key: "/late"}
	version := b.epoch.version.Load()
	if err := b.settle(t.Context(), version); err != nil {
		t.Fatal(err)
	}
	late := guarded(txnRequest([]store.Condition{{Key: c.key}}, []store.Op{{Key: c.key, Value: []byte("late")}}), version)
	if r, err := a.server.Txn(t.Context(), late); err != nil || r.Succeeded || epochOf(r) != version+1 {
		t.Fatalf("a write of epoch %d: %v, %v; want a failed one that reads epoch %d", version, r, err, version+1)
	}
	for _, e := range []*Engine{a, b} { // a does not know of the new epoch
		if err := c.increase(t.Context(), e); err != nil {
			t.Error(err)
		}
	}
}
