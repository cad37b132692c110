package cache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/knarr-project/knarr/internal/failpoint"
)

// chunk is the most events that a cursor reads while it holds the kind's lock.
const chunk = 256

// Cursor is one watcher's place in the log. All methods except Close belong to one goroutine.
type Cursor struct {
	kind         *Kind
	interest     Interest
	topic        topic
	topicCursors *topicCursors // nil: the cursor reads every event

	// wake holds a token if there may be news. signalled is true from before the token is put in
	// until it is taken out.
	wake      chan struct{}
	signalled atomic.Bool
	failed    atomic.Pointer[error]
	notify    atomic.Pointer[func()] // called instead of putting in a token

	next    uint64 // number of the next event to read
	after   int64  // skip revisions up to this one
	reached int64  // all changes up to this revision have been delivered
	changes []Change
	events  []*event

	light bool
	track bool
	base  *Snapshot         // if track: a snapshot whose changes have all been delivered
	since map[string]*Entry // if track: the entries delivered since base
}

// Watch opens a cursor on the changes after the revision. It returns ErrTooOld if they are no
// longer in the log. The caller must close the cursor.
func (k *Kind) Watch(after int64, interest Interest) (*Cursor, error) {
	return k.watch(&Cursor{kind: k, interest: interest.normal(), after: after})
}

// WatchLight is Watch for a reader that does not read the objects, so that they need not stay
// decoded.
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
		return nil, fmt.Errorf("%w: the kind was listed again", ErrTooOld)
	}
	if c.after < k.log.dropped && !failpoint.Bug("watch-gap-without-410") {
		return nil, fmt.Errorf("%w: %d; the oldest that can be watched from is %d", ErrTooOld, c.after, k.log.dropped)
	}
	c.wake, c.reached, c.next = make(chan struct{}, 1), c.after, k.log.find(c.after)
	if failpoint.Bug("watch-resume-skips") && c.next < k.log.next {
		c.next++
	}
	k.cursors.add(c, &k.log)
	return c, nil
}

// Close releases the cursor. It does not interrupt a waiting Next: cancel its context for that.
func (c *Cursor) Close() {
	c.kind.mu.Lock()
	defer c.kind.mu.Unlock()
	c.kind.cursors.remove(c)
}

// Ready receives a value when Poll may have news, for callers that wait for several events.
func (c *Cursor) Ready() <-chan struct{} { return c.wake }

// Notify makes the cursor call fn, instead of sending to Ready, when Poll may have news. fn is
// called at most once until the next Poll. It must be quick and must not call the cursor. Notify
// serves callers without a waiting goroutine.
func (c *Cursor) Notify(fn func()) {
	c.notify.Store(&fn)
	if c.signalled.Load() {
		fn()
	}
}

// Follow opens a cursor on the changes after a Snapshot of the kind, and records the delivered
// state (see Delivered). light is as for WatchLight.
//
// It returns ErrTooOld also if the kind has been listed again since the snapshot: a listing of the
// same revision may differ from the snapshot without any change in the log.
func (k *Kind) Follow(from *Snapshot, interest Interest, light bool) (*Cursor, error) {
	return k.watch(&Cursor{kind: k, interest: interest.normal(), after: from.revision, track: true, light: light, base: from})
}

// Delivered returns the state after the changes delivered so far: a snapshot without regard to the
// interest, and the entries changed since by key, nil for deleted ones. It works for cursors of
// Follow only.
func (c *Cursor) Delivered() (*Snapshot, map[string]*Entry) { return c.base, c.since }

// Poll returns the changes since the last call without waiting, and the revision up to which all
// changes have been delivered. The changes are valid until the next call. Call it after a value
// from Ready, or to learn the revision.
func (c *Cursor) Poll() ([]Change, int64, error) {
	c.signalled.Store(false) // reset before reading, so that later events signal again
	select {
	case <-c.wake: // a token that no one took from Ready
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

// Next waits for changes that match the Interest. At ctx's deadline it returns no changes, and the
// revision up to which all changes have been delivered (for a bookmark). If ctx is cancelled it
// returns ctx's error. It returns ErrTooOld if the watcher was too slow for the log. The changes
// are valid until the next call.
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

// read reads the next events. more reports that there are further events.
func (c *Cursor) read() (changes []Change, revision int64, more bool, err error) {
	// Load the stream's revision first: the log contains all changes up to it.
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

// take copies the next events of the cursor's topic.
func (c *Cursor) take(into []*event) ([]*event, bool, error) {
	k := c.kind
	k.mu.RLock()
	defer k.mu.RUnlock()
	// Load c.failed with mu held, as it is set with mu held. While this call waited for mu, the
	// log may have started anew, and its events would not show the gap. A forgotten kind is
	// different: the events in the log come first, since no others follow.
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
		s := k.state.Load() // no writer while mu is held, so this state ends where the log ends
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
	if c.topicCursors == nil {
		if c.next < log.first {
			return into, false, c.tooOld(log)
		}
		for ; c.next < log.next && len(into) < chunk; c.next++ {
			into = append(into, log.at(c.next))
		}
		return into, c.next < log.next, nil
	}
	if c.next < c.topicCursors.dropped {
		return into, false, c.tooOld(log)
	}
	i, _ := slices.BinarySearch(c.topicCursors.events, c.next)
	for ; i < len(c.topicCursors.events) && len(into) < chunk; i++ {
		n := c.topicCursors.events[i]
		if n < log.first {
			return into, false, c.tooOld(log)
		}
		into = append(into, log.at(n))
		c.next = n + 1
	}
	if i < len(c.topicCursors.events) {
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
	default: // a token is there
	}
}

// shrink frees the buffers of a burst, so that a thousand idle watchers cost little.
func (c *Cursor) shrink() {
	const small = 64
	if len(c.changes) == 0 && cap(c.changes) > small {
		c.changes = nil
	}
	if cap(c.events) > small && len(c.changes) < small {
		c.events = nil
	}
}
