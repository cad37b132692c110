package cache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/failpoint"
	"github.com/knarr-project/knarr/internal/store"
)

// Kind is the cache of one kind, opened by Cache.Kind.
type Kind struct {
	clock  *clock
	store  store.Store // nil for a Feed
	schema Schema

	state atomic.Pointer[state] // the newest; written with mu held

	opened  chan struct{} // closed when the first list is complete or has failed
	openErr error
	listing chan struct{} // holds a token while the kind is being listed

	isGone atomic.Bool // gone != nil

	mu        sync.RWMutex // guards the fields below
	opening   bool         // there is no state yet
	relisting bool
	pending   []store.Event // events that arrived during opening or relisting
	openedAt  int64         // revision of the listing that the content is based on
	begun     uint64        // number of such listings
	work      *tree         // the writer's own tree; states hold copies of it
	log       eventLog
	cursors   cursors
	gone      error // why the kind can no longer be used

	exact exactSnapshots
}

var _ Reader = (*Kind)(nil)

// state is the state that readers see. It is never modified.
type state struct {
	entries *tree
	indexes map[string]*index
	changed int64  // revision of its last change
	begun   uint64 // Kind.begun of the listing it is based on
}

// Schema returns the kind's schema.
func (k *Kind) Schema() *Schema { return &k.schema }

// Snapshot returns the newest applied state.
func (k *Kind) Snapshot() *Snapshot {
	// Load the stream's revision first: changes applied later are newer, and a state holds every
	// change up to its own revision.
	reached := k.clock.reached.Load()
	s := k.state.Load()
	return &Snapshot{revision: max(reached, s.changed), changed: s.changed, begun: s.begun, entries: s.entries, indexes: s.indexes}
}

// Revision returns the revision that a Snapshot would have now.
func (k *Kind) Revision() int64 {
	reached := k.clock.reached.Load()
	return max(reached, k.state.Load().changed)
}

// WaitFor waits until a Snapshot is at least as new as revision. It returns ErrFuture if ctx's
// deadline comes first.
func (k *Kind) WaitFor(ctx context.Context, revision int64) error {
	if k.clock.reached.Load() >= revision || k.state.Load().changed >= revision {
		return nil
	}
	return k.clock.waitFor(ctx, revision)
}

// Gone reports whether the kind was closed or forgotten. Its state does not change any more.
func (k *Kind) Gone() bool { return k.isGone.Load() }

// keeps reports whether a new entry's object will be read soon; mu is held.
func (k *Kind) keeps(e *Entry) bool { return k.schema.Keep || k.cursors.read(e) }

// AddIndex adds a named index of the values that the function returns for each object. An existing
// index of that name stays. Snapshots taken after AddIndex contain it. The function must be pure.
func (k *Kind) AddIndex(name string, values func(runtime.Object) []string) {
	k.AddEntryIndex(name, func(e *Entry) []string {
		obj, err := e.Object()
		if err != nil {
			return nil // an undecodable object is in no index
		}
		return values(obj)
	})
}

// AddEntryIndex is AddIndex with a function of the entry.
func (k *Kind) AddEntryIndex(name string, values func(*Entry) []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.state.Load()
	if _, ok := s.indexes[name]; ok {
		return
	}
	ix := &index{values: values, keys: newIndexTree()}
	s.entries.Scan(func(e *Entry) bool { ix.add(e); return true })
	indexes := maps.Clone(s.indexes)
	if indexes == nil {
		indexes = map[string]*index{}
	}
	indexes[name] = ix
	k.state.Store(&state{entries: s.entries, indexes: indexes, changed: s.changed, begun: s.begun})
}

// DropIndex removes an index. Earlier snapshots still contain it.
func (k *Kind) DropIndex(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.state.Load()
	if _, ok := s.indexes[name]; !ok {
		return
	}
	indexes := maps.Clone(s.indexes)
	delete(indexes, name)
	k.state.Store(&state{entries: s.entries, indexes: indexes, changed: s.changed, begun: s.begun})
}

