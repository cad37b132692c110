package controller

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// QueueMetrics counts the work of queues, under upstream's names. Safe for concurrent use.
type QueueMetrics struct {
	adds, retries *prometheus.CounterVec
	waits, work   *prometheus.HistogramVec
	running       queues
}

// NewQueueMetrics returns metrics for the queues of one registry.
func NewQueueMetrics() *QueueMetrics {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "workqueue_" + name, Help: help}, []string{"name"})
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "workqueue_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(10e-9, 10, 10),
		}, []string{"name"})
	}
	return &QueueMetrics{
		adds:    counter("adds_total", "Total number of adds handled by workqueue"),
		retries: counter("retries_total", "Total number of retries handled by workqueue"),
		waits:   histogram("queue_duration_seconds", "How long in seconds an item stays in workqueue before being requested."),
		work:    histogram("work_duration_seconds", "How long in seconds processing an item from workqueue takes."),
	}
}

// Collectors returns the metrics to register.
func (m *QueueMetrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.adds, m.retries, m.waits, m.work, &m.running}
}

var (
	descDepth = prometheus.NewDesc("workqueue_depth", "Current depth of workqueue", []string{"name"}, nil)
	descOpen  = prometheus.NewDesc("workqueue_unfinished_work_seconds",
		"How many seconds of work has done that is in progress and hasn't been observed by work_duration. Large values indicate stuck threads. One can deduce the number of stuck threads by observing the rate at which this increases.",
		[]string{"name"}, nil)
	descLongest = prometheus.NewDesc("workqueue_longest_running_processor_seconds", "How many seconds has the longest running processor for workqueue been running.", []string{"name"}, nil)
)

// queues holds the running queues.
type queues struct {
	mu   sync.Mutex
	open map[*meter]struct{}
}

func (q *queues) add(m *meter) (remove func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.open == nil {
		q.open = map[*meter]struct{}{}
	}
	q.open[m] = struct{}{}
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.open, m)
	}
}

// Describe implements prometheus.Collector.
func (q *queues) Describe(ch chan<- *prometheus.Desc) {
	ch <- descDepth
	ch <- descOpen
	ch <- descLongest
}

// Collect implements prometheus.Collector. Queues of one name are added up.
func (q *queues) Collect(ch chan<- prometheus.Metric) {
	type sums struct{ depth, open, longest float64 }
	byName := map[string]sums{}
	q.mu.Lock()
	for m := range q.open {
		s := byName[m.name]
		m.mu.Lock()
		s.depth += float64(m.depth)
		for _, since := range m.busy {
			seconds := time.Since(since).Seconds()
			s.open += seconds
			s.longest = max(s.longest, seconds)
		}
		m.mu.Unlock()
		byName[m.name] = s
	}
	q.mu.Unlock()
	for name, s := range byName {
		for d, v := range map[*prometheus.Desc]float64{descDepth: s.depth, descOpen: s.open, descLongest: s.longest} {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, name)
		}
	}
}

// meter measures one queue. Values that grow with time are computed when the metrics are read.
type meter struct {
	running       *queues
	name          string
	adds, retries prometheus.Counter
	waits, work   prometheus.Observer

	mu    sync.Mutex // guards the fields below
	depth int
	next  uint64
	busy  map[uint64]time.Time // start times of the running work
}

func (m *QueueMetrics) meter(name string) *meter {
	return &meter{
		running: &m.running, name: name, adds: m.adds.WithLabelValues(name), retries: m.retries.WithLabelValues(name),
		waits: m.waits.WithLabelValues(name), work: m.work.WithLabelValues(name), busy: map[uint64]time.Time{},
	}
}

// begin notes that work on a key begins; done, that it has ended.
func (m *meter) begin() (done func()) {
	since := time.Now()
	m.mu.Lock()
	m.next++
	id := m.next
	m.busy[id] = since
	m.mu.Unlock()
	return func() {
		m.work.Observe(time.Since(since).Seconds())
		m.mu.Lock()
		delete(m.busy, id)
		m.mu.Unlock()
	}
}

func (m *meter) queued(by int) {
	m.mu.Lock()
	m.depth += by
	m.mu.Unlock()
}

// fifo is the order of a queue; the work queue calls it with its lock held.
type fifo[K comparable] struct {
	meter *meter
	items []waiting[K]
}

type waiting[K comparable] struct {
	key   K
	since time.Time
}

// Touch implements workqueue.Queue.
func (f *fifo[K]) Touch(K) {}

// Push implements workqueue.Queue.
func (f *fifo[K]) Push(key K) {
	f.meter.adds.Inc()
	f.meter.queued(1)
	f.items = append(f.items, waiting[K]{key, time.Now()})
}

// Len implements workqueue.Queue.
func (f *fifo[K]) Len() int { return len(f.items) }

// Pop implements workqueue.Queue.
func (f *fifo[K]) Pop() K {
	first := f.items[0]
	f.items[0] = waiting[K]{} // the key may hold on to something
	f.items = f.items[1:]
	f.meter.queued(-1)
	f.meter.waits.Observe(time.Since(first.since).Seconds())
	return first.key
}
