package scheduler

import (
	"context"
	"sync"

	"github.com/knarr-project/knarr/internal/client"
)

// lazyViews opens Views at the first use. It retries after a failure, and waits for the
// subscriptions at the end.
type lazyViews struct {
	open func() error
	mu   sync.Mutex
	done bool
	ends []<-chan struct{}
}

func (l *lazyViews) openOnce() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done {
		return nil
	}
	err := l.open()
	l.done = err == nil
	return err
}

// follow keeps subscriptions for wait. It returns when each has seen the existing objects; from
// then on it reports changes. Only open calls it.
func (l *lazyViews) follow(ctx context.Context, subscriptions ...subscription) {
	for _, sub := range subscriptions {
		l.ends = append(l.ends, sub.end)
		select {
		case <-sub.synced:
		case <-ctx.Done():
		}
	}
}

// wait returns when the subscriptions have ended. They end with their context.
func (l *lazyViews) wait() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, end := range l.ends {
		<-end
	}
}

type subscription struct{ synced, end <-chan struct{} }

// follow calls fn for the changes of a View, but not for the objects that exist already.
func follow[T client.Object](ctx context.Context, view client.ViewOf[T], fn func(client.TypedEvent[T])) (sub subscription) {
	subscribed := make(chan struct{})
	sub.synced, sub.end = view.Subscribe(ctx, func(e client.TypedEvent[T]) {
		<-subscribed
		select {
		case <-sub.synced:
			fn(e)
		default:
		}
	})
	close(subscribed)
	return sub
}

// openAs opens a View and stores it in the variable.
func openAs[T client.Object](ctx context.Context, c client.Interface, view *client.ViewOf[T]) error {
	v, err := client.Open[T](ctx, c, client.Scope{})
	*view = v
	return err
}
