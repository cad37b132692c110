package registry

import (
	"context"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/cache"
)

// readStats count the reads of a kind. They are plain counters, and become metrics only when
// metrics are collected.
type readStats struct {
	Lists, Fetched, Returned atomic.Uint64 // of LIST
	// Reads of the newest state that got it, and that did not in time.
	consistent, stale atomic.Uint64
	Initial           atomic.Uint64 // Initial events of watches

	once   sync.Once
	waited prometheus.Observer // time that reads waited for the cache
}

// waitHistogram returns the histogram of the kind's waiting times. It is created on the first read.
func (s *readStats) waitHistogram(r *Registry) prometheus.Observer {
	s.once.Do(func() {
		s.waited = r.Shared.Store.ReadWaits.WithLabelValues(r.Resource.Group, r.Resource.Resource)
	})
	return s.waited
}

// watchStats count the events that were sent to watchers of one version.
type watchStats struct {
	bytes   atomic.Uint64
	buckets [len(watchBuckets) + 1]atomic.Uint64 // by size; the last one is for larger events
}

// watchBuckets are upstream's, in bytes.
var watchBuckets = [...]float64{1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072}

// Sent counts an event of size bytes.
func (w *watchStats) Sent(size int) {
	w.bytes.Add(uint64(size))
	w.buckets[watchBucket(size)].Add(1)
}

// SentAll counts adjacent frames from start on, including their HTTP framing.
func (w *watchStats) SentAll(marks []FrameMark, start int) {
	var counts [len(watchBuckets) + 1]uint64
	from := start
	for _, mark := range marks {
		counts[watchBucket(mark.End-from)]++
		from = mark.End
	}
	for i, n := range counts {
		if n > 0 {
			w.buckets[i].Add(n)
		}
	}
	w.bytes.Add(uint64(from - start))
}

// watchBucket returns the first bucket that is large enough; each is twice the previous one.
func watchBucket(size int) int {
	const first = 10 // 1024 is 1<<10
	return min(max(bits.Len(uint(max(size-1, 0)))-first, 0), len(watchBuckets))
}

// KindMetrics collects the metrics of the kinds in use.
type KindMetrics struct{ Kinds *Kinds }

func describeKind(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, append([]string{"group"}, labels...), nil)
}

var (
	descObjects      = describeKind("apiserver_resource_objects", "Number of stored objects at the time of last check split by kind. In case of a fetching error, the value will be -1.", "resource")
	descOldObjects   = prometheus.NewDesc("apiserver_storage_objects", "[DEPRECATED, consider using apiserver_resource_objects instead] Number of stored objects at the time of last check split by kind. In case of a fetching error, the value will be -1.", []string{"resource"}, nil)
	descSizes        = describeKind("apiserver_resource_size_estimate_bytes", "Estimated size of stored objects in database. Estimate is based on sum of last observed sizes of serialized objects. In case of a fetching error, the value will be -1.", "resource")
	descDatabase     = prometheus.NewDesc("apiserver_storage_size_bytes", "Size of the storage database file physically allocated in bytes.", []string{"storage_cluster_id"}, nil)
	descLists        = describeKind("apiserver_cache_list_total", "Number of LIST requests served from watch cache", "resource", "index")
	descFetched      = describeKind("apiserver_cache_list_fetched_objects_total", "Number of objects read from watch cache in the course of serving a LIST request", "resource", "index")
	descReturned     = describeKind("apiserver_cache_list_returned_objects_total", "Number of objects returned for a LIST request from watch cache", "resource")
	descConsistent   = describeKind("apiserver_watch_cache_consistent_read_total", "Counter for consistent reads from cache.", "resource", "success", "fallback")
	descInit         = describeKind("apiserver_init_events_total", "Counter of init events processed in watch cache broken by resource type.", "resource")
	descRevision     = describeKind("apiserver_watch_cache_resource_version", "Current resource version of watch cache broken by resource type. This is truncated to the 15 least significant digits.", "resource")
	descOpened       = describeKind("apiserver_watch_cache_initializations_total", "Counter of watch cache initializations broken by resource type.", "resource")
	descStoreEvents  = describeKind("apiserver_storage_events_received_total", "Number of etcd events received split by kind.", "resource")
	descCacheEvents  = describeKind("apiserver_watch_cache_events_received_total", "Counter of events received in watch cache broken by resource type.", "resource")
	descDispatched   = describeKind("apiserver_watch_cache_events_dispatched_total", "Counter of events dispatched in watch cache broken by resource type.", "resource")
	descCapacity     = describeKind("watch_cache_capacity", "Total capacity of watch cache broken by resource type.", "resource")
	descGrown        = describeKind("watch_cache_capacity_increase_total", "Total number of watch cache capacity increase events broken by resource type.", "resource")
	descShrunk       = describeKind("watch_cache_capacity_decrease_total", "Total number of watch cache capacity decrease events broken by resource type.", "resource")
	descWatchEvents  = describeKind("apiserver_watch_events_total", "Number of events sent in watch clients", "version", "resource")
	descWatchedSizes = describeKind("apiserver_watch_events_sizes", "Watch event size distribution in bytes", "version", "resource")
)