// Indexes returns the number of indexes.
func (k *Kind) Indexes() int { return len(k.state.Load().indexes) }

// open lists the kind and applies the events that arrived meanwhile.
func (k *Kind) open(ctx context.Context) error {
	return k.exclusively(ctx, func() error {
		entries, revision, err := k.list(ctx, 0)
		if err != nil {
			return err
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		k.begin(entries, revision)
		return nil
	})
}

// exclusively calls fn while no other goroutine lists the kind.
func (k *Kind) exclusively(ctx context.Context, fn func() error) error {
	select {
	case k.listing <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("list %s: %w", k.schema.Prefix, ctx.Err())
	}
	defer func() { <-k.listing }()
	return fn()
}

// begin starts the kind from a listing and the events that arrived while it was made; mu is held.
// The caller must fail all open cursors.
func (k *Kind) begin(entries *tree, revision int64) {
	k.work, k.openedAt = entries, revision
	k.begun++
	k.log.start(revision)
	changes, changed := k.changes(k.pending, revision)
	k.opening, k.relisting, k.pending = false, false, nil
	var indexes map[string]*index
	if old := k.state.Load(); old != nil {
		indexes = map[string]*index{}
		for name, ix := range old.indexes {
			fresh := &index{values: ix.values, keys: newIndexTree()}
			entries.Scan(func(e *Entry) bool { fresh.add(e); return true })
			indexes[name] = fresh
		}
	}
	// Show the listing and the later events together: the stream's revision may be past both.
	k.state.Store(&state{entries: k.work.Copy(), indexes: indexes, changed: changed, begun: k.begun})
	k.record(changes, time.Now())
}

const pageSize = 1000

// list reads all of the kind at one revision (0: the newest). If a compaction overtakes the newest
// revision between two pages, it reads everything again in one page.
func (k *Kind) list(ctx context.Context, revision int64) (*tree, int64, error) {
	t, at, err := k.pages(ctx, revision, pageSize)
	if revision == 0 && errors.Is(err, store.ErrCompacted) {
		return k.pages(ctx, 0, 0)
	}
	return t, at, err
}

// pages reads all of the kind at one revision, size objects at a time (0: all at once).
func (k *Kind) pages(ctx context.Context, revision, size int64) (*tree, int64, error) {
	t := newTree()
	prefix, from := k.schema.Prefix+"/", ""
	for {
		r, err := k.store.Range(ctx, prefix, store.RangeOptions{From: from, Limit: size, Revision: revision})
		if err != nil {
			return nil, 0, fmt.Errorf("list %s: %w", k.schema.Prefix, err)
		}
		revision = r.Revision
		for i := range r.KVs {
			e := newEntry(&k.schema, &r.KVs[i])
			if !k.schema.Keep {
				e.release()
			}
			t.Load(e)
		}
		if !r.More || len(r.KVs) == 0 {
			return t, revision, nil
		}
		from = r.KVs[len(r.KVs)-1].Key + "\x00"
	}
}

// Received returns the number of changes since the kind was opened.
func (k *Kind) Received() uint64 {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return uint64(k.log.end())
}

// Capacity returns the number of changes that fit into the log now. It grows and shrinks with the
// load.
func (k *Kind) Capacity() int {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return len(k.log.ring)
}

// Resized returns how often the log has grown and shrunk.
func (k *Kind) Resized() (grown, shrunk uint64) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.log.grown, k.log.shrunk
}

// Opened returns the number of listings that the kind started from: one at first, and one more
// after each loss of the stream or Relist.
func (k *Kind) Opened() uint64 {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.begun
}

// deliver applies events of the stream, in order and in whole revisions. Only the cache's writer
// calls it.
func (k *Kind) deliver(events []store.Event, now time.Time) {
	k.mu.Lock()
	if k.opening || k.relisting {
		k.pending = append(k.pending, events...)
	}
	var wake []*Cursor
	if !k.opening {
		wake = k.apply(events, now)
	}
	k.mu.Unlock()
	wakeAll(wake)
}

