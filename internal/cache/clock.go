package cache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// clock records how far one ordered stream of changes has been applied, and holds the waiters for
// later revisions.
type clock struct {
	// reached is the revision up to which the states and logs of the stream's kinds contain all
	// changes.
	reached atomic.Int64
	// compacted is the revision below which nothing can be read any more.
	compacted atomic.Int64

	// progress asks the stream to advance reached to the newest revision; nil for a stream that
	// cannot be asked.
	progress func(context.Context)
	closed   <-chan struct{} // closed when the stream has ended

	mu      sync.Mutex
	waiting []waiter
	n       atomic.Int32 // len(waiting)
}

type waiter struct {
	revision int64
	ch       chan struct{}
}

func (c *clock) reach(revision int64) {
	if revision <= c.reached.Load() {
		return
	}
	c.reached.Store(revision)
	if c.n.Load() == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = slices.DeleteFunc(c.waiting, func(w waiter) bool {
		if w.revision > revision {
			return false
		}
		close(w.ch)
		return true
	})
	c.n.Store(int32(len(c.waiting)))
}

// progressAfter is how long a waiter waits before it asks the stream for progress: the newest
// revision may belong to a key that the cache does not watch.
const progressAfter = 5 * time.Millisecond

func (c *clock) waitFor(ctx context.Context, revision int64) error {
	ch := c.add(revision)
	defer c.remove(ch)
	if c.reached.Load() >= revision { // reached before the channel was added to the list
		return nil
	}
	wait := progressAfter
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-ch:
			return nil
		case <-timer.C:
			if c.progress != nil {
				c.progress(ctx)
				wait = min(2*wait, 200*time.Millisecond)
				timer.Reset(wait)
			}
		case <-c.closed:
			return ErrClosed
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("%w: requested %d, reached %d", ErrFuture, revision, c.reached.Load())
			}
			return ctx.Err()
		}
	}
}

func (c *clock) add(revision int64) chan struct{} {
	ch := make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, waiter{revision, ch})
	c.n.Store(int32(len(c.waiting)))
	return ch
}

func (c *clock) remove(ch chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = slices.DeleteFunc(c.waiting, func(w waiter) bool { return w.ch == ch })
	c.n.Store(int32(len(c.waiting)))
}
