package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/knarr-project/knarr/internal/store"
)

func leads(e *Engine) bool { return e.server.Leader() == e.server.MemberID() }

// leading waits until one of the members leads.
func leading(t testing.TB, all []*Engine) (leader *Engine) {
	t.Helper()
	eventually(t, "a member leads", func() error {
		for _, e := range all {
			if leads(e) {
				leader = e
				return nil
			}
		}
		return errors.New("none leads")
	})
	return leader
}

// quietKeepers ends the members' keepers, so that a test can act in their place.
func quietKeepers(all []*Engine) {
	for _, e := range all {
		e.keeper.close()
	}
}

func TestOneMemberHasTheTurnToDefragment(t *testing.T) {
	a, b, c := three(t)
	all := []*Engine{a, b, c}
	quietKeepers(all)
	first := leading(t, all)
	var release func()
	eventually(t, "the first member has the turn", func() (err error) {
		if release, err = first.keeper.holdDefragmentation(t.Context()); err == nil && release == nil {
			t.Fatal("another member has the turn")
		}
		return err
	})
	if leads(first) {
		t.Error("the member with the turn still leads")
	}
	for _, e := range all {
		if again, err := e.keeper.holdDefragmentation(t.Context()); again != nil || err != nil {
			t.Errorf("%s has a turn at the same time, %v", e.peers.Name, err)
		}
	}
	release()
	var holders, turns atomic.Int64
	var asked sync.WaitGroup
	for _, e := range all {
		asked.Go(func() {
			for {
				release, err := e.keeper.holdDefragmentation(t.Context())
				if err != nil && !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("%s: %v", e.peers.Name, err)
					return
				}
				if release == nil {
					continue // another member has it, or has handed over at the same time
				}
				if n := holders.Add(1); n != 1 {
					t.Errorf("%d members have the turn", n)
				}
				turns.Add(1)
				holders.Add(-1)
				release()
				return
			}
		})
	}
	asked.Wait()
	if turns.Load() != 3 {
		t.Errorf("%d turns, want one of each member", turns.Load())
	}
	if kv, _, err := a.Get(t.Context(), defragmentKey, 0); err != nil || kv != nil {
		t.Errorf("the last turn has left %v, %v", kv, err)
	}
}

// Members defragment one after the other while clients write through all of them.
func TestMembersDefragmentUnderLoad(t *testing.T) {
	a, b, c := three(t)
	all := []*Engine{a, b, c}
	quietKeepers(all)
	large := strings.Repeat("x", 256<<10)
	for i := range 24 {
		putKey(t, a, fmt.Sprint("/large/", i), large)
	}
	for i := range 24 {
		if _, err := a.Commit(t.Context(), nil, store.Op{Key: fmt.Sprint("/large/", i), Delete: true}); err != nil {
			t.Fatal(err)
		}
	}
	at, err := a.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Compact(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	written := make([]atomic.Int64, len(all))
	for w, e := range all {
		writers.Go(func() {
			for ctx.Err() == nil {
				key := fmt.Sprintf("/w%d/%d", w, written[w].Load())
				_, err := e.Commit(t.Context(), nil, store.Op{Key: key, Value: []byte("v")})
				switch {
				case err == nil:
					written[w].Add(1)
				case !errors.Is(err, store.ErrUnavailable): // a hand-over may lose a write's answer
					t.Errorf("write %s: %v", key, err)
					return
				}
			}
		})
	}
	for _, e := range all {
		be := e.server.Backend()
		before := be.Size()
		eventually(t, "space is given back by "+e.peers.Name, func() error {
			e.keeper.defragment(t.Context())
			if now := be.Size(); now > before/2 {
				return fmt.Errorf("%d bytes, before %d", now, before)
			}
			return nil
		})
	}
	for w, e := range all {
		before := written[w].Load()
		eventually(t, "writes go on through "+e.peers.Name, func() error {
			if written[w].Load() == before {
				return errors.New("none has succeeded")
			}
			return nil
		})
	}
	cancel()
	writers.Wait()
	for w := range all {
		for _, e := range all {
			r, err := e.Range(t.Context(), fmt.Sprintf("/w%d/", w), store.RangeOptions{CountOnly: true})
			if err != nil || r.Count < written[w].Load() {
				t.Errorf("%s has %d of %d writes, %v", e.peers.Name, r.Count, written[w].Load(), err)
			}
		}
	}
}

// The store's leadership goes from member to member. No acknowledged write gets lost, and reads
// through all members see it at once.
func TestLeadershipIsHandedOverFromMemberToMember(t *testing.T) {
	a, b, c := three(t)
	all := []*Engine{a, b, c}
	led := map[string]bool{}
	for round := range 6 {
		old := leading(t, all)
		led[old.peers.Name] = true
		key := fmt.Sprint("/k/", round)
		putKey(t, old, key, "before")
		eventually(t, "hand over", func() error { return old.HandOver(t.Context()) })
		if leads(old) {
			t.Errorf("round %d: %s still leads", round, old.peers.Name)
		}
		for _, e := range all {
			eventually(t, "read "+key, func() error {
				kv, _, err := e.Get(t.Context(), key, 0)
				if err == nil && (kv == nil || string(kv.Value) != "before") {
					t.Errorf("round %d: %s reads %v", round, e.peers.Name, kv)
				}
				return err
			})
			putKey(t, e, key+"/"+e.peers.Name, "after")
		}
		// A member that does not lead has nothing to hand over.
		next := leading(t, all)
		for _, e := range all {
			if e != next && e.HandOver(t.Context()) != nil {
				t.Errorf("round %d: a follower hands over", round)
			}
		}
	}
	if len(led) < 2 {
		t.Errorf("only %v led", led)
	}
}
