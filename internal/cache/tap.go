package cache

import (
	"context"

	"github.com/knarr-project/knarr/internal/store"
)

// Tap is told of all changes below Root, of all kinds, in the order of revisions. Its methods must
// not wait: the caches of all kinds wait for them.
type Tap interface {
	// Begin returns the revision after which the tap wants changes, before the stream starts; 0
	// means that it wants those from now on. The store must still have the revision.
	Begin(ctx context.Context) (after int64, err error)
	// Changes says that these are all changes up to the revision since the last call. It must not
	// keep the slice.
	Changes(changes []Tapped, revision int64)
	// Missed says that changes up to the revision were missed.
	Missed(revision int64)
}

// Tapped is a change for a Tap.
type Tapped struct {
	*store.Event
	// Before is the state before the events of the call; nil if it is not known. If the call has an
	// earlier event of the same key, that event's state is the newer one.
	Before *Entry
}

// Follow sets the tap. It must be called before the first kind is opened.
func (c *Cache) Follow(t Tap) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tap = t
}

// Start opens the stream of the store before the first kind needs it, for the tap.
func (c *Cache) Start(ctx context.Context) error { return c.begin(ctx) }

// tapped adds the states that events replace.
func (c *Cache) tapped(events []store.Event) []Tapped {
	list := make([]Tapped, len(events))
	for i := range events {
		ev := &events[i]
		list[i].Event = ev
		if ev.Type == store.Put && ev.KV.CreateRevision == ev.KV.ModRevision {
			continue
		}
		if k := c.kindOf(ev.KV.Key); k != nil {
			list[i].Before = k.before(ev.KV.Key, ev.KV.ModRevision)
		}
	}
	return list
}

// before returns the newest state of a key before a revision whose event has not been delivered;
// nil if it is not known.
func (k *Kind) before(key string, revision int64) *Entry {
	k.mu.RLock()
	exact := !k.opening && !k.relisting && k.openedAt < revision
	k.mu.RUnlock()
	if !exact {
		return nil
	}
	e, ok := (&Snapshot{entries: k.state.Load().entries}).Get(key)
	if !ok {
		return nil
	}
	return e
}
