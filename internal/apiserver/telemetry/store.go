package telemetry

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/apiserver/audit"
	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/trace"
)

// instrumentedStore counts and times the calls of the store, by operation and kind. The names are
// upstream's; they say etcd for any store.
type instrumentedStore struct {
	store.Store
	m *StoreMetrics
}

// Instrument returns a store whose calls m counts and times.
func Instrument(under store.Store, m *StoreMetrics) store.Store {
	return &instrumentedStore{under, m}
}

// StoreMetrics are the store's metrics of one server.
type StoreMetrics struct {
	requests, failures                  *prometheus.CounterVec
	durations                           *prometheus.HistogramVec
	lists, fetched, evaluated, returned *prometheus.CounterVec
	Leased                              prometheus.Histogram
	ReadWaits                           *prometheus.HistogramVec
	undecodable                         *prometheus.CounterVec

	mu    sync.RWMutex
	kinds map[string]*storeSeries // by the part of a key that names the kind
}

func newStoreMetrics() *StoreMetrics {
	list := func(name, help string) *prometheus.CounterVec {
		return NewCounter("apiserver_storage_list_"+name, help, "group", "resource")
	}
	return &StoreMetrics{
		requests:  NewCounter("etcd_requests_total", "Etcd request counts for each operation and object type.", "operation", "group", "resource"),
		failures:  NewCounter("etcd_request_errors_total", "Etcd failed request counts for each operation and object type.", "operation", "group", "resource"),
		durations: NewHistogram("etcd_request_duration_seconds", "Etcd request latency in seconds for each operation and object type.", requestSeconds, "operation", "group", "resource"),
		lists:     list("total", "Number of LIST requests served from storage"),
		fetched:   list("fetched_objects_total", "Number of objects read from storage in the course of serving a LIST request"),
		evaluated: list("evaluated_objects_total", "Number of objects tested in the course of serving a LIST request from storage"),
		returned:  list("returned_objects_total", "Number of objects returned for a LIST request from storage"),
		Leased: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "etcd_lease_object_counts", Help: "Number of objects attached to a single etcd lease.",
			Buckets: []float64{10, 50, 100, 500, 1000, 2500, 5000}}),
		ReadWaits: NewHistogram("apiserver_watch_cache_read_wait_seconds", "Histogram of time spent waiting for a watch cache to become fresh.",
			[]float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3}, "group", "resource"),
		undecodable: NewCounter("apiserver_storage_decode_errors_total", "Number of stored object decode errors split by object type", "group", "resource"),
		kinds:       map[string]*storeSeries{},
	}
}

// Decoded counts values that cannot be decoded.
func (m *StoreMetrics) Decoded(resource schema.GroupResource, err error) {
	if err != nil {
		m.undecodable.WithLabelValues(resource.Group, resource.Resource).Inc()
	}
}

func (m *StoreMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.failures, m.durations, m.lists, m.fetched, m.evaluated, m.returned, m.Leased, m.ReadWaits, m.undecodable}
}

// storeOperation is the index of an operation in the series of its kind.
type storeOperation int

const (
	storeGet storeOperation = iota
	storeList
	storeCreate
	storeUpdate
	storeDelete
	storeOperations
)

var storeOperationNames = [storeOperations]string{"get", "list", "create", "update", "delete"}

// storeSpans are upstream's names of spans for creates, updates and lists, and similar names for
// the rest.
var storeSpans = [storeOperations]string{"Get etcd3", "List(recursive=true) etcd3", "Create etcd3", "GuaranteedUpdate etcd3", "Delete etcd3"}

// span begins the span of an operation on a key's kind.
func (m *StoreMetrics) span(ctx context.Context, op storeOperation, key string) (context.Context, trace.Span) {
	ctx, span := trace.Start(ctx, storeSpans[op])
	if span.On() {
		s := m.seriesOf(key)
		span.Set(trace.Text("key", key), trace.Text("group", s.Group), trace.Text("resource", s.Resource))
	}
	return ctx, span
}

// storeSeries are the metrics of one kind. An operation's metrics appear after its first use.
type storeSeries struct {
	m *StoreMetrics
	schema.GroupResource
	used [storeOperations]func() storeUse
}

type storeUse struct {
	requests  prometheus.Counter
	durations prometheus.Observer
}

