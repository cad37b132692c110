package node

import (
	"maps"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// Metrics counts nodes and the evictions of their pods, under upstream's names. Safe for concurrent
// use.
type Metrics struct {
	evictions                           *prometheus.CounterVec // of nodes
	zoneSize, zoneHealth, zoneUnhealthy *prometheus.GaugeVec
	podDeletions                        prometheus.Counter
	podDeletionTimes                    prometheus.Histogram
}

// NewMetrics returns metrics for the node controllers of one registry.
func NewMetrics() *Metrics {
	zones := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"zone"})
	}
	return &Metrics{
		evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "node_collector_evictions_total",
			Help: "Number of Node evictions that happened since current instance of NodeController started.",
		}, []string{"zone"}),
		zoneSize:      zones("node_collector_zone_size", "Gauge measuring number of registered Nodes per zones."),
		zoneHealth:    zones("node_collector_zone_health", "Gauge measuring percentage of healthy nodes per zone."),
		zoneUnhealthy: zones("node_collector_unhealthy_nodes_in_zone", "Gauge measuring number of not Ready Nodes per zones."),
		podDeletions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "taint_eviction_controller_pod_deletions_total",
			Help: "Total number of Pods deleted by TaintEvictionController since its start.",
		}),
		podDeletionTimes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "taint_eviction_controller_pod_deletion_duration_seconds",
			Help:    "Latency, in seconds, between the time when a taint effect has been activated for the Pod and its deletion via TaintEvictionController.",
			Buckets: []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240},
		}),
	}
}

// Collectors returns the metrics to register.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.evictions, m.zoneSize, m.zoneHealth, m.zoneUnhealthy, m.podDeletions, m.podDeletionTimes}
}

// zoneLabel returns the label of a zone in upstream's metrics.
func zoneLabel(region, zone string) string {
	if region == "" && zone == "" {
		return ""
	}
	return region + ":\x00:" + zone
}

func zoneLabelOf(node *corev1.Node) string {
	return zoneLabel(node.Labels[corev1.LabelTopologyRegion], node.Labels[corev1.LabelTopologyZone])
}

// showZones sets the gauges to the tallies and deletes the series of removed zones. shown holds the
// tallies of the last call.
func (m *Metrics) showZones(tallies, shown map[zoneID]tally) {
	if maps.Equal(tallies, shown) {
		return
	}
	for id := range shown {
		if _, ok := tallies[id]; !ok {
			for _, gauge := range []*prometheus.GaugeVec{m.zoneSize, m.zoneHealth, m.zoneUnhealthy} {
				gauge.DeleteLabelValues(zoneLabel(id.region, id.zone))
			}
		}
	}
	for id, t := range tallies {
		label := zoneLabel(id.region, id.zone)
		m.zoneSize.WithLabelValues(label).Set(float64(t.nodes))
		m.zoneHealth.WithLabelValues(label).Set(100 * float64(t.ready) / float64(t.nodes))
		m.zoneUnhealthy.WithLabelValues(label).Set(float64(t.nodes - t.ready))
		m.evictions.WithLabelValues(label)
	}
}
