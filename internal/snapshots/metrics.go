package snapshots

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics describe the scheduled snapshots of this server.
type Metrics struct {
	taken                          *prometheus.CounterVec
	last, size, keys, took, pruned prometheus.Gauge
}

// NewMetrics returns metrics that start at zero.
func NewMetrics() *Metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "knarr_snapshot_" + name, Help: help})
	}
	m := &Metrics{
		taken:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "knarr_snapshots_total", Help: "Scheduled snapshots by result: success, or failed."}, []string{"result"}),
		last:   gauge("last_success_timestamp_seconds", "Time of the newest scheduled snapshot that passed its check, in seconds since 1970."),
		size:   gauge("last_size_bytes", "Size of that snapshot."),
		keys:   gauge("last_keys", "Number of keys that its check counted."),
		took:   gauge("last_duration_seconds", "Time that taking, checking and keeping it took."),
		pruned: gauge("last_pruned", "Number of old snapshots that were removed after it."),
	}
	m.taken.WithLabelValues("success")
	m.taken.WithLabelValues("failed")
	return m
}

// Collectors returns the metrics for a registry.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.taken, m.last, m.size, m.keys, m.took, m.pruned}
}
