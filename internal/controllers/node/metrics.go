package node

import (
	"maps"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// Metrics of nodes and of the pods that are evicted from them, under upstream's names; they are the process's.
var (
	evictions = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "node_collector_evictions_total",
		Help: "Number of Node evictions that happened since current instance of NodeController started."}, []string{"zone"})
	zoneSize      = newZoneGauge("node_collector_zone_size", "Gauge measuring number of registered Nodes per zones.")
	zoneHealth    = newZoneGauge("node_collector_zone_health", "Gauge measuring percentage of healthy nodes per zone.")
	zoneUnhealthy = newZoneGauge("node_collector_unhealthy_nodes_in_zone", "Gauge measuring number of not Ready Nodes per zones.")

	podDeletions = prometheus.NewCounter(prometheus.CounterOpts{Name: "taint_eviction_controller_pod_deletions_total",
		Help: "Total number of Pods deleted by TaintEvictionController since its start."})
	podDeletionTimes = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "taint_eviction_controller_pod_deletion_duration_seconds",
		Help:    "Latency, in seconds, between the time when a taint effect has been activated for the Pod and its deletion via TaintEvictionController.",
		Buckets: []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240}})
)

func newZoneGauge(name, help string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"zone"})
}

// Collectors are what a registry takes.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{evictions, zoneSize, zoneHealth, zoneUnhealthy, podDeletions, podDeletionTimes}
}

// zoneLabel is what upstream calls a node's zone in metrics.
func zoneLabel(region, zone string) string {
	if region == "" && zone == "" {
		return ""
	}
	return region + ":\x00:" + zone
}

func zoneLabelOf(node *corev1.Node) string {
	return zoneLabel(node.Labels[corev1.LabelTopologyRegion], node.Labels[corev1.LabelTopologyZone])
}

// tellZones brings the gauges to what was counted; of zones that are gone nothing is told. told are those of before.
func tellZones(tallies map[zoneID]tally, told map[zoneID]tally) {
	if maps.Equal(tallies, told) {
		return
	}
	for id := range told {
		if _, ok := tallies[id]; !ok {
			for _, gauge := range []*prometheus.GaugeVec{zoneSize, zoneHealth, zoneUnhealthy} {
				gauge.DeleteLabelValues(zoneLabel(id.region, id.zone))
			}
		}
	}
	for id, t := range tallies {
		label := zoneLabel(id.region, id.zone)
		zoneSize.WithLabelValues(label).Set(float64(t.nodes))
		zoneHealth.WithLabelValues(label).Set(100 * float64(t.ready) / float64(t.nodes))
		zoneUnhealthy.WithLabelValues(label).Set(float64(t.nodes - t.ready))
		evictions.WithLabelValues(label)
	}
}
