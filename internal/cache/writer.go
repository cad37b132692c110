package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/knarr-project/knarr/internal/store"
)

// Root is the prefix of all keys that the cache watches.
const Root = "/registry/"

// ErrClosed means that the cache, or the kind in it, was closed.
var ErrClosed = errors.New("cache closed")

// Cache follows the store with one watch, and one goroutine applies its changes to the kinds. A
// kind is listed when it is first used, so unused kinds cost nothing.
type Cache struct {
	store store.Store
	log   *slog.Logger

	clock clock

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup // the writer and the periodic trimming

	mu      sync.Mutex // guards the fields below
	started bool
	kinds   map[string]*Kind
	stream  store.Stream
	tap     Tap
}

// New returns a cache of the store. It starts to watch when the first kind is opened. Close stops
// it.
func New(s store.Store) *Cache {
	ctx, cancel := context.WithCancel(context.Background())
	c := &Cache{store: s, log: slog.Default().With("component", "cache"), ctx: ctx, cancel: cancel, kinds: map[string]*Kind{}}
	c.clock.progress, c.clock.closed = c.progress, ctx.Done()
	return c
}

// Close ends the watch and all cursors.
func (c *Cache) Close() {
	c.cancel()
	c.mu.Lock()
	c.started = true // begin must not start it any more
	if c.stream != nil {
		c.stream.Close()
	}
	c.mu.Unlock()
	c.work.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.kinds {
		k.close(ErrClosed)
	}
	checkMutations()
}

// Kind returns the cache of one kind, which is listed on first use. The schema's prefix identifies
// it: a second call with the same prefix returns the same Kind and ignores the rest of the schema.
func (c *Cache) Kind(schema Schema) (*Kind, error) {
	return c.OpenKind(c.ctx, schema)
}

// OpenKind is Kind with a context that limits the first listing.
func (c *Cache) OpenKind(ctx context.Context, schema Schema) (*Kind, error) {
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	k, first := c.register(schema)
	if first {
		k.openErr = k.open(ctx)
		if k.openErr != nil {
			c.Forget(schema.Prefix)
		}
		close(k.opened)
	}
	select {
	case <-k.opened:
		return k, k.openErr
	case <-ctx.Done():
		return nil, fmt.Errorf("open %s: %w", schema.Prefix, ctx.Err())
	case <-c.ctx.Done():
		return nil, fmt.Errorf("open %s: %w", schema.Prefix, ErrClosed)
	}
}

func (c *Cache) register(schema Schema) (k *Kind, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, ok := c.kinds[schema.Prefix]; ok {
		return k, false
	}
	k = &Kind{clock: &c.clock, store: c.store, schema: schema, opening: true, opened: make(chan struct{}), listing: make(chan struct{}, 1)}
	c.kinds[schema.Prefix] = k
	return k, true
}

// Compacted tells the cache that the store has compacted the revisions before this one. The cache
// then refuses them too, even if its log has them: so the pages of a list expire for all clients at
// the same time, in kinds with old and new changes alike.
func (c *Cache) Compacted(revision int64) {
	c.clock.compacted.Store(revision)
	c.mu.Lock()
	kinds := slices.Collect(maps.Values(c.kinds))
	c.mu.Unlock()
	for _, k := range kinds {
		k.exact.forget(revision)
	}
}

// Forget closes the kind of a prefix: a custom resource that is no longer served, or whose schema
// has changed. Its cursors end with ErrForgotten.
func (c *Cache) Forget(prefix string) {
	c.mu.Lock()
	k := c.kinds[prefix]
	delete(c.kinds, prefix)
	c.mu.Unlock()
	if k != nil {
		k.close(ErrForgotten)
	}
}

// Relist lists the kind of a prefix again, because the store sent an object that could not be
// decoded at the time. Its cursors end with ErrTooOld.
func (c *Cache) Relist(ctx context.Context, prefix string) error {
	c.mu.Lock()
	k := c.kinds[prefix]
	c.mu.Unlock()
	if k == nil {
		return nil
	}
	return k.reset(ctx)
}

// begin opens the watch and starts the writer unless both are running.
func (c *Cache) begin(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return ErrClosed
	}
	if c.started {
		return nil
	}
	after := int64(0)
	if c.tap != nil {
		var err error
		if after, err = c.tap.Begin(ctx); err != nil {
			return fmt.Errorf("start the cache: %w", err)
		}
	}
	stream, err := c.store.Watch(ctx, Root, after)
	if err != nil {
		return fmt.Errorf("start the cache: %w", err)
	}
	c.started, c.stream = true, stream
	_ = stream.Progress(ctx) // learns where the stream begins; waitFor asks again
	c.work.Go(c.write)
	c.work.Go(c.trimming)
	return nil
}

