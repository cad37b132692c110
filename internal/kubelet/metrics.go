package kubelet

import (
	"crypto/tls"
	"math"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/kubelet/measure"
	"github.com/knarr-project/knarr/internal/kubelet/spec"
	"github.com/knarr-project/knarr/internal/kubelet/status"
	"github.com/knarr-project/knarr/internal/kubelet/worker"
)

// metrics are the node agent's own, under upstream's names. Package measure counts; this file adds
// what the pods' workers and the collector of statistics know.
type metrics struct {
	*measure.Metrics
	k *Kubelet

	mu      sync.Mutex
	mounted map[types.UID][]string // plugins of the mounted volumes, by pod
}

func newMetrics(k *Kubelet, m *measure.Metrics) *metrics {
	out := &metrics{Metrics: m, k: k, mounted: map[types.UID][]string{}}
	m.Gauge("kubelet_running_pods", "[ALPHA] Number of pods that have a running pod sandbox", func() float64 {
		return k.countPods(func(v worker.View) bool {
			for _, s := range v.Sandboxes {
				if s.Ready() {
					return true
				}
			}
			return false
		})
	})
	m.Gauge("kubelet_mirror_pods", "[ALPHA] The number of mirror pods the kubelet will try to create (one per admitted static pod)", func() float64 {
		return k.countPods(func(v worker.View) bool { return status.IsStatic(v.Pod) })
	})
	m.Gauge("kubelet_certificate_manager_server_ttl_seconds", "[ALPHA] Gauge of the shortest TTL (time-to-live) of the Kubelet's serving certificate. The value is in seconds until certificate expiry (negative if already expired). If serving certificate is invalid or unused, the value will be +INF.",
		func() float64 { return timeLeft(servingCertificate(k.TLS), k.Now()) })
	m.Gauge("kubelet_certificate_manager_client_ttl_seconds", "[ALPHA] Gauge of the TTL (time-to-live) of the Kubelet's client certificate. The value is in seconds until certificate expiry (negative if already expired). If client certificate is invalid or unused, the value will be +INF.",
		func() float64 {
			if k.ClientCertificate == nil {
				return math.Inf(1) // the API server is in the same process
			}
			return timeLeft(k.ClientCertificate(), k.Now())
		})
	for name, of := range map[string]string{"kubelet_server_expiration_renew_errors": "kubelet", "kubelet_certificate_manager_client_expiration_renew_errors": "node"} {
		m.Add(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: "[ALPHA] Counter of certificate renewal errors."}, func() float64 {
			if k.RenewErrors == nil {
				return 0
			}
			return float64(k.RenewErrors(of))
		}))
	}
	m.Add(&podCounts{
		k:          k,
		containers: prometheus.NewDesc("kubelet_running_containers", "[ALPHA] Number of containers currently running", []string{"container_state"}, nil),
		desired:    prometheus.NewDesc("kubelet_desired_pods", "[ALPHA] The number of pods the kubelet is being instructed to run. static is true if the pod is not from the apiserver.", []string{"static"}, nil),
		active:     prometheus.NewDesc("kubelet_active_pods", "[ALPHA] The number of pods the kubelet considers active and which are being considered when admitting new pods. static is true if the pod is not from the apiserver.", []string{"static"}, nil),
		volumes:    prometheus.NewDesc("volume_manager_total_volumes", "[ALPHA] Number of volumes in Volume Manager", []string{"plugin_name", "state"}, nil),
		metrics:    out,
	}, newVolumeStats(k))
	return out
}

func servingCertificate(c *tls.Config) *tls.Certificate {
	if c == nil {
		return nil
	}
	if c.GetCertificate != nil {
		pair, _ := c.GetCertificate(&tls.ClientHelloInfo{})
		return pair
	}
	if len(c.Certificates) > 0 {
		return &c.Certificates[0]
	}
	return nil
}

func timeLeft(pair *tls.Certificate, now time.Time) float64 {
	if pair == nil || pair.Leaf == nil {
		return math.Inf(1)
	}
	return pair.Leaf.NotAfter.Sub(now).Seconds()
}

func (k *Kubelet) countPods(is func(worker.View) bool) float64 {
	n := 0.0
	for _, w := range k.Workers() {
		if is(w.View()) {
			n++
		}
	}
	return n
}

// Volumes measures mounting or unmounting the volumes of a pod.
func (m *metrics) Volumes(operation string, pod *corev1.Pod, took time.Duration, err error) {
	plugins := m.plugins(pod)
	m.mu.Lock()
	if known := m.mounted[pod.UID]; operation == worker.UnmountVolumes && len(known) > 0 {
		plugins = known
	}
	if err == nil {
		if operation == worker.UnmountVolumes {
			delete(m.mounted, pod.UID)
		} else {
			m.mounted[pod.UID] = plugins
		}
	}
	m.mu.Unlock()
	m.Storage(operation, plugins, took, err)
}

// plugins lists the plugins of a pod's volumes. That of a claim's volume is part of the path of its
// folder: .../volumes/kubernetes.io~csi/...
func (m *metrics) plugins(pod *corev1.Pod) []string {
	return measure.Plugins(pod, func(volume string) string {
		v, ok := m.k.Config.Volumes.(volumeMeasurer)
		if !ok {
			return ""
		}
		for _, one := range v.Measurements(pod, spec.PodDir(m.k.RootDir, pod.UID)) {
			if one.Volume != volume {
				continue
			}
			for dir := one.Dir; dir != "/" && dir != "."; dir = filepath.Dir(dir) {
				if name := filepath.Base(dir); strings.HasPrefix(name, "kubernetes.io~") {
					return strings.Replace(name, "~", "/", 1)
				}
			}
		}
		return ""
	})
}

// forget drops the data of a removed pod.
func (m *metrics) forget(pod types.NamespacedName, uid types.UID) {
	m.mu.Lock()
	delete(m.mounted, uid)
	m.mu.Unlock()
	m.Forget(pod, uid)
}

// podCounts counts pods, containers and volumes when it is scraped.
type podCounts struct {
	k                                    *Kubelet
	metrics                              *metrics
	containers, desired, active, volumes *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (p *podCounts) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{p.containers, p.desired, p.active, p.volumes} {
		c <- d
	}
}

// Collect implements prometheus.Collector.
func (p *podCounts) Collect(c chan<- prometheus.Metric) {
	states := map[string]float64{}
	desired, active := map[string]float64{"": 0, "true": 0}, map[string]float64{"": 0, "true": 0}
	volumes := map[[2]string]float64{}
	for _, w := range p.k.Workers() {
		v := w.View()
		for _, container := range v.Containers {
			switch {
			case container.Running():
				states["running"]++
			case container.Exited():
				states["exited"]++
			default:
				states["created"]++
			}
		}
		static := ""
		if status.IsStatic(v.Pod) {
			static = "true"
		}
		desired[static]++
		if !status.Terminal(v.Status.Phase) {
			active[static]++
		}
		if v.Stage == worker.Syncing {
			for _, plugin := range p.metrics.plugins(v.Pod) {
				volumes[[2]string{plugin, "desired_state_of_world"}]++
			}
		}
	}
	p.metrics.mu.Lock()
	for _, plugins := range p.metrics.mounted {
		for _, plugin := range plugins {
			volumes[[2]string{plugin, "actual_state_of_world"}]++
		}
	}
	p.metrics.mu.Unlock()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for state, n := range states {
		gauge(p.containers, n, state)
	}
	for static, n := range desired {
		gauge(p.desired, n, static)
		gauge(p.active, active[static], static)
	}
	for key, n := range volumes {
		gauge(p.volumes, n, key[0], key[1])
	}
}
