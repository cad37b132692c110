package etcd

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// forwarded are etcd's metrics that dashboards for etcd read. etcd keeps them in Prometheus'
// default registry, beside many others.
var forwarded = map[string]bool{
	logSyncs: true, databaseSyncs: true,
	"etcd_mvcc_db_total_size_in_bytes":          true,
	"etcd_mvcc_db_total_size_in_use_in_bytes":   true,
	"etcd_server_has_leader":                    true,
	"etcd_server_is_leader":                     true,
	"etcd_server_leader_changes_seen_total":     true,
	"etcd_server_proposals_failed_total":        true,
	"etcd_disk_backend_defrag_duration_seconds": true,
}

var (
	quotaBytes = prometheus.NewDesc("knarr_store_quota_bytes", "Most bytes that the data may use in the store's database (--store-quota).", nil, nil)
	usedBytes  = prometheus.NewDesc("knarr_store_used_bytes", "Bytes that the data uses in the store's database.", nil, nil)
	freeSpace  = prometheus.NewDesc("knarr_store_disk_free_bytes", "Free bytes of the file system that holds the store's database.", nil, nil)
	refused    = prometheus.NewDesc("knarr_store_writes_refused_total", "Writes that the store refused for want of space: of its quota or of its disk.", []string{"limit"}, nil)
	slowLooks  = prometheus.NewDesc("knarr_store_slow_disk_total", "Periods of ten seconds in which the store's disk was slow.", nil, nil)
	healthy    = prometheus.NewDesc("knarr_store_healthy", "1 if the store works and its data is not known to be corrupt.", nil, nil)
)

// Describe implements prometheus.Collector. etcd's metrics are not described, since the registry
// need not know them before.
func (e *Engine) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{quotaBytes, usedBytes, freeSpace, refused, slowLooks, healthy} {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (e *Engine) Collect(metrics chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	count := func(d *prometheus.Desc, n int64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge(quotaBytes, float64(e.space.quota))
	gauge(freeSpace, float64(FreeBytes(e.space.disk.dir)))
	count(refused, e.space.refusedQuota.Load(), "quota")
	count(refused, e.space.refusedDisk.Load(), "disk")
	count(slowLooks, e.slowLooks.Load())
	if used, err := e.Size(context.Background()); err == nil {
		gauge(usedBytes, float64(used))
	}
	sound := 1.0
	if e.Health() != nil {
		sound = 0
	}
	gauge(healthy, sound)
}

// Metrics returns the collectors of the engine's own metrics and of etcd's.
func (e *Engine) Metrics() []prometheus.Collector { return []prometheus.Collector{e, etcdMetrics{}} }

// etcdMetrics passes on metrics of etcd.
type etcdMetrics struct{}

// Describe sends nothing: the collector is unchecked.
func (etcdMetrics) Describe(chan<- *prometheus.Desc) {}

func (etcdMetrics) Collect(metrics chan<- prometheus.Metric) {
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		return
	}
	for _, f := range families {
		if !forwarded[f.GetName()] {
			continue
		}
		for _, m := range f.GetMetric() {
			names := make([]string, len(m.GetLabel()))
			for i, l := range m.GetLabel() {
				names[i] = l.GetName()
			}
			metrics <- &etcdMetric{desc: prometheus.NewDesc(f.GetName(), f.GetHelp(), names, nil), value: m}
		}
	}
}

// etcdMetric is a metric as another registry has it.
type etcdMetric struct {
	desc  *prometheus.Desc
	value *dto.Metric
}

func (m *etcdMetric) Desc() *prometheus.Desc { return m.desc }

func (m *etcdMetric) Write(to *dto.Metric) error {
	to.Label, to.Gauge, to.Counter, to.Histogram, to.Summary = m.value.Label, m.value.Gauge, m.value.Counter, m.value.Histogram, m.value.Summary
	return nil
}