// apply adds the events to the state and the log, and returns the cursors to wake; mu is held.
func (k *Kind) apply(events []store.Event, now time.Time) []*Cursor {
	changes, changed := k.changes(events, k.state.Load().changed)
	return k.publish(changes, changed, now)
}

// changes applies events to the writer's tree. It returns the changes and the revision of the last
// one, or the given revision if there are none.
func (k *Kind) changes(events []store.Event, revision int64) (changes []*event, changed int64) {
	changed = revision
	for i := range events {
		if ev := &events[i]; ev.KV.ModRevision > k.openedAt {
			changed = ev.KV.ModRevision
			if c := k.change(ev); c != nil {
				changes = append(changes, c)
			}
		}
	}
	return changes, changed
}

// publish makes changes of the writer's tree visible, and returns the cursors to wake; mu is held.
func (k *Kind) publish(changes []*event, changed int64, now time.Time) []*Cursor {
	if len(changes) == 0 {
		return nil
	}
	old := k.state.Load()
	k.state.Store(&state{entries: k.work.Copy(), indexes: updateIndexes(old.indexes, changes), changed: changed, begun: k.begun})
	k.record(changes, now)
	return k.cursors.take()
}

// record adds visible changes to the log.
func (k *Kind) record(changes []*event, now time.Time) {
	for _, c := range changes {
		// The header and the indexes needed the decoded object; drop it unless a reader will need
		// it.
		if c.new != nil && !k.keeps(c.new) {
			c.new.release()
		}
		c.at = now
		k.log.append(c)
		k.cursors.note(c, k.log.end()-1, k.log.first)
	}
}

// change applies one event to the writer's tree.
func (k *Kind) change(ev *store.Event) *event {
	if ev.Type == store.Deleted {
		return k.drop(ev.KV.Key, ev.KV.ModRevision)
	}
	return k.set(newEntry(&k.schema, &ev.KV), ev.KV.ModRevision)
}

func (k *Kind) drop(key string, revision int64) *event {
	old, ok := k.work.Delete(&Entry{Key: key})
	if !ok {
		return nil
	}
	return &event{revision: revision, old: old}
}

func (k *Kind) set(e *Entry, revision int64) *event {
	old, ok := k.work.Set(e)
	if ok {
		e.Key = old.Key // equal, and saves a string
		e.shareKey()
	}
	return &event{revision: revision, old: old, new: e}
}

func updateIndexes(old map[string]*index, changes []*event) map[string]*index {
	var next map[string]*index // copied when an index changes
	for name, ix := range old {
		fresh := ix.with(changes)
		if fresh == ix {
			continue
		}
		if next == nil {
			next = maps.Clone(old)
		}
		next[name] = fresh
	}
	if next == nil {
		return old
	}
	return next
}

// trim frees what is held for readers that no longer need it.
func (k *Kind) trim(now time.Time) {
	k.mu.Lock()
	k.log.trim(now)
	// Wake following cursors: until they read the log again, their snapshot holds deleted objects.
	k.cursors.each(func(c *Cursor) {
		if c.track {
			c.signal()
		}
	})
	k.mu.Unlock()
	k.exact.mu.Lock()
	clear(k.exact.last[:])
	k.exact.mu.Unlock()
	if s := k.state.Load(); s != nil { // nil during the kind's first listing
		s.entries.Scan(func(e *Entry) bool { e.dropUnused(k.schema.Keep); return true })
	}
}

