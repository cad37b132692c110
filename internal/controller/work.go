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
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/knarr-project/knarr/internal/insight/because"
)

// Backoff of a key whose Reconcile fails, as in upstream's work queues.
const (
	minBackoff = 5 * time.Millisecond
	maxBackoff = 1000 * time.Second
)

// terminalError is an error that a retry cannot cure.
type terminalError struct{ err error }

func (e terminalError) Error() string { return e.err.Error() }
func (e terminalError) Unwrap() error { return e.err }

// Terminal marks an error as one that a retry cannot cure: it is logged, and the key waits for its
// next event.
func Terminal(err error) error {
	if err == nil {
		return nil
	}
	return terminalError{err}
}

// Work is a queue of keys with workers that reconcile them. A key has one worker at a time, and a
// key added again while it waits is reconciled once. Loop uses it; a controller with keys of
// another type uses it directly.
type Work[K comparable] struct {
	causes    waitingCauses[K]
	name      string
	reconcile func(ctx context.Context, key K) (Result, error)
	queue     workqueue.TypedRateLimitingInterface[K]
	limiter   workqueue.TypedRateLimiter[K]
	meter     *meter
	log       *slog.Logger
}

// NewWork returns a queue. Keys can be added at once, and are reconciled once Run is called.
func NewWork[K comparable](name string, reconcile func(context.Context, K) (Result, error)) *Work[K] {
	return NewWorkOf(Env{}, name, reconcile)
}

// NewWorkOf is NewWork with the clock, the log and the metrics of a controller's environment.
func NewWorkOf[K comparable](env Env, name string, reconcile func(context.Context, K) (Result, error)) *Work[K] {
	var time clock.WithTicker = clock.RealClock{}
	if env.Clock != nil {
		time = env.Clock
	}
	if env.Queues == nil {
		env.Queues = NewQueueMetrics()
	}
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[K](minBackoff, maxBackoff)
	m := env.Queues.meter(name)
	order := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[K]{Queue: &fifo[K]{meter: m}})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[K]{Queue: order, Clock: calmClock{time}})
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[K]{DelayingQueue: delaying})
	return &Work[K]{name: name, log: env.Logger(), reconcile: reconcile, limiter: limiter, queue: queue, meter: m}
}

// calmClock reduces the wake-ups of an idle queue. A delaying queue has a ticker of ten seconds
// beside its timer, in case the timer fails: with forty queues, it wakes an idle process four times
// a second. Here it ticks once an hour.
type calmClock struct{ clock.WithTicker }

func (c calmClock) NewTicker(time.Duration) clock.Ticker { return c.WithTicker.NewTicker(time.Hour) }

// Add queues a key.
func (w *Work[K]) Add(key K) { w.queue.Add(key) }

// AddBecause queues a key because of a change, which has the given revision. Writes of Reconcile
// then name that change as a cause, if causes are recorded.
func (w *Work[K]) AddBecause(key K, revision int64) {
	w.causes.add(key, because.Of(revision))
	w.queue.Add(key)
}

// AddAfter queues a key after a delay. As upstream, the metrics count it as a retry.
func (w *Work[K]) AddAfter(key K, after time.Duration) {
	w.meter.retries.Inc()
	w.queue.AddAfter(key, after)
}

// Run reconciles keys until ctx ends, and returns when all workers have ended. Call it once.
func (w *Work[K]) Run(ctx context.Context, workers int) {
	w.causes.track(ctx)
	defer w.meter.running.add(w.meter)()
	var group sync.WaitGroup
	for range max(1, workers) {
		group.Go(func() { w.work(ctx) })
	}
	<-ctx.Done()
	w.queue.ShutDown()
	group.Wait()
}

func (w *Work[K]) work(ctx context.Context) {
	for {
		key, shutdown := w.queue.Get()
		if shutdown {
			return
		}
		if ctx.Err() == nil {
			done := w.meter.begin()
			w.process(ctx, key)
			done()
		}
		w.queue.Done(key)
	}
}

// process reconciles a key and decides when to reconcile it again.
func (w *Work[K]) process(ctx context.Context, key K) {
	causes := w.causes.take(key)
	result, err := w.safely(because.With(ctx, causes), key)
	if err != nil || result.After > 0 {
		w.causes.add(key, causes) // for the next attempt
	}
	var terminal terminalError
	switch {
	case err == nil:
		w.queue.Forget(key)
		if result.After > 0 {
			w.AddAfter(key, result.After)
		}
	case ctx.Err() != nil:
	case apierrors.IsConflict(err):
		// Another writer was first. Its write reaches the View in a moment, so retry at once; back
		// off only if that does not help.
		if again := w.queue.NumRequeues(key) > 0; again {
			w.meter.retries.Inc()
			w.queue.AddRateLimited(key)
		} else {
			w.limiter.When(key)
			w.queue.Add(key)
		}
	case errors.As(err, &terminal):
		w.queue.Forget(key)
		if result.After == 0 {
			w.log.Error("controller gives up on object until it changes", "controller", w.name, "key", fmt.Sprint(key), "error", err)
		} else { // such as an autoscaler without metrics, which every new pod lacks at first
			w.log.Info("controller will check again", "controller", w.name, "key", fmt.Sprint(key), "again", result.After, "error", err)
		}
		if result.After > 0 {
			w.AddAfter(key, result.After)
		}
	default:
		w.log.Warn("controller will retry", "controller", w.name, "key", fmt.Sprint(key), "retries", w.queue.NumRequeues(key), "error", err)
		w.meter.retries.Inc()
		w.queue.AddRateLimited(key)
	}
}

// safely turns a panic of Reconcile into an error: one bad object must not end the process.
func (w *Work[K]) safely(ctx context.Context, key K) (result Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return w.reconcile(ctx, key)
}
