package cache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
)

// chunk is how many events a cursor looks at while it holds the kind's lock.
const chunk = 256

// Cursor is one watcher's place in the log. Its methods are called by one goroutine, except Close.
type Cursor struct {
	kind     *Kind
	interest Interest
	topic    topic
	room     *waitingRoom // nil: every event is looked at

	// wake holds a token when there may be news; signalled is true from before the token is put in until it is taken out.
	wake      chan struct{}
	signalled atomic.Bool
	failed    atomic.Pointer[error]
	notify    atomic.Pointer[func()] // called instead of putting in a token

	next    uint64 // number of the next event to look at
	after   int64  // revisions up to this are of no interest
	reached int64  // revision up to which everything was delivered
	changes []Change
	events  []*event

	light bool
	track bool
	base  *Snapshot         // if track: the newest state that everything was delivered of
	since map[string]*Entry // if track: what was delivered since
}

// Watch opens a cursor on the changes after the revision. ErrTooOld when they are no longer in the log. The cursor must be closed.
func (k *Kind) Watch(after int64, interest Interest) (*Cursor, error) {
	return k.watch(&Cursor{kind: k, interest: interest.normal(), after: after})
}

// WatchLight is Watch for a reader that does not look at the objects themselves, so that they need not be kept.
func (k *Kind) WatchLight(after int64, interest Interest) (*Cursor, error) {
	return k.watch(&Cursor{kind: k, interest: interest.normal(), after: after, light: true})
}

func (k *Kind) watch(c *Cursor) (*Cursor, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.gone != nil {
		return nil, k.gone
	}
	if c.track && c.base.begun != k.begun {
		return nil, fmt.Errorf("%w: the kind has been listed again", ErrTooOld)
	}
	if c.after < k.log.dropped {
		return nil, fmt.Errorf("%w: %d; the oldest that can be watched from is %d", ErrTooOld, c.after, k.log.dropped)
	}
	c.wake, c.reached, c.next = make(chan struct{}, 1), c.after, k.log.find(c.after)
	k.cursors.add(c, &k.log)
	return c, nil
}

// Close releases the cursor. A Next that waits goes on waiting: end its context.
func (c *Cursor) Close() {
	c.kind.mu.Lock()
	defer c.kind.mu.Unlock()
	c.kind.cursors.remove(c)
}

// Ready has a value when Poll may have news. For callers that wait for several things.
func (c *Cursor) Ready() <-chan struct{} { return c.wake }

// Notify has fn called when Poll may have news, instead of a value from Ready: once, until Poll has been called. fn must be quick and must not
// call the cursor. For callers that have no goroutine that waits.
func (c *Cursor) Notify(fn func()) {
	c.notify.Store(&fn)
	if c.signalled.Load() {
		fn()
	}
}

// Follow opens a cursor on the changes after a Snapshot of the kind that knows what it has delivered (see Delivered). light says that
// its reader does not look at the objects themselves, so that they need not be kept. ErrTooOld also when the kind has been listed again since the
// snapshot was taken: a listing of the same revision may differ from it, and no change would tell.
func (k *Kind) Follow(from *Snapshot, interest Interest, light bool) (*Cursor, error) {
	return k.watch(&Cursor{kind: k, interest: interest.normal(), after: from.revision, track: true, light: light, base: from})
}

// Delivered is the state that the changes delivered so far lead to: a snapshot (of all interests), and the entries by key that have
// changed since, nil for those that are gone. Only for cursors made by Follow.
func (c *Cursor) Delivered() (*Snapshot, map[string]*Entry) { return c.base, c.since }

// Poll is what has changed since the last call, without waiting, and a revision up to which everything has been delivered with it. The changes
// are valid until the next call. Call it after a value of Ready has been received, or to learn the progress.
func (c *Cursor) Poll() ([]Change, int64, error) {
	c.signalled.Store(false) // before looking: what comes from now on signals again
	select {
	case <-c.wake: // put in although Ready was not asked
	default:
	}
	for {
		changes, revision, more, err := c.read()
		if err != nil || len(changes) > 0 || !more {
			if more {
				c.signal()
			}
			c.shrink()
			return changes, revision, err
		}
	}
}

