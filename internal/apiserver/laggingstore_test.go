package apiserver

import (
	"context"
	"sync"

	"github.com/knarr-project/knarr/internal/store"
)

// lagging is a store whose changes are held back at will, as they come late to a server that is behind: reads and writes are as ever.
type lagging struct {
	store.Store
	mu   sync.Mutex
	open chan struct{} // closed while changes pass
}

// lag makes a store lag. Changes pass until they are held.
func lag(s store.Store) *lagging {
	l := &lagging{Store: s, open: make(chan struct{})}
	close(l.open)
	return l
}

// hold keeps back all changes from now on, until pass is called.
func (l *lagging) hold() (pass func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	open := make(chan struct{})
	l.open = open
	return sync.OnceFunc(func() { close(open) })
}

func (l *lagging) Watch(ctx context.Context, prefix string, after int64) (store.Stream, error) {
	s, err := l.Store.Watch(ctx, prefix, after)
	if err != nil {
		return nil, err
	}
	return laggingStream{s, l}, nil
}

type laggingStream struct {
	store.Stream
	store *lagging
}

func (s laggingStream) Next(ctx context.Context) (store.Batch, error) {
	b, err := s.Stream.Next(ctx)
	s.store.mu.Lock()
	open := s.store.open
	s.store.mu.Unlock()
	select {
	case <-open:
	case <-ctx.Done():
	}
	return b, err
}
