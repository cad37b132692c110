package otlp

import (
	"context"
	"encoding/binary"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/knarr-project/knarr/internal/insight/causes"
	story "github.com/knarr-project/knarr/internal/insight/trace"
	"github.com/knarr-project/knarr/internal/trace"
)

const (
	// queueRecords bounds the records that wait: less than 1 MB.
	queueRecords = 2048
	// knownWrites bounds the writes whose trace is known: about 2 MB.
	knownWrites = 16384
	// batchSpans and batchWait bound a message to the collector.
	batchSpans = 512
	batchWait  = time.Second
	// lookups bounds the questions to the causal logs in one batch: for the causes of writes at
	// other servers, and of before the start.
	lookups = 16
	// maxWaiting bounds the records that wait for the record of their cause, and maxTries the
	// batches for which they wait: a server may react to a write before its writer records it.
	maxWaiting, maxTries = 512, 5
	// sendTimeout bounds one message, with its retries.
	sendTimeout = 10 * time.Second
	// complainEvery is the least time between two warnings about the collector.
	complainEvery = time.Minute
)

// Options are the settings of an Exporter.
type Options struct {
	Uploader trace.Uploader
	// PerMillion is the number of changes of a million that are exported. Those of requests that a
	// client has chosen for its own trace are always exported.
	PerMillion int32
	// Instance identifies the server in its spans.
	Instance string
	Log      *slog.Logger
}

// Backward returns what led to a write, over all servers.
type Backward func(ctx context.Context, revision int64) ([]causes.Record, error)

// Exporter sends the writes of the causal log to a collector.
type Exporter struct {
	opts  Options
	queue chan causes.Record
	stop  context.CancelFunc
	done  sync.WaitGroup

	exported, dropped, failed, unsampled, unrelated atomic.Int64

	// Used by the exporter's goroutine only.
	backward   Backward
	known      map[int64]member
	order      []int64 // revisions of known, oldest first
	waiting    []waiting
	absent     map[int64]bool // revisions that the logs do not have, in this batch
	complained time.Time
}

// member is a write whose trace is known; trace is zero for one without a change of a user.
type member struct {
	trace   traceID
	at      time.Time
	sampled bool
}

// waiting is a record whose cause is not known yet.
type waiting struct {
	causes.Record
	tries int
}

// New makes an Exporter. Until Start, it queues records.
func New(opts Options) *Exporter {
	return &Exporter{opts: opts, queue: make(chan causes.Record, queueRecords), known: map[int64]member{}, stop: func() {}}
}

// Start begins to send. backward finds the causes that this server has not written.
func (e *Exporter) Start(backward Backward) {
	ctx, cancel := context.WithCancel(context.Background())
	e.backward, e.stop = backward, cancel
	e.done.Go(func() { e.run(ctx) })
}

// Append queues a record. It never waits.
func (e *Exporter) Append(r *causes.Record) {
	select {
	case e.queue <- *r:
	default:
		e.dropped.Add(1)
	}
}

// Close sends what is queued, as far as the collector answers, and stops.
func (e *Exporter) Close() {
	e.stop()
	e.done.Wait()
}

// Collectors returns the metrics: spans by what came of them.
func (e *Exporter) Collectors() (out []prometheus.Collector) {
	for result, n := range map[string]*atomic.Int64{
		"exported": &e.exported, "dropped": &e.dropped, "failed": &e.failed, "unsampled": &e.unsampled, "unrelated": &e.unrelated,
	} {
		out = append(out, prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "knarr_causal_spans_total", Help: "Writes for OpenTelemetry traces of changes, by result.",
			ConstLabels: prometheus.Labels{"result": result},
		}, func() float64 { return float64(n.Load()) }))
	}
	return out
}

func (e *Exporter) run(ctx context.Context) {
	started := e.opts.Uploader.Start(ctx) == nil // for gRPC, it does not connect yet
	again := time.NewTimer(batchWait)
	defer again.Stop()
	for ctx.Err() == nil {
		var tick <-chan time.Time
		if len(e.waiting) > 0 {
			again.Reset(batchWait)
			tick = again.C
		}
		select {
		case <-ctx.Done():
		case r := <-e.queue:
			e.send(ctx, e.batch(ctx, &r))
		case <-tick:
			e.send(ctx, e.batch(ctx, nil))
		}
	}
	last, cancel := context.WithTimeout(context.Background(), sendTimeout/2)
	defer cancel()
	for (len(e.queue) > 0 || len(e.waiting) > 0) && last.Err() == nil {
		e.send(last, e.batch(last, nil))
	}
	if started {
		_ = e.opts.Uploader.Stop(last)
	}
}

// batch gathers the spans of records for a moment: of those that wait, of first, which may be nil,
// and of the queue.
func (e *Exporter) batch(ctx context.Context, first *causes.Record) *grouped {
	g, left := &grouped{}, lookups
	before := e.waiting
	e.waiting, e.absent = nil, map[int64]bool{}
	for i := range before {
		e.take(ctx, g, &before[i], &left)
	}
	if first != nil {
		e.take(ctx, g, &waiting{Record: *first}, &left)
	}
	timer := time.NewTimer(batchWait)
	defer timer.Stop()
	for g.count < batchSpans {
		select {
		case r := <-e.queue:
			e.take(ctx, g, &waiting{Record: r}, &left)
			continue
		default:
		}
		if first == nil {
			return g
		}
		select {
		case r := <-e.queue:
			e.take(ctx, g, &waiting{Record: r}, &left)
		case <-timer.C:
			return g
		case <-ctx.Done():
			return g
		}
	}
	return g
}

