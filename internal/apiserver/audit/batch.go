package audit

import (
	"context"
	"errors"
	"sync"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/util/flowcontrol"
)

// Batching configures batches of events.
type Batching struct {
	// Buffer is how many events may wait; more are lost. A batch ends at MaxSize events, or MaxWait
	// after the first.
	Buffer, MaxSize int
	MaxWait         time.Duration
	// QPS and Burst limit the rate of batches; a QPS of 0 does not.
	QPS   float32
	Burst int
	// MaxBytes splits batches whose encoding is larger; 0 does not.
	MaxBytes int
}

// Lost is called for events that were accepted and could not be written.
type Lost func(events int, err error)

// batches collects events for a slow destination.
type batches struct {
	Batching
	events  chan *auditv1.Event
	send    func(ctx context.Context, events []*auditv1.Event) error
	lost    Lost
	closing chan struct{}
	done    chan struct{}

	// Guards closed; read-locked during Put, so that no event follows the last batch.
	mu     sync.RWMutex
	closed bool
}

func newBatches(b Batching, lost Lost, send func(ctx context.Context, events []*auditv1.Event) error) *batches {
	out := &batches{Batching: b, events: make(chan *auditv1.Event, b.Buffer), send: send, closing: make(chan struct{}), done: make(chan struct{}), lost: lost}
	go func() { defer close(out.done); out.run() }()
	return out
}

var (
	errFull   = errors.New("the buffer of audit events is full")
	errClosed = errors.New("the audit log is closed")
)

func (b *batches) Put(event *auditv1.Event) error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.closed {
		return errClosed
	}
	select {
	case b.events <- event:
		return nil
	default:
		return errFull
	}
}

// closeTimeout limits the writing of the last batches.
const closeTimeout = 10 * time.Second

func (b *batches) Close() error {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		close(b.closing)
	}
	b.mu.Unlock()
	select {
	case <-b.done:
		return nil
	case <-time.After(closeTimeout):
		return errors.New("the last audit events were not written in time")
	}
}

func (b *batches) run() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var limit flowcontrol.RateLimiter = flowcontrol.NewFakeAlwaysRateLimiter()
	if b.QPS > 0 {
		limit = flowcontrol.NewTokenBucketRateLimiter(b.QPS, max(b.Burst, 1))
	}
	for last := false; !last; {
		var batch []*auditv1.Event
		batch, last = b.collect()
		if len(batch) == 0 {
			continue
		}
		if !last {
			limit.Accept()
		}
		for _, part := range b.parts(batch) {
			if err := b.send(ctx, part); err != nil {
				b.lost(len(part), err)
			}
		}
	}
}

// collect waits for a first event, and then for more until the batch is full or old enough. last
// reports that no event will follow.
func (b *batches) collect() (batch []*auditv1.Event, last bool) {
	select {
	case event := <-b.events:
		batch = append(batch, event)
	case <-b.closing:
		return b.drain(nil), len(b.events) == 0
	}
	timer := time.NewTimer(b.MaxWait)
	defer timer.Stop()
	for len(batch) < b.MaxSize {
		select {
		case event := <-b.events:
			batch = append(batch, event)
		case <-timer.C:
			return batch, false
		case <-b.closing:
			return b.drain(batch), len(b.events) == 0
		}
	}
	return batch, false
}

func (b *batches) drain(batch []*auditv1.Event) []*auditv1.Event {
	for len(batch) < b.MaxSize {
		select {
		case event := <-b.events:
			batch = append(batch, event)
		default:
			return batch
		}
	}
	return batch
}

// parts splits a batch so that no part is larger than MaxBytes, unless a single event is.
func (b *batches) parts(batch []*auditv1.Event) (parts [][]*auditv1.Event) {
	if b.MaxBytes == 0 {
		return [][]*auditv1.Event{batch}
	}
	start, size := 0, 0
	for i, event := range batch {
		n := sizeOf(event)
		if i > start && size+n > b.MaxBytes {
			parts = append(parts, batch[start:i])
			start, size = i, 0
		}
		size += n
	}
	return append(parts, batch[start:])
}

// Batched returns a Sink that queues events for another Sink.
func Batched(sink Sink, b Batching, lost Lost) Sink {
	return &batchedSink{batches: newBatches(b, lost, func(_ context.Context, events []*auditv1.Event) error {
		// Report each failure separately, because the other events may have been written.
		for _, e := range events {
			if err := sink.Put(e); err != nil {
				lost(1, err)
			}
		}
		return nil
	}), sink: sink}
}

type batchedSink struct {
	*batches
	sink Sink
}

func (b *batchedSink) Close() error { return errors.Join(b.batches.Close(), b.sink.Close()) }
