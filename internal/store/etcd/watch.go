package etcd

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/knarr-project/knarr/internal/store"
)

// stream is a watch of the embedded engine. Next drains the channel of etcd's own watcher. If the
// channel is full because the reader is slow, etcd later reads the missed events from its history,
// so none is lost unless it was compacted.
type stream struct {
	engine *Engine
	ws     mvcc.WatchStream
	id     mvcc.WatchID
	prefix string
	last   atomic.Int64 // highest revision delivered
	// broken is an error that Next found behind other changes.
	broken error

	closeOnce sync.Once
	closed    chan struct{}
}

// Watch streams changes below prefix.
func (e *Engine) Watch(ctx context.Context, prefix string, after int64) (store.Stream, error) {
	done, err := e.read()
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", prefix, err)
	}
	defer done()
	if after == 0 {
		if err := e.current(ctx, 0); err != nil {
			return nil, fmt.Errorf("watch %s: %w", prefix, err)
		}
	}
	first, end := bounds(prefix, "")
	var from int64 // 0: the next revision
	if after > 0 {
		from = after + 1
	}
	ws := e.server.Watchable().NewWatchStream()
	id, err := ws.Watch(0, first, end, from)
	if err != nil {
		ws.Close()
		return nil, fmt.Errorf("watch %s: %w", prefix, err)
	}
	s := &stream{engine: e, ws: ws, id: id, prefix: prefix, closed: make(chan struct{})}
	s.last.Store(after)
	return s, nil
}

func (s *stream) Next(ctx context.Context) (store.Batch, error) {
	if s.broken != nil {
		return store.Batch{}, s.broken
	}
	for {
		select {
		case r, ok := <-s.ws.Chan():
			if !ok {
				return store.Batch{}, s.failed(store.ErrUnavailable)
			}
			b, ok, err := s.batch(r)
			if err != nil {
				return b, err
			}
			if ok {
				s.gather(&b)
				return b, nil
			}
		case <-s.closed:
			return store.Batch{}, s.failed(store.ErrUnavailable)
		case <-s.engine.server.StopNotify():
			return store.Batch{}, s.failed(store.ErrUnavailable)
		case <-ctx.Done():
			return store.Batch{}, s.failed(ctx.Err())
		}
	}
}

// gatherUpTo is the number of changes from which a batch is not extended.
const gatherUpTo = 128

// gather adds the changes that are already there to the batch. Under load etcd applies the writes
// of one sync together, and a reader that takes them together has less work for each.
func (s *stream) gather(b *store.Batch) {
	for len(b.Events) < gatherUpTo {
		select {
		case r, ok := <-s.ws.Chan():
			if !ok {
				s.broken = s.failed(store.ErrUnavailable)
				return
			}
			more, ok, err := s.batch(r)
			if err != nil {
				s.broken = err
				return
			}
			if ok {
				b.Events, b.Revision = append(b.Events, more.Events...), more.Revision
			}
		default:
			return
		}
	}
}

// batch converts an answer of etcd; false if it contains no news.
func (s *stream) batch(r mvcc.WatchResponse) (store.Batch, bool, error) {
	if r.CompactRevision != 0 {
		return store.Batch{}, false, s.failed(fmt.Errorf("%w: the oldest revision kept is %d", store.ErrCompacted, r.CompactRevision))
	}
	if len(r.Events) == 0 {
		if r.Revision < s.last.Load() {
			return store.Batch{}, false, nil
		}
		s.last.Store(s.engine.observe(r.Revision))
		return store.Batch{Revision: r.Revision}, true, nil
	}
	// The answer's revision is the store's at that time. While the watcher catches up, more events
	// up to it may follow.
	b := store.Batch{Events: make([]store.Event, len(r.Events))}
	for i := range r.Events {
		b.Events[i] = event(r.Events[i].Type, r.Events[i].Kv)
	}
	b.Revision = b.Events[len(b.Events)-1].KV.ModRevision
	s.last.Store(s.engine.observe(b.Revision))
	return b, true, nil
}

func (s *stream) failed(err error) error {
	return fmt.Errorf("watch %s after revision %d: %w", s.prefix, s.last.Load(), err)
}

// Progress asks etcd for the watcher's progress. etcd answers only an up-to-date watcher; one that
// catches up gets events instead.
func (s *stream) Progress(context.Context) error {
	done, err := s.engine.read()
	if err != nil {
		return s.failed(err)
	}
	defer done()
	select {
	case <-s.closed:
		return s.failed(store.ErrUnavailable)
	default:
	}
	s.ws.RequestProgress(s.id)
	return nil
}

func (s *stream) Close() {
	s.closeOnce.Do(func() {
		close(s.closed)
		s.ws.Close()
	})
}
