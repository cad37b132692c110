package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"

	"github.com/knarr-project/knarr/internal/store"
)

const (
	// electionLimit is how long operations wait for a leader. An election takes up to 1.4 s, two in
	// a row up to 2.8 s. Upstream's etcd ends watches after as long a time.
	electionLimit = 3 * time.Second
	// readLimit bounds the wait for a read index. etcd itself gives up after 6.4 s, but a request
	// that arrives while it waits for another one would wait twice as long.
	readLimit = 7 * time.Second
	// quorumLook is the interval at which a waiting request looks for the leader.
	quorumLook = 250 * time.Millisecond
)

// errNoLeader means that this member has not reached a majority of the others for a while.
var errNoLeader = fmt.Errorf("%w: this member has known no leader for %s; a majority of the members cannot be reached or does not run",
	store.ErrNotBegun, electionLimit)

// errReadLimit means that the leader did not answer.
var errReadLimit = fmt.Errorf("%w: the leader has not confirmed a read within %s", store.ErrNotBegun, readLimit)

// quorum knows since when this member has no leader. Nothing runs in the background: waiting
// requests look.
type quorum struct {
	mu    sync.Mutex
	since time.Time       // when a request first noticed it; zero while there is a leader
	found <-chan struct{} // closed when a leader is found after that
}

// leaderless returns for how long this member has known no leader; 0 if it knows one.
func (e *Engine) leaderless() time.Duration {
	if e.server.Leader() != 0 {
		return 0
	}
	q := &e.quorum
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-q.found:
		q.since = time.Time{} // a leader came and went
	default:
	}
	if q.since.IsZero() {
		q.since, q.found = time.Now(), e.server.LeaderChangedNotify()
	}
	return time.Since(q.since)
}

// led refuses an operation at a member that has been without a leader for long. etcd would let it
// wait for seconds, and the clients repeat it.
func (e *Engine) led() error {
	if !e.alone.Load() && e.leaderless() > electionLimit {
		return errNoLeader
	}
	return nil
}

// awaitLeader waits until this member knows a leader. raft drops a request for a read index before,
// and etcd repeats it only after half a second.
func (e *Engine) awaitLeader(ctx context.Context) error {
	for {
		found := e.server.LeaderChangedNotify() // before the look
		if e.server.Leader() != 0 {
			return nil
		}
		if err := e.led(); err != nil {
			return err
		}
		select {
		case <-found:
		case <-time.After(quorumLook):
		case <-e.server.StopNotify():
			return store.ErrUnavailable
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// readIndex waits until this member has applied all that was committed before the call. Without a
// quorum it fails within seconds.
func (e *Engine) readIndex(ctx context.Context) error {
	bounded, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	until := time.Now().Add(readLimit)
	var look *time.Timer
	var mu sync.Mutex // guards look
	mu.Lock()
	look = time.AfterFunc(quorumLook, func() {
		mu.Lock()
		defer mu.Unlock()
		switch err := e.led(); {
		case bounded.Err() != nil:
		case e.failure.cause() != nil:
			cancel(e.failure.refusal())
		case err != nil:
			cancel(err)
		case time.Now().After(until):
			cancel(errReadLimit)
		default:
			look.Reset(quorumLook)
		}
	})
	mu.Unlock()
	defer look.Stop()
	for {
		err := e.awaitLeader(bounded)
		if err == nil {
			err = e.server.LinearizableReadNotify(bounded)
		}
		if errors.Is(err, etcderrors.ErrLeaderChanged) {
			continue // the new leader knows
		}
		if cause := context.Cause(bounded); err != nil && cause != nil && ctx.Err() == nil {
			return cause
		}
		if err == nil {
			return nil
		}
		if err = translate(ctx, err); errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrNotBegun) {
			return fmt.Errorf("%w: %w", store.ErrNotBegun, err) // a read changes nothing
		}
		return err
	}
}
