package kubelet

import (
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/volume"
)

// volumeMeasurer is an optional interface of Volumes, for statistics of volumes.
type volumeMeasurer interface {
	Measurements(pod *corev1.Pod, podDir string) []volume.Measurement
}

// volumeStats are kubelet_volume_stats_*: usage of the volumes of claims, as the collector of
// statistics knows them.
type volumeStats struct {
	k     *Kubelet
	descs []*prometheus.Desc
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
	v := &volumeStats{k: k}
	for _, n := range volumeStatNames {
		v.descs = append(v.descs, prometheus.NewDesc("kubelet_volume_stats_"+n[0], "[ALPHA] "+n[1], []string{"namespace", "persistentvolumeclaim"}, nil))
	}
	return v
}

// Describe implements prometheus.Collector.
func (v *volumeStats) Describe(c chan<- *prometheus.Desc) {
	for _, d := range v.descs {
		c <- d
	}
}

// Collect implements prometheus.Collector.
func (v *volumeStats) Collect(c chan<- prometheus.Metric) {
	seen := map[[2]string]bool{} // several pods can use a claim
	for _, u := range v.k.stats.Claims() {
		key := [2]string{u.Namespace, u.Claim}
		if seen[key] {
			continue
		}
		seen[key] = true
		for i, value := range []uint64{u.Available, u.CapacityBytes, u.Inodes, u.InodesFree, u.InodesUsed, u.UsedBytes} {
			c <- prometheus.MustNewConstMetric(v.descs[i], prometheus.GaugeValue, float64(value), u.Namespace, u.Claim)
		}
	}
}
