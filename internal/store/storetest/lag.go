package storetest

import (
	"context"
	"sync"

	"github.com/knarr-project/knarr/internal/store"
)

// Lagging is a store whose changes can be held back, as a server that is behind sees them late.
// Reads and writes are not delayed.
type Lagging struct {
	store.Store
	mu   sync.Mutex
	open chan struct{} // closed while changes pass
}

// Lag returns a lagging store. Changes pass until Hold is called.
func Lag(s store.Store) *Lagging {
	l := &Lagging{Store: s, open: make(chan struct{})}
	close(l.open)
	return l
}

// Hold holds back all further changes until pass is called.
func (l *Lagging) Hold() (pass func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	open := make(chan struct{})
	l.open = open
	return sync.OnceFunc(func() { close(open) })
}

// Watch implements store.Store.
func (l *Lagging) Watch(ctx context.Context, prefix string, after int64) (store.Stream, error) {
	s, err := l.Store.Watch(ctx, prefix, after)
	if err != nil {
		return nil, err
	}
	return &laggingStream{Stream: s, store: l}, nil
}

type laggingStream struct {
	store.Stream
	store *Lagging
	taken *store.Batch // read by a call of Next that ended while changes were held
}

// Next implements store.Stream.
func (s *laggingStream) Next(ctx context.Context) (store.Batch, error) {
	if s.taken == nil {
		b, err := s.Stream.Next(ctx)
		if err != nil {
			return b, err
		}
		s.taken = &b
	}
	s.store.mu.Lock()
	open := s.store.open
	s.store.mu.Unlock()
	select {
	case <-open:
		b := *s.taken
		s.taken = nil
		return b, nil
	case <-ctx.Done():
		return store.Batch{}, ctx.Err()
	}
}