// write is the only goroutine that changes kinds.
func (c *Cache) write() {
	for c.ctx.Err() == nil {
		b, err := c.stream.Next(c.ctx)
		if err != nil {
			if c.ctx.Err() == nil {
				c.restart(err)
			}
			continue
		}
		if c.tap != nil {
			c.tap.Changes(c.tapped(b.Events), b.Revision)
		}
		c.dispatch(b.Events)
		c.clock.reach(b.Revision)
	}
}

// trimming periodically frees what has not been used for a while, even without writes.
func (c *Cache) trimming() {
	tick := time.NewTicker(30 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case now := <-tick.C:
			c.trim(now)
		}
	}
}

// dispatch passes each event to the kind that its key belongs to.
func (c *Cache) dispatch(events []store.Event) {
	if len(events) == 0 {
		return
	}
	now := time.Now()
	// Pass runs of events of one kind together. A revision's events of one kind are adjacent, since
	// a transaction of the API server writes one object of a kind, or adds others after it.
	events, last := lastOnes(events)
	var run *Kind
	begin := 0
	for i := range events {
		if k := c.kindOf(events[i].KV.Key); k != run {
			if run != nil {
				run.deliver(events[begin:i], now)
			}
			run, begin = k, i
		}
	}
	if run != nil {
		run.deliver(events[begin:], now)
	}
	if len(last) == 0 {
		return
	}
	if k := c.kindOf(last[0].KV.Key); k != nil {
		k.deliver(last, now)
	}
}

// reports is the prefix of the API's Events. No component decides by them, so they may be shown
// after later changes of other kinds.
const reports = Root + "events/"

// lastOnes splits off the Events of a batch with other changes. Bindings come with their Events
// (ADR 0105), which would otherwise divide the bindings into runs of one.
func lastOnes(events []store.Event) (others, last []store.Event) {
	if len(events) <= 2 {
		return events, nil
	}
	others = make([]store.Event, 0, len(events))
	for _, e := range events {
		if strings.HasPrefix(e.KV.Key, reports) {
			last = append(last, e)
		} else {
			others = append(others, e)
		}
	}
	return others, last
}

// kindOf returns the kind of a key: "/registry/pods/ns/name" belongs to "/registry/pods".
func (c *Cache) kindOf(key string) *Kind {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(Root); i < len(key); i++ {
		if key[i] == '/' {
			if k, ok := c.kinds[key[:i]]; ok {
				return k
			}
		}
	}
	return nil
}

// restart opens the watch again after a failure: at the same revision or, if that was compacted,
// with new listings.
func (c *Cache) restart(cause error) {
	c.stream.Close()
	lost := false
	for wait := 10 * time.Millisecond; c.ctx.Err() == nil; wait = min(2*wait, 2*time.Second) {
		c.log.Warn("the watch of the store ended; opening it again", "error", cause)
		after := c.clock.reached.Load()
		lost = lost || after == 0 || errors.Is(cause, store.ErrCompacted)
		if lost {
			after = 0
		}
		stream, err := c.store.Watch(c.ctx, Root, after)
		if err == nil {
			c.mu.Lock()
			c.stream = stream
			c.mu.Unlock()
			if !lost {
				return
			}
			if err = c.reset(); err == nil {
				return
			}
			stream.Close()
		}
		cause = err
		select {
		case <-time.After(wait):
		case <-c.ctx.Done():
		}
	}
}

// reset lists every kind again.
func (c *Cache) reset() error {
	c.mu.Lock()
	kinds := make([]*Kind, 0, len(c.kinds))
	for _, k := range c.kinds {
		kinds = append(kinds, k)
	}
	c.mu.Unlock()
	revision, err := c.store.Revision(c.ctx)
	if err != nil {
		return err
	}
	for _, k := range kinds {
		if err := k.reset(c.ctx); err != nil {
			return err
		}
	}
	if c.tap != nil {
		c.tap.Missed(revision)
	}
	c.clock.reach(revision)
	return nil
}

func (c *Cache) trim(now time.Time) {
	c.mu.Lock()
	kinds := slices.Collect(maps.Values(c.kinds))
	c.mu.Unlock()
	for _, k := range kinds {
		k.trim(now)
	}
}

// WaitFor waits until all kinds contain the changes up to the revision. It returns ErrFuture if
// ctx's deadline comes first. A cache without kinds need not wait: a kind is listed as it is when
// it is opened.
func (c *Cache) WaitFor(ctx context.Context, revision int64) error {
	c.mu.Lock()
	none := !c.started
	c.mu.Unlock()
	if none || c.clock.reached.Load() >= revision {
		return nil
	}
	return c.clock.waitFor(ctx, revision)
}

// Reached returns the revision up to which the cache contains all changes.
func (c *Cache) Reached() int64 { return c.clock.reached.Load() }

// progress asks the stream for its progress.
func (c *Cache) progress(ctx context.Context) {
	c.mu.Lock()
	stream := c.stream
	c.mu.Unlock()
	if stream != nil {
		_ = stream.Progress(ctx) // if it fails, the writer notices too and restarts the watch
	}
}