// Describe implements prometheus.Collector.
func (m KindMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descObjects, descOldObjects, descSizes, descDatabase, descLists, descFetched, descReturned, descConsistent, descInit, descRevision, descOpened,
		descStoreEvents, descCacheEvents, descDispatched, descCapacity, descGrown, descShrunk, descWatchEvents, descWatchedSizes,
	} {
		ch <- d
	}
}

// CollectTimeout limits how long collecting may wait for the store; then the page omits those
// metrics.
const CollectTimeout = 5 * time.Second

// versionModulus keeps the digits of a resourceVersion that a float64 holds exactly.
const versionModulus = 1_000_000_000_000_000

// Collect implements prometheus.Collector.
func (m KindMetrics) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), CollectTimeout)
	defer cancel()
	for i, at := range m.Kinds.Shared.Places {
		if size, err := at.Store.Size(ctx); err == nil {
			ch <- prometheus.MustNewConstMetric(descDatabase, prometheus.GaugeValue, float64(size), fmt.Sprintf("etcd-%d", i))
		}
	}
	told := map[*Registry]bool{}
	// A custom kind has a registry per version, and all show the same objects.
	counted := map[schema.GroupResource]bool{}
	for _, e := range m.Kinds.inUse() {
		e.collectWatches(ch)
		if told[e.Registry] {
			continue
		}
		told[e.Registry] = true
		reader := e.OpenCache()
		if reader == nil || counted[e.Resource] {
			continue
		}
		counted[e.Resource] = true
		e.collect(ch, reader)
	}
}

func (e *Endpoint) collectWatches(ch chan<- prometheus.Metric) {
	events, buckets := uint64(0), make(map[float64]uint64, len(watchBuckets))
	for i := range e.Watched.buckets {
		events += e.Watched.buckets[i].Load()
		if i < len(watchBuckets) {
			buckets[watchBuckets[i]] = events
		}
	}
	if events == 0 {
		return
	}
	labels := []string{e.GVR.Group, e.GVR.Version, e.GVR.Resource}
	ch <- prometheus.MustNewConstMetric(descWatchEvents, prometheus.CounterValue, float64(events), labels...)
	ch <- prometheus.MustNewConstHistogram(descWatchedSizes, events, float64(e.Watched.bytes.Load()), buckets, labels...)
}

func (r *Registry) collect(ch chan<- prometheus.Metric, reader cache.Reader) {
	group, resource := r.Resource.Group, r.Resource.Resource
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), append([]string{group, resource}, labels...)...)
	}
	snapshot := reader.Snapshot()
	gauge(descObjects, float64(snapshot.Len()), group, resource)
	gauge(descOldObjects, float64(snapshot.Len()), r.Resource.String())
	size := 0
	snapshot.Ascend(r.Prefix(""), "", func(entry *cache.Entry) bool { size += len(entry.Stored()); return true })
	gauge(descSizes, float64(size), group, resource)
	gauge(descRevision, float64(snapshot.Revision()%versionModulus), group, resource)
	if counts, ok := reader.(interface{ Opened() uint64 }); ok {
		counter(descOpened, counts.Opened())
	}
	if counts, ok := reader.(interface{ Received() uint64 }); ok {
		counter(descStoreEvents, counts.Received())
		counter(descCacheEvents, counts.Received())
		counter(descDispatched, counts.Received())
	}
	if log, ok := reader.(interface{ Capacity() int }); ok {
		gauge(descCapacity, float64(log.Capacity()), group, resource)
	}
	if log, ok := reader.(interface{ Resized() (grown, shrunk uint64) }); ok {
		grown, shrunk := log.Resized()
		counter(descGrown, grown)
		counter(descShrunk, shrunk)
	}
	counter(descLists, r.Reads.Lists.Load(), "")
	counter(descFetched, r.Reads.Fetched.Load(), "")
	counter(descReturned, r.Reads.Returned.Load())
	counter(descConsistent, r.Reads.consistent.Load(), "true", "false")
	counter(descConsistent, r.Reads.stale.Load(), "false", "false")
	counter(descInit, r.Reads.Initial.Load())
}

// FrameMark is the end of a frame in a block, and the frame's revision.
type FrameMark struct {
	End      int
	Revision int64
}
