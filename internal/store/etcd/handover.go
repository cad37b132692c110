package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// handOverTry is how long one voter has to become the leader. The leader accepts no writes
// meanwhile, so another voter gets its turn soon.
const handOverTry = 300 * time.Millisecond

// HandOver makes another member the leader if this one is. It does nothing if there is no other
// voter. Call it before a planned stop, so that writes do not wait for an election.
func (e *Engine) HandOver(ctx context.Context) error {
	done, err := e.read()
	if err != nil {
		return err
	}
	defer done()
	if e.alone.Load() {
		return nil
	}
	self := e.server.MemberID()
	tried := map[uint64]bool{}
	for e.server.Leader() == self {
		m, ok := e.quickest(ctx, tried)
		switch {
		case ok:
			tried[m.ID] = true
			// The loop looks for the success: the election may have another winner.
			bounded, stop := context.WithTimeout(ctx, handOverTry)
			_ = e.server.MoveLeader(bounded, uint64(self), m.ID)
			stop()
		case len(tried) > 0:
			clear(tried)
		case ctx.Err() != nil:
			return fmt.Errorf("hand over the store's leadership: %w", ctx.Err())
		default:
			return errors.New("hand over the store's leadership: no other voter answers")
		}
	}
	return nil
}

// quickest returns the other voter that answers this member first, among those not yet tried.
func (e *Engine) quickest(ctx context.Context, tried map[uint64]bool) (m Member, ok bool) {
	ctx, cancel := context.WithCancel(ctx)
	var asked sync.WaitGroup
	defer asked.Wait()
	defer cancel()
	answers := make(chan Member)
	for _, m := range e.members() {
		if m.Self || m.Learner || tried[m.ID] {
			continue
		}
		asked.Go(func() {
			if e.Reachable(ctx, m) == nil {
				select {
				case answers <- m:
				case <-ctx.Done():
				}
			}
		})
	}
	none := make(chan struct{})
	go func() { asked.Wait(); close(none) }()
	select {
	case m = <-answers:
		return m, true
	case <-none:
		return Member{}, false
	}
}
