package kubelet

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// placeMetrics are upstream's metrics of the CPU, memory and topology managers.
type placeMetrics struct {
	cpuRequests, cpuErrors, memoryRequests, memoryErrors, admissions, refusals prometheus.Counter
	duration                                                                   prometheus.Histogram
	alignments, misalignments                                                  *prometheus.CounterVec
}

func newPlaceMetrics(add func(...prometheus.Collector), p *places) *placeMetrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		add(c)
		return c
	}
	m := &placeMetrics{
		cpuRequests:    counter("kubelet_cpu_manager_pinning_requests_total", "The number of cpu core allocations which required pinning."),
		cpuErrors:      counter("kubelet_cpu_manager_pinning_errors_total", "The number of cpu core allocations which required pinning failed."),
		memoryRequests: counter("kubelet_memory_manager_pinning_requests_total", "The number of memory pages allocations which required pinning."),
		memoryErrors:   counter("kubelet_memory_manager_pinning_errors_total", "The number of memory pages allocations which required pinning that failed."),
		admissions:     counter("kubelet_topology_manager_admission_requests_total", "The number of admission requests where resources have to be aligned."),
		refusals:       counter("kubelet_topology_manager_admission_errors_total", "The number of admission request failures where resources could not be aligned."),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_topology_manager_admission_duration_ms", Help: "Duration in milliseconds to serve a pod admission request.",
			Buckets: prometheus.ExponentialBuckets(.05, 2, 15),
		}),
		alignments:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_container_aligned_compute_resources_count", Help: "[ALPHA] Cumulative number of aligned compute resources allocated to containers by alignment type."}, []string{"scope", "boundary"}),
		misalignments: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_container_aligned_compute_resources_failure_count", Help: "[ALPHA] Cumulative number of failures to allocate aligned compute resources to containers by alignment type."}, []string{"scope", "boundary"}),
	}
	add(m.alignments, m.misalignments, m.duration, &cpuCollector{
		p:         p,
		pool:      prometheus.NewDesc("kubelet_cpu_manager_shared_pool_size_millicores", "The size of the shared CPU pool for non-guaranteed QoS pods, in millicores.", nil, nil),
		exclusive: prometheus.NewDesc("kubelet_cpu_manager_exclusive_cpu_allocation_count", "The total number of CPUs exclusively allocated to containers running on this node", nil, nil),
		perNode:   prometheus.NewDesc("kubelet_cpu_manager_allocation_per_numa", "Number of CPUs allocated per NUMA node", []string{"numa_node"}, nil),
	})
	return m
}

func (m *placeMetrics) cpus(err error)   { count(m.cpuRequests, m.cpuErrors, err) }
func (m *placeMetrics) memory(err error) { count(m.memoryRequests, m.memoryErrors, err) }

// aligned counts a container whose resources are aligned, or cannot be. scope is container or pod.
func (m *placeMetrics) aligned(scope, boundary string, is bool) {
	if is {
		m.alignments.WithLabelValues(scope, boundary).Inc()
	} else {
		m.misalignments.WithLabelValues(scope, boundary).Inc()
	}
}

func count(all, failed prometheus.Counter, err error) {
	all.Inc()
	if err != nil {
		failed.Inc()
	}
}

func (m *placeMetrics) admission(took time.Duration, refused bool) {
	m.admissions.Inc()
	if refused {
		m.refusals.Inc()
	}
	m.duration.Observe(float64(took) / float64(time.Millisecond))
}

// cpuCollector reads the assignment of CPUs when metrics are collected.
type cpuCollector struct {
	p                        *places
	pool, exclusive, perNode *prometheus.Desc
}

func (c *cpuCollector) Describe(out chan<- *prometheus.Desc) {
	out <- c.pool
	out <- c.exclusive
	out <- c.perNode
}

func (c *cpuCollector) Collect(out chan<- prometheus.Metric) {
	pool, exclusive := 0, 0
	if manager := c.p.cpus; manager != nil && manager.Static() {
		pool, exclusive = manager.PoolSize()
		for node, n := range manager.PerNode() {
			out <- prometheus.MustNewConstMetric(c.perNode, prometheus.GaugeValue, float64(n), strconv.Itoa(node))
		}
	}
	out <- prometheus.MustNewConstMetric(c.pool, prometheus.GaugeValue, float64(pool*1000))
	out <- prometheus.MustNewConstMetric(c.exclusive, prometheus.GaugeValue, float64(exclusive))
}
