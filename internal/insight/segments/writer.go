package segments

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// gather is how long a Writer waits for more after Wake, so that a busy server writes many at once.
const gather = 50 * time.Millisecond

// Work are the functions of a log that a Writer calls, one at a time.
type Work struct {
	// Drain takes what waits, so that views have it.
	Drain func()
	// Save writes what Drain has left in memory. It runs after the time of Due and at the end. Both
	// may be nil.
	Save func()
	Due  func() time.Duration
	// Close runs last.
	Close func()
}

// Writer is the goroutine of a log.
type Writer struct {
	wake, urgent chan struct{}
	flushes      chan chan struct{}
	stop, done   chan struct{}
	once         sync.Once
}

// NewWriter starts a Writer. Call Stop.
func NewWriter(work Work) *Writer {
	w := &Writer{
		wake: make(chan struct{}, 1), urgent: make(chan struct{}, 1), flushes: make(chan chan struct{}), stop: make(chan struct{}), done: make(chan struct{}),
	}
	if work.Save == nil {
		work.Save, work.Due = func() {}, func() time.Duration { return time.Hour }
	}
	go w.run(&work)
	return w
}

// Wake says that something waits. It never blocks.
func (w *Writer) Wake() { signal(w.wake) }

// Hurry is Wake for a buffer that fills: the Writer does not wait for more.
func (w *Writer) Hurry() { signal(w.urgent) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Flush returns when views have all that waited before the call.
func (w *Writer) Flush(ctx context.Context) error {
	answer := make(chan struct{})
	select {
	case w.flushes <- answer:
	case <-w.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-answer:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Stop drains, saves and ends the goroutine.
func (w *Writer) Stop() {
	w.once.Do(func() { close(w.stop) })
	<-w.done
}

func (w *Writer) run(work *Work) {
	defer close(w.done)
	more, gathering := time.NewTimer(gather), false
	defer more.Stop()
	due := time.NewTimer(work.Due())
	defer due.Stop()
	for {
		select {
		case <-w.wake:
			if !gathering {
				more.Reset(gather)
			}
			gathering = true
			continue
		case <-w.urgent:
			work.Drain()
		case <-more.C:
			gathering = false
			work.Drain()
		case <-due.C:
			work.Drain() // learns how far the log is
			work.Save()
		case answer := <-w.flushes:
			work.Drain()
			close(answer)
		case <-w.stop:
			work.Drain()
			work.Save()
			work.Close()
			return
		}
		due.Reset(work.Due())
	}
}

// Counter is a metric of a log: how many entries had a result.
func Counter(name, help, result string, value func() int64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: name, Help: help, ConstLabels: prometheus.Labels{"result": result},
	}, func() float64 { return float64(value()) })
}
