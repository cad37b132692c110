package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/util/workqueue"

	"github.com/knarr-project/knarr/internal/client"
)

// Backoff of a key whose Reconcile fails, as upstream's work queues.
const (
	minBackoff = 5 * time.Millisecond
	maxBackoff = 1000 * time.Second
)

// terminalError is an error that trying again does not cure.
type terminalError struct{ err error }

func (e terminalError) Error() string { return e.err.Error() }
func (e terminalError) Unwrap() error { return e.err }

// Terminal marks an error as one that a retry does not cure: it is logged, and the key waits for its next event.
func Terminal(err error) error {
	if err == nil {
		return nil
	}
	return terminalError{err}
}

// running is the state of one Run of a Loop.
type running struct {
	*Loop
	queue   workqueue.TypedRateLimitingInterface[Key]
	limiter workqueue.TypedRateLimiter[Key]
}

// Run subscribes to the inputs, waits until each has shown what there is, and reconciles keys until ctx ends. It
// returns after every goroutine it started has ended; the error is only ever that of a loop built wrongly.
func (l *Loop) Run(ctx context.Context) error {
	if l.Reconcile == nil {
		return fmt.Errorf("controller loop %s has no Reconcile", l.Name)
	}
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[Key](minBackoff, maxBackoff)
	r := &running{
		Loop:    l,
		queue:   workqueue.NewTypedRateLimitingQueue[Key](limiter),
		limiter: limiter,
	}
	var ended []<-chan struct{}
	var synced []<-chan struct{}
	for _, in := range l.Inputs {
		s, d := in.View.Subscribe(ctx, func(e client.Event) {
			for _, k := range in.Keys(e) {
				r.queue.Add(k)
			}
		})
		synced, ended = append(synced, s), append(ended, d)
	}
	for _, s := range synced {
		select {
		case <-s:
		case <-ctx.Done():
		}
	}

	var group sync.WaitGroup
	for range max(1, l.Workers) {
		group.Go(func() { r.work(ctx) })
	}
	for _, source := range l.Sources {
		group.Go(func() { source(ctx, r.queue.AddAfter) })
	}
	if l.Resync > 0 && len(l.Inputs) > 0 {
		group.Go(func() { r.resync(ctx) })
	}
	<-ctx.Done()
	r.queue.ShutDown()
	group.Wait()
	for _, d := range ended {
		<-d
	}
	return nil
}

func (r *running) work(ctx context.Context) {
	for {
		key, shutdown := r.queue.Get()
		if shutdown {
			return
		}
		if ctx.Err() == nil {
			r.one(ctx, key)
		}
		r.queue.Done(key)
	}
}

// one reconciles a key and decides when to look at it again.
func (r *running) one(ctx context.Context, key Key) {
	result, err := r.safely(ctx, key)
	var terminal terminalError
	switch {
	case err == nil:
		r.queue.Forget(key)
		if result.After > 0 {
			r.queue.AddAfter(key, result.After)
		}
	case ctx.Err() != nil:
	case apierrors.IsConflict(err):
		// Somebody else wrote first. Their write reaches the View in a moment, so look again at once; only when that
		// does not help, back off.
		if again := r.queue.NumRequeues(key) > 0; again {
			r.queue.AddRateLimited(key)
		} else {
			r.limiter.When(key)
			r.queue.Add(key)
		}
	case errors.As(err, &terminal):
		slog.Error("controller gave up on object until it changes", "controller", r.Name, "key", key.String(), "error", err)
		r.queue.Forget(key)
		if result.After > 0 {
			r.queue.AddAfter(key, result.After)
		}
	default:
		slog.Warn("controller will retry", "controller", r.Name, "key", key.String(), "retries", r.queue.NumRequeues(key), "error", err)
		r.queue.AddRateLimited(key)
	}
}

// safely turns a panic of Reconcile into an error: one odd object must not end the process.
func (r *running) safely(ctx context.Context, key Key) (result Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return r.Reconcile(ctx, key)
}

func (r *running) resync(ctx context.Context) {
	ticker := time.NewTicker(r.Resync)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			first := r.Inputs[0]
			for _, obj := range first.View.List("", nil) {
				for _, k := range first.Keys(client.Event{Type: client.Modified, Old: obj, Object: obj}) {
					r.queue.Add(k)
				}
			}
		}
	}
}

// KeyOf is an object's key.
func KeyOf(obj any) Key {
	m, err := meta.Accessor(obj)
	if err != nil {
		panic(fmt.Sprintf("controller: %T has no metadata: %v", obj, err))
	}
	return Key{Namespace: m.GetNamespace(), Name: m.GetName()}
}

// Self is the input of a loop whose keys are the View's own objects.
func Self[T client.Object](view client.ViewOf[T]) Input {
	return Input{View: view.View, Keys: func(e client.Event) []Key { return []Key{KeyOf(e.Object)} }}
}

// On is an input with typed events.
func On[T client.Object](view client.ViewOf[T], keys func(client.TypedEvent[T]) []Key) Input {
	return Input{View: view.View, Keys: func(e client.Event) []Key {
		t := client.TypedEvent[T]{Type: e.Type, Object: e.Object.(T)}
		if e.Old != nil {
			t.Old = e.Old.(T)
		}
		return keys(t)
	}}
}

// States calls fn for each state that an event carries (the old and the new one), collecting keys without repeats: an
// object that moves from one owner to another concerns both.
func States[T client.Object](fn func(T) []Key) func(client.TypedEvent[T]) []Key {
	return func(e client.TypedEvent[T]) []Key {
		keys := fn(e.Object)
		if e.Type != client.Modified {
			return keys
		}
		for _, k := range fn(e.Old) {
			if !contains(keys, k) {
				keys = append(keys, k)
			}
		}
		return keys
	}
}

func contains(keys []Key, k Key) bool {
	for _, have := range keys {
		if have == k {
			return true
		}
	}
	return false
}
