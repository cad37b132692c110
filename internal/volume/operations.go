package volume

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// operations runs steps that can hang: calls of drivers, and access to file systems that do not
// answer. Each step has a goroutine and a deadline. The kernel may hold a goroutine beyond its
// deadline; the caller goes on meanwhile, and steps with other keys are not affected.
type operations struct {
	mu      sync.Mutex // guards running
	running map[string]*operation
}

type operation struct {
	since time.Time
	done  chan struct{}
}

func newOperations() *operations { return &operations{running: map[string]*operation{}} }

// do runs fn and returns its error. Only one step with this key runs at a time, so do waits for an
// earlier one. It returns an error when limit has passed, whether fn has ended or not.
func (o *operations) do(ctx context.Context, key string, limit time.Duration, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	current, err := o.enter(ctx, key)
	if err != nil {
		cancel()
		return err
	}
	result := make(chan error, 1)
	go func() {
		defer cancel()
		defer o.leave(key, current)
		result <- fn(ctx)
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
	}
	// fn usually returns with its context, and its error says more.
	select {
	case err := <-result:
		return err
	case <-time.After(100 * time.Millisecond):
		return fmt.Errorf("no answer for %v: %w", time.Since(current.since).Round(time.Second), ctx.Err())
	}
}

// enter waits for the key and takes it.
func (o *operations) enter(ctx context.Context, key string) (*operation, error) {
	for {
		o.mu.Lock()
		before := o.running[key]
		if before == nil {
			current := &operation{since: time.Now(), done: make(chan struct{})}
			o.running[key] = current
			o.mu.Unlock()
			return current, nil
		}
		o.mu.Unlock()
		select {
		case <-before.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("an earlier operation on the volume has not ended for %v", time.Since(before.since).Round(time.Second))
		}
	}
}

func (o *operations) leave(key string, current *operation) {
	o.mu.Lock()
	delete(o.running, key)
	o.mu.Unlock()
	close(current.done)
}

// idle waits until no step runs whose key has the prefix, but at most limit.
func (o *operations) idle(ctx context.Context, prefix string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		key, before := o.anyOf(prefix)
		if before == nil {
			return nil
		}
		select {
		case <-before.done:
		case <-ctx.Done():
			return fmt.Errorf("volume %s: an earlier operation has not ended for %v", strings.TrimPrefix(key, prefix), time.Since(before.since).Round(time.Second))
		}
	}
}

func (o *operations) anyOf(prefix string) (string, *operation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, current := range o.running {
		if strings.HasPrefix(key, prefix) {
			return key, current
		}
	}
	return "", nil
}
