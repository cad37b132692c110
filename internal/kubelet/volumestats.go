package kubelet

import (
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/kubelet/stats"
	"github.com/knarr-project/knarr/internal/volume"
)

// volumeMeasurer is an optional interface of Volumes, for statistics of volumes.
type volumeMeasurer interface {
	Measurements(pod *corev1.Pod, podDir string) []volume.Measurement
}

// volumeStats are kubelet_volume_stats_*, the usage of claims' volumes, and
// kubelet_container_log_filesystem_used_bytes, that of logs. The collector of statistics measures
// both in the background.
type volumeStats struct {
	claims         func() []stats.ClaimUsage
	sizes          func() []stats.LogUsage
	descs          []*prometheus.Desc
	abnormal, logs *prometheus.Desc
}

var volumeStatNames = [][2]string{
	{"available_bytes", "Number of available bytes in the volume"},
	{"capacity_bytes", "Capacity in bytes of the volume"},
	{"inodes", "Maximum number of inodes in the volume"},
	{"inodes_free", "Number of free inodes in the volume"},
	{"inodes_used", "Number of used inodes in the volume"},
	{"used_bytes", "Number of used bytes in the volume"},
}

func newVolumeStats(k *Kubelet) *volumeStats {
	v := &volumeStats{
		claims: func() []stats.ClaimUsage { return k.stats.Claims() }, // k.stats is made later
		sizes:  func() []stats.LogUsage { return k.stats.Logs() },
	}
	for _, n := range volumeStatNames {
		v.descs = append(v.descs, prometheus.NewDesc("kubelet_volume_stats_"+n[0], "[ALPHA] "+n[1], []string{"namespace", "persistentvolumeclaim"}, nil))
	}
	v.abnormal = prometheus.NewDesc("kubelet_volume_stats_health_status_abnormal",
		"[ALPHA] Abnormal volume health status. The count is either 1 or 0. 1 indicates the volume is unhealthy, 0 indicates volume is healthy",
		[]string{"namespace", "persistentvolumeclaim"}, nil)
	v.logs = prometheus.NewDesc("kubelet_container_log_filesystem_used_bytes", "[ALPHA] Bytes used by the container's logs on the filesystem.",
		[]string{"uid", "namespace", "pod", "container"}, nil)
	return v
}

// Describe implements prometheus.Collector.
func (v *volumeStats) Describe(c chan<- *prometheus.Desc) {
	for _, d := range v.descs {
		c <- d
	}
	c <- v.abnormal
	c <- v.logs
}

// Collect implements prometheus.Collector.
func (v *volumeStats) Collect(c chan<- prometheus.Metric) {
	seen := map[[2]string]bool{} // several pods can use a claim
	for _, u := range v.claims() {
		key := [2]string{u.Namespace, u.Claim}
		if seen[key] {
			continue
		}
		seen[key] = true
		for i, value := range []uint64{u.Available, u.CapacityBytes, u.Inodes, u.InodesFree, u.InodesUsed, u.UsedBytes} {
			c <- prometheus.MustNewConstMetric(v.descs[i], prometheus.GaugeValue, float64(value), u.Namespace, u.Claim)
		}
		if u.Abnormal != nil {
			bad := 0.0
			if *u.Abnormal {
				bad = 1
			}
			c <- prometheus.MustNewConstMetric(v.abnormal, prometheus.GaugeValue, bad, u.Namespace, u.Claim)
		}
	}
	for _, l := range v.sizes() {
		c <- prometheus.MustNewConstMetric(v.logs, prometheus.GaugeValue, float64(l.UsedBytes), string(l.Pod.UID), l.Pod.Namespace, l.Pod.Name, l.Container)
	}
}