// Next blocks until there are changes that concern the Interest. When ctx's deadline passes it returns no changes and
// the revision up to which everything has been delivered (for a bookmark); when ctx is cancelled, its error. The changes are valid
// until the next call. ErrTooOld when the watcher fell off the log.
func (c *Cursor) Next(ctx context.Context) ([]Change, int64, error) {
	for {
		changes, revision, err := c.Poll()
		if err != nil || len(changes) > 0 {
			return changes, revision, err
		}
		select {
		case <-c.wake:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return c.Poll()
			}
			return nil, revision, ctx.Err()
		}
	}
}

// read looks at the next events. more: there are others that it did not look at.
func (c *Cursor) read() (changes []Change, revision int64, more bool, err error) {
	// The stream's revision first: all changes up to it are in the log already.
	reached := c.kind.clock.reached.Load()
	c.events, more, err = c.take(c.events[:0])
	if err != nil {
		return nil, c.reached, false, err
	}
	c.changes = c.changes[:0]
	last := c.reached
	for _, e := range c.events {
		if e.revision <= c.after {
			continue
		}
		last = e.revision
		if ch, ok := c.interest.view(e); ok {
			c.changes = append(c.changes, ch)
		}
	}
	clear(c.events)
	if !more {
		c.reached = max(last, reached)
	}
	return c.changes, c.reached, more, nil
}

// take copies out the next events of the cursor's topic.
func (c *Cursor) take(into []*event) ([]*event, bool, error) {
	k := c.kind
	k.mu.RLock()
	defer k.mu.RUnlock()
	// Looked at here, since it is set with mu held: the log may have begun anew while this waited for mu, and its events would come without a gap that shows.
	// What was in the log when the kind was forgotten is told first: nothing comes after it.
	p := c.failed.Load()
	if p != nil && !errors.Is(*p, ErrForgotten) {
		return into, false, *p
	}
	into, more, err := c.takeFrom(&k.log, into)
	if p != nil && err == nil && len(into) == 0 && !more {
		return into, false, *p
	}
	more = more || p != nil
	if err != nil || !c.track {
		return into, more, err
	}
	if !more {
		s := k.state.Load() // no writer while mu is held: exactly what the log ends with
		c.base, c.since = &Snapshot{entries: s.entries, indexes: s.indexes}, nil
		return into, more, nil
	}
	if c.since == nil {
		c.since = map[string]*Entry{}
	}
	for _, e := range into {
		if e.new != nil {
			c.since[e.new.Key] = e.new
		} else {
			c.since[e.old.Key] = nil
		}
	}
	return into, more, nil
}

func (c *Cursor) takeFrom(log *eventLog, into []*event) ([]*event, bool, error) {
	if c.room == nil {
		if c.next < log.first {
			return into, false, c.tooOld(log)
		}
		for ; c.next < log.next && len(into) < chunk; c.next++ {
			into = append(into, log.at(c.next))
		}
		return into, c.next < log.next, nil
	}
	if c.next < c.room.dropped {
		return into, false, c.tooOld(log)
	}
	i, _ := slices.BinarySearch(c.room.events, c.next)
	for ; i < len(c.room.events) && len(into) < chunk; i++ {
		n := c.room.events[i]
		if n < log.first {
			return into, false, c.tooOld(log)
		}
		into = append(into, log.at(n))
		c.next = n + 1
	}
	if i < len(c.room.events) {
		return into, true, nil
	}
	c.next = log.next
	return into, false, nil
}

func (c *Cursor) tooOld(log *eventLog) error {
	return fmt.Errorf("%w: the watcher was too slow and events up to revision %d are gone", ErrTooOld, log.dropped)
}

// fail ends the cursor; Kind.mu is held.
func (c *Cursor) fail(err error) {
	c.failed.Store(&err)
	c.signal()
}

func (c *Cursor) signal() {
	c.signalled.Store(true)
	if fn := c.notify.Load(); fn != nil {
		(*fn)()
		return
	}
	select {
	case c.wake <- struct{}{}:
	default: // there is a token already
	}
}

// shrink gives the buffers of a burst back when it is over, so that a thousand idle watchers cost little.
func (c *Cursor) shrink() {
	const small = 16
	if len(c.changes) == 0 && cap(c.changes) > small {
		c.changes = nil
	}
	if cap(c.events) > small && len(c.changes) < small {
		c.events = nil
	}
}
