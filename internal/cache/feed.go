package cache

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// Feed is a Kind that is filled by its caller instead of the store, such as from a watch over
// HTTPS. One goroutine feeds it.
type Feed struct {
	*Kind
	clock  clock
	closed chan struct{}
}

// FedObject is an object with its key and revision.
type FedObject struct {
	Key      string
	Revision int64
	Header   Header
	Object   runtime.Object
}

// NewFeed returns an empty feed at revision 0.
func NewFeed() *Feed {
	f := &Feed{closed: make(chan struct{})}
	f.clock.closed = f.closed
	f.Kind = &Kind{clock: &f.clock, opened: f.closed}
	f.Kind.begin(newTree(), 0)
	return f
}

func (o *FedObject) entry() *Entry {
	e := &Entry{Header: o.Header, Key: o.Key, Revision: o.Revision}
	e.object.Store(&decoded{object: o.Object})
	e.shareKey()
	watchForMutation(e, o.Object)
	return e
}

// Put applies a new or changed object. It ignores a state that is already there.
func (f *Feed) Put(o FedObject) {
	f.apply(o.Revision, func(k *Kind, revision int64) []*event { return k.put(&o, o.Revision) })
}

// Delete removes the object with the key, if it is there.
func (f *Feed) Delete(key string, revision int64) {
	f.apply(revision, func(k *Kind, revision int64) []*event {
		if e := k.drop(key, revision); e != nil {
			return []*event{e}
		}
		return nil
	})
}

// Replace sets the content to a listing at the revision. The differences become changes of that
// revision.
func (f *Feed) Replace(list []FedObject, revision int64) {
	f.apply(revision, func(k *Kind, revision int64) []*event {
		var events []*event
		listed := make(map[string]bool, len(list))
		for i := range list {
			listed[list[i].Key] = true
			events = append(events, k.put(&list[i], revision)...)
		}
		var gone []string
		k.work.Scan(func(e *Entry) bool {
			if !listed[e.Key] {
				gone = append(gone, e.Key)
			}
			return true
		})
		for _, key := range gone {
			events = append(events, k.drop(key, revision))
		}
		return events
	})
}

// Reach records that everything up to the revision has been fed.
func (f *Feed) Reach(revision int64) { f.clock.reach(revision) }

// Close ends the feed's cursors and waiters.
func (f *Feed) Close() {
	f.Kind.close(ErrClosed)
	close(f.closed)
}

func (k *Kind) put(o *FedObject, revision int64) []*event {
	var events []*event
	if old, ok := k.work.Get(&Entry{Key: o.Key}); ok {
		if old.UID != o.Header.UID { // another object of the same name: its deletion was missed
			events = append(events, k.drop(o.Key, revision))
		} else if old.Revision == o.Revision {
			return nil
		}
	}
	return append(events, k.set(o.entry(), revision))
}

func (f *Feed) apply(revision int64, change func(k *Kind, revision int64) []*event) {
	k := f.Kind
	k.mu.Lock()
	// Revisions must not decrease, even if the server's do.
	revision = max(revision, k.state.Load().changed)
	wake := k.publish(change(k, revision), revision, time.Now())
	k.mu.Unlock()
	wakeAll(wake)
	f.clock.reach(revision)
}