func (e *Exporter) send(ctx context.Context, g *grouped) {
	if g.count == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendTimeout)
	defer cancel()
	if err := e.opts.Uploader.UploadTraces(ctx, g.resources(e.opts.Instance)); err != nil {
		e.failed.Add(int64(g.count))
		if time.Since(e.complained) > complainEvery {
			e.complained = time.Now()
			e.opts.Log.Warn("traces of changes could not be sent", "spans", g.count, "dropped", e.dropped.Load(), "err", err)
		}
		return
	}
	e.exported.Add(int64(g.count))
}

// take adds the span of a record, if it belongs to a change that is exported. If its cause is not
// known yet, the record waits.
func (e *Exporter) take(ctx context.Context, g *grouped, w *waiting, lookups *int) {
	r := &w.Record
	m, cause, known := e.place(ctx, r, lookups)
	if !known && w.tries < maxTries && len(e.waiting) < maxWaiting {
		e.waiting = append(e.waiting, waiting{*r, w.tries + 1})
		return
	}
	e.remember(r.Revision, m)
	switch {
	case m.trace == traceID{}:
		e.unrelated.Add(1)
	case !m.sampled:
		e.unsampled.Add(1)
	default:
		g.add(service(r.Actor, story.Maker(r)), e.span(r, m, cause))
	}
}

// place finds the trace of a write, and its newest cause in it; 0 for a root. known is false if a
// cause is not known.
func (e *Exporter) place(ctx context.Context, r *causes.Record, lookups *int) (m member, cause int64, known bool) {
	if r.Begins() {
		return e.rootOf(r, r.Time), 0, true
	}
	list := slices.Clone(r.Because.All())
	slices.Sort(list)
	known = true
	for _, revision := range slices.Backward(list) {
		if revision >= r.Revision {
			continue
		}
		from, found := e.known[revision]
		if !found && *lookups > 0 && !e.absent[revision] {
			*lookups--
			from, found = e.lookUp(ctx, revision)
		}
		known = known && found
		// A write that names a cause of hours ago did not come of it.
		if from.trace != (traceID{}) && r.Time.Sub(from.at) <= causes.Pause {
			return member{from.trace, r.Time, from.sampled}, revision, true
		}
	}
	return member{at: r.Time}, 0, known
}

// rootOf is the trace that a change begins; at is the time of the write that belongs to it.
func (e *Exporter) rootOf(root *causes.Record, at time.Time) member {
	in := traceOf(root)
	_, _, chosen, _ := parseParent(root.Trace)
	return member{in, at, chosen || e.samples(in)}
}

// lookUp asks the causal logs for the change that led to a write. ok is false if they do not have
// the write.
func (e *Exporter) lookUp(ctx context.Context, revision int64) (m member, ok bool) {
	found, err := e.backward(ctx, revision)
	at := slices.IndexFunc(found, func(r causes.Record) bool { return r.Revision == revision })
	if err != nil || at < 0 {
		e.absent[revision] = true
		return m, false
	}
	for _, root := range slices.Backward(found) {
		if root.Begins() {
			m = e.rootOf(&root, found[at].Time)
			break
		}
	}
	e.remember(revision, m)
	return m, true
}

func (e *Exporter) remember(revision int64, m member) {
	if _, known := e.known[revision]; !known {
		if len(e.order) >= knownWrites {
			delete(e.known, e.order[0])
			e.order = e.order[1:]
		}
		e.order = append(e.order, revision)
	}
	e.known[revision] = m
}

// samples decides as OpenTelemetry's TraceIDRatioBased: the same on all servers.
func (e *Exporter) samples(in traceID) bool {
	return binary.BigEndian.Uint64(in[8:])>>1 < uint64(float64(e.opts.PerMillion)/1e6*(1<<63))
}

// span makes the span of a write: from its newest cause to its commit.
func (e *Exporter) span(r *causes.Record, m member, cause int64) *tracev1.Span {
	began, own := r.Time, spanOf(m.trace, r.Revision)
	s := &tracev1.Span{
		TraceId: m.trace[:], SpanId: own[:], Kind: tracev1.Span_SPAN_KIND_INTERNAL, Name: spanName(r.Verb, r.Resource, r.Subresource),
		Attributes: append(objectAttributes(&r.Object, r.UID), text("knarr.actor", r.Actor), text("knarr.effect", string(r.Effect)), number("knarr.revision", r.Revision)),
	}
	if cause != 0 {
		parent := spanOf(m.trace, cause)
		s.ParentSpanId = parent[:]
		if at := e.known[cause].at; at.Before(began) {
			began = at
		}
	}
	for _, other := range r.Because.All() {
		if from := e.known[other]; other != cause && from.trace != (traceID{}) {
			s.Links = append(s.Links, link(from.trace, spanOf(from.trace, other), "because"))
		}
	}
	if in, span, _, ok := parseParent(r.Trace); ok {
		s.Links = append(s.Links, link(in, span, "request"))
	}
	if r.Request != "" {
		s.Attributes = append(s.Attributes, text("audit-id", r.Request))
	}
	if r.Note != "" {
		s.Attributes = append(s.Attributes, text("knarr.note", r.Note))
	}
	s.StartTimeUnixNano, s.EndTimeUnixNano = uint64(began.UnixNano()), uint64(r.Time.UnixNano())
	return s
}

// spanName is short, and the same for all objects of a kind.
func spanName(verb, resource, subresource string) string {
	if subresource != "" {
		resource += "/" + subresource
	}
	return verb + " " + resource
}