// reset lists the kind again after events were missed or could not be decoded. Its cursors fail and
// must list again. Until the new listing is complete, or if it fails, the old state stays.
//
// Each reset makes its own listing after those already running. An earlier listing may predate the
// events that this caller missed, or fail although this caller needs it.
func (k *Kind) reset(ctx context.Context) error {
	return k.exclusively(ctx, func() error {
		k.mu.Lock()
		// opening: the first listing failed, or starts after this
		k.relisting = k.gone == nil && !k.opening
		going := k.relisting
		k.mu.Unlock()
		if !going {
			return nil
		}
		entries, revision, err := k.list(ctx, 0)
		k.mu.Lock()
		defer k.mu.Unlock()
		if err != nil {
			k.relisting, k.pending = false, nil
			return err
		}
		k.begin(entries, revision)
		k.cursors.fail(ErrTooOld) // readers that list again find the new state
		return nil
	})
}

// close ends the kind; its cursors fail with err.
func (k *Kind) close(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.gone == nil {
		k.gone = err
		k.isGone.Store(true)
		k.cursors.fail(err)
	}
}

// Rewind returns the newest state with other states of some keys, as the snapshot of an earlier
// revision. A nil state means that the object did not exist. It has no indexes.
func (k *Kind) Rewind(newest *Snapshot, revision int64, states map[string]*store.KeyValue) *Snapshot {
	k.exact.mu.Lock() // so no other goroutine copies a published tree
	entries := newest.entries.Copy()
	k.exact.mu.Unlock()
	for key, kv := range states {
		if kv == nil {
			entries.Delete(&Entry{Key: key})
			continue
		}
		e := newEntry(&k.schema, kv)
		e.release()
		entries.Set(e)
	}
	return &Snapshot{revision: revision, entries: entries}
}

// exactSnapshots caches the last requested snapshots at exact revisions, since the pages of a list
// share one.
type exactSnapshots struct {
	mu   sync.Mutex
	last [4]*Snapshot
	next int
}

// At returns the snapshot at exactly this revision, see Reader.
func (k *Kind) At(ctx context.Context, revision int64) (*Snapshot, error) {
	if k.clock.compacted.Load() > revision {
		return nil, ErrTooOld
	}
	if revision > k.Revision() {
		if err := k.WaitFor(ctx, revision); err != nil {
			return nil, err
		}
	}
	if s := k.state.Load(); s.changed <= revision {
		return &Snapshot{revision: revision, changed: s.changed, begun: s.begun, entries: s.entries, indexes: s.indexes}, nil
	}
	k.exact.mu.Lock()
	defer k.exact.mu.Unlock()
	for _, s := range k.exact.last {
		if s != nil && s.revision == revision {
			return s, nil
		}
	}
	s, err := k.oldSnapshot(ctx, revision)
	if err != nil {
		return nil, err
	}
	k.exact.last[k.exact.next%len(k.exact.last)] = s
	k.exact.next++
	return s, nil
}

// forget drops snapshots older than the revision.
func (e *exactSnapshots) forget(before int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, s := range e.last {
		if s != nil && s.revision < before {
			e.last[i] = nil
		}
	}
}

// oldSnapshot makes an older snapshot, either by undoing the changes in the log or from the store.
// It has no indexes.
func (k *Kind) oldSnapshot(ctx context.Context, revision int64) (*Snapshot, error) {
	k.mu.RLock()
	s := k.state.Load()
	since, ok := k.log.since(revision)
	k.mu.RUnlock()
	if !ok && k.store == nil {
		return nil, ErrTooOld
	}
	if !ok {
		entries, _, err := k.list(ctx, revision)
		if errors.Is(err, store.ErrCompacted) {
			return nil, fmt.Errorf("%w: %w", ErrTooOld, err)
		}
		if err != nil {
			return nil, err
		}
		return &Snapshot{revision: revision, entries: entries}, nil
	}
	entries := s.entries.Copy() // exact.mu is held, so no other goroutine copies a published tree
	if failpoint.Bug("exact-list-off-by-one") && len(since) > 1 {
		since = since[1:]
	}
	for i := len(since) - 1; i >= 0; i-- {
		if c := since[i]; c.old != nil {
			entries.Set(c.old)
		} else {
			entries.Delete(c.new)
		}
	}
	return &Snapshot{revision: revision, entries: entries}, nil
}
