package lead

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/knarr-project/knarr/internal/store"
)

// reign is one term of this process.
type reign struct {
	*Candidate
	term  *Term
	value []byte // of the holder key
	lease store.LeaseID
	look  chan struct{} // receives when the lease may be gone
	// granted is the lease's time to live.
	granted atomic.Int64
	// renewed is the time, since started, before the last successful renewal of the lease.
	renewed atomic.Int64
}

// started is the origin of times that no change of the wall clock affects.
var started = time.Now()

func now() int64 { return int64(time.Since(started)) }

// resignLimit bounds the hand-over of a leader that stops.
const resignLimit = 2 * time.Second

// run serves the term. ended is false if the term was lost and a new campaign must begin.
func (r *reign) run(ctx context.Context, serve func(context.Context, *Term) error) (ended bool, err error) {
	term, end := context.WithCancelCause(ctx)
	defer end(nil)
	r.term.Fence = &store.Fence{
		Conditions: []store.Condition{{Key: r.termKey(), ModRevision: r.term.Revision}},
		Lost:       func() { end(errOther) },
	}
	r.Log.Debug("leading", "election", r.Key, "revision", r.term.Revision)
	var keepers sync.WaitGroup
	keepers.Go(func() { r.keep(term, end) })
	keepers.Go(func() { r.expire(term, end) })
	keepers.Go(func() { r.observe(term, end) })

	served := false
	if err = r.claimPlaces(term); err == nil {
		err = serve(term, r.term)
		served = term.Err() == nil
	}
	cause := context.Cause(term)
	if !served && ctx.Err() == nil {
		r.Log.Warn("the leadership is lost", "election", r.Key, "reason", cause)
	}
	end(nil)
	keepers.Wait()
	if !served && ctx.Err() == nil {
		return false, nil
	}
	if !errors.Is(cause, errOther) {
		r.resign(ctx)
	}
	if !served {
		err = nil
	}
	return true, err
}

// resign lets the next leader take over at once.
func (r *reign) resign(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resignLimit)
	defer cancel()
	if err := r.Store.Revoke(ctx, r.lease); err != nil && !errors.Is(err, store.ErrLeaseNotFound) {
		r.Log.Warn("cannot hand over the leadership; the next leader waits for the lease", "election", r.Key, "err", err)
	}
}

// keep renews the lease, and replaces it when its time to live should be another. The term outlives
// a lease that has expired if no other candidate used the moment: then the holder key gets a new
// lease.
func (r *reign) keep(term context.Context, end context.CancelCauseFunc) {
	interval := func() time.Duration { return time.Duration(r.granted.Load()) / 4 }
	timer := time.NewTimer(interval())
	defer timer.Stop()
	for {
		select {
		case <-term.Done():
			return
		case <-timer.C:
		case <-r.look:
		}
		err := r.renew(term)
		switch {
		case err == nil:
			timer.Reset(interval())
		case errors.Is(err, errOther):
			end(err)
			return
		default:
			if term.Err() == nil {
				r.Log.Warn("cannot renew the leader's lease; trying again", "election", r.Key, "err", err)
			}
			timer.Reset(r.TTL / 16)
		}
	}
}

func (r *reign) renew(ctx context.Context) error {
	// A short limit, so that a renewal that waits for a dead leader of etcd is tried again with the
	// next one in time.
	began, ttl := now(), r.ttl()
	if int64(ttl) == r.granted.Load() {
		brief, cancel := context.WithTimeout(ctx, r.TTL/4)
		defer cancel()
		err := r.Store.KeepAlive(brief, r.lease)
		if err == nil {
			r.renewed.Store(began)
		}
		if !errors.Is(err, store.ErrLeaseNotFound) {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, r.TTL)
	defer cancel()
	id, err := r.Store.Grant(ctx, ttl)
	if err != nil {
		return err
	}
	res, err := r.Store.Commit(ctx,
		[]store.Condition{{Key: r.termKey(), ModRevision: r.term.Revision}},
		store.Op{Key: r.holderKey(), Value: r.value, Lease: id})
	if err != nil || !res.Succeeded {
		_ = r.Store.Revoke(ctx, id)
		if err == nil {
			err = errOther
		}
		return err
	}
	r.lease = id
	r.granted.Store(int64(ttl))
	r.renewed.Store(began)
	return nil
}

// expire ends the term when the lease may have expired: then another process may lead.
func (r *reign) expire(term context.Context, end context.CancelCauseFunc) {
	for {
		left := time.Duration(r.granted.Load() - (now() - r.renewed.Load()))
		if left <= 0 && !r.Alone() {
			end(errExpired)
			return
		}
		select {
		case <-term.Done():
			return
		case <-time.After(max(left, r.TTL/8)):
		}
	}
}

// observe ends the term when another candidate's term has begun. It wakes keep when the lease has
// expired, and when another candidate begins to wait.
func (r *reign) observe(term context.Context, end context.CancelCauseFunc) {
	for term.Err() == nil {
		s, err := r.read(term)
		if err == nil {
			if revisionOf(s.term) != r.term.Revision {
				end(errOther)
				return
			}
			r.lookNow()
			err = r.follow(term, s.revision, func(e store.Event) bool {
				if e.KV.Key == r.waitingKey() || e.KV.Key == r.holderKey() && e.Type == store.Deleted {
					r.lookNow()
				}
				return e.KV.Key == r.termKey()
			})
		}
		if err == nil {
			continue // the term key has changed
		}
		select {
		case <-term.Done():
		case <-time.After(r.TTL / 4):
		}
	}
}

func (r *reign) lookNow() {
	select {
	case r.look <- struct{}{}:
	default:
	}
}

// claimPlaces makes the term known in each further store, whose writes cannot depend on the key in
// the election's store.
func (r *reign) claimPlaces(term context.Context) error {
	for i, place := range r.Places {
		for {
			c, err := r.claim(term, place)
			if err == nil {
				r.term.Fence.Conditions = append(r.term.Fence.Conditions, c)
				break
			}
			if errors.Is(err, errOther) {
				r.term.Fence.Lost()
			} else if term.Err() == nil {
				r.Log.Warn("cannot begin to lead in one of the stores; trying again", "election", r.Key, "store", i+1, "err", err)
			}
			select {
			case <-term.Done():
				return term.Err()
			case <-time.After(r.TTL / 8):
			}
		}
	}
	return nil
}

// claim writes the term key in a further store, unless a later term is already known there.
func (r *reign) claim(ctx context.Context, place store.Store) (store.Condition, error) {
	c := store.Condition{Key: r.termKey()}
	kv, _, err := place.Get(ctx, c.Key, 0)
	if err != nil {
		return c, err
	}
	if kv != nil {
		var known Holder
		if err := json.Unmarshal(kv.Value, &known); err == nil && known.Term > r.term.Term {
			return c, fmt.Errorf("%w: %s, since %s", errOther, known.Name, known.Since())
		}
	}
	c.ModRevision = revisionOf(kv)
	res, err := place.Commit(ctx, []store.Condition{c}, store.Op{Key: c.Key, Value: r.value})
	if err != nil {
		return c, err
	}
	if !res.Succeeded {
		return c, fmt.Errorf("%s has just changed", c.Key)
	}
	c.ModRevision = res.Revision
	return c, nil
}