// seriesOf returns the series of a key's kind.
func (m *StoreMetrics) seriesOf(key string) *storeSeries {
	name := kindOfKey(key)
	m.mu.RLock()
	s := m.kinds[name]
	m.mu.RUnlock()
	if s != nil {
		return s
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s = m.kinds[name]; s != nil {
		return s
	}
	name = strings.Clone(name) // so that the series does not keep the key alive
	s = &storeSeries{m: m, GroupResource: resourceOf(name)}
	for op, text := range storeOperationNames {
		s.used[op] = sync.OnceValue(func() storeUse {
			return storeUse{m.requests.WithLabelValues(text, s.Group, s.Resource), m.durations.WithLabelValues(text, s.Group, s.Resource)}
		})
	}
	m.kinds[name] = s
	return s
}

// kindOfKey returns the part of a key that names the kind: /registry/pods/NAMESPACE/NAME,
// /registry/GROUP/RESOURCE/... A group has a dot, except for the few old ones, whose keys have no
// group. The two kinds below "services" have their name after it.
func kindOfKey(key string) string {
	rest := strings.TrimPrefix(key, "/registry/")
	first, after, ok := strings.Cut(rest, "/")
	if !ok || first != "services" && !strings.Contains(first, ".") {
		return first
	}
	resource, _, _ := strings.Cut(after, "/")
	return rest[:len(first)+1+len(resource)]
}

// builtIn are the built-in kinds by that part of their keys. The part is often an older name of
// the kind, and seldom has its group.
var builtIn = sync.OnceValue(func() map[string]schema.GroupResource {
	kinds := map[string]schema.GroupResource{}
	for _, kind := range api.Kinds() {
		if !kind.Virtual && kind.Alias.Empty() {
			kinds[kindOfKey(kind.Prefix+"/")] = kind.GroupResource()
		}
	}
	return kinds
})

// resourceOf returns the kind of a name that kindOfKey returned.
func resourceOf(name string) schema.GroupResource {
	if known, ok := builtIn()[name]; ok {
		return known
	}
	if group, resource, ok := strings.Cut(name, "/"); ok {
		return schema.GroupResource{Group: group, Resource: resource}
	}
	return schema.GroupResource{Resource: name}
}

func (s *storeSeries) observe(ctx context.Context, op storeOperation, since time.Time, err error) {
	took := time.Since(since)
	use := s.used[op]()
	use.requests.Inc()
	use.durations.Observe(took.Seconds())
	audit.From(ctx).AddLatency(audit.Store, took)
	if err != nil {
		s.m.failures.WithLabelValues(storeOperationNames[op], s.Group, s.Resource).Inc()
	}
}

// Get implements store.Store.
func (m *instrumentedStore) Get(ctx context.Context, key string, revision int64) (*store.KeyValue, int64, error) {
	ctx, span := m.m.span(ctx, storeGet, key)
	defer span.End()
	since := time.Now()
	kv, at, err := m.Store.Get(ctx, key, revision)
	m.m.seriesOf(key).observe(ctx, storeGet, since, err)
	return kv, at, err
}

// Range implements store.Store.
func (m *instrumentedStore) Range(ctx context.Context, prefix string, opts store.RangeOptions) (store.RangeResult, error) {
	ctx, span := m.m.span(ctx, storeList, prefix)
	defer span.End()
	since := time.Now()
	res, err := m.Store.Range(ctx, prefix, opts)
	s := m.m.seriesOf(prefix)
	s.observe(ctx, storeList, since, err)
	n := float64(len(res.KVs))
	m.m.lists.WithLabelValues(s.Group, s.Resource).Inc()
	m.m.fetched.WithLabelValues(s.Group, s.Resource).Add(n)
	m.m.evaluated.WithLabelValues(s.Group, s.Resource).Add(n)
	m.m.returned.WithLabelValues(s.Group, s.Resource).Add(n)
	return res, err
}

// Commit implements store.Store. The first operation is the object itself.
func (m *instrumentedStore) Commit(ctx context.Context, conditions []store.Condition, ops ...store.Op) (store.TxnResult, error) {
	if len(ops) == 0 {
		return m.Store.Commit(ctx, conditions)
	}
	op, key := operationOf(conditions, &ops[0]), ops[0].Key
	ctx, span := m.m.span(ctx, op, key)
	defer span.End()
	since := time.Now()
	res, err := m.Store.Commit(ctx, conditions, ops...)
	m.m.seriesOf(key).observe(ctx, op, since, err)
	return res, err
}

func operationOf(conditions []store.Condition, op *store.Op) storeOperation {
	if op.Delete {
		return storeDelete
	}
	for i := range conditions {
		if conditions[i].Key == op.Key && conditions[i].ModRevision == 0 {
			return storeCreate
		}
	}
	return storeUpdate
}
