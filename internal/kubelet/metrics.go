package kubelet

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/knarr-project/knarr/internal/kubelet/probe"
)

// metrics are the node agent's own, under upstream's names. They have a registry of their own,
// because several components run in one process and each must only expose its own metrics.
type metrics struct {
	main, probes *prometheus.Registry
	probeTotal   *prometheus.CounterVec
}

func newMetrics(k *Kubelet) *metrics {
	m := &metrics{main: prometheus.NewRegistry(), probes: prometheus.NewRegistry()}
	m.probeTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "prober_probe_total", Help: "Cumulative number of a liveness, readiness or startup probe for a container by result.",
	}, []string{"probe_type", "result", "container", "pod", "namespace", "pod_uid"})
	m.probes.MustRegister(m.probeTotal)
	gauge := func(name, help string, value func() float64) {
		m.main.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	gauge("kubelet_running_pods", "Number of pods that have a running pod sandbox", func() float64 {
		n := 0
		for _, w := range k.Workers() {
			for _, s := range w.View().Sandboxes {
				if s.Ready() {
					n++
					break
				}
			}
		}
		return float64(n)
	})
	m.main.MustRegister(&runningContainers{k, prometheus.NewDesc("kubelet_running_containers", "Number of containers currently running", []string{"container_state"}, nil)})
	gauge("kubelet_desired_pods", "The number of pods the kubelet is being instructed to run.", func() float64 { return float64(len(k.Workers())) })
	name := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubelet_node_name", Help: "The node's name. The count is always 1."}, []string{"node"})
	name.WithLabelValues(k.NodeName).Set(1)
	m.main.MustRegister(name, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

type runningContainers struct {
	k    *Kubelet
	desc *prometheus.Desc
}

func (r *runningContainers) Describe(c chan<- *prometheus.Desc) { c <- r.desc }

func (r *runningContainers) Collect(c chan<- prometheus.Metric) {
	states := map[string]float64{}
	for _, w := range r.k.Workers() {
		for _, container := range w.View().Containers {
			switch {
			case container.Running():
				states["running"]++
			case container.Exited():
				states["exited"]++
			default:
				states["created"]++
			}
		}
	}
	for state, n := range states {
		c <- prometheus.MustNewConstMetric(r.desc, prometheus.GaugeValue, n, state)
	}
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.main, promhttp.HandlerOpts{})
}
func (m *metrics) probeHandler() http.Handler {
	return promhttp.HandlerFor(m.probes, promhttp.HandlerOpts{})
}

// probe counts one probe.
func (m *metrics) probe(t probe.Target, kind probe.Kind, r probe.Result) {
	result := map[probe.Result]string{probe.Success: "successful", probe.Warning: "successful", probe.Failure: "failed", probe.Unknown: "unknown"}[r]
	m.probeTotal.WithLabelValues(string(kind), result, t.Container.Name, t.Pod.Name, t.Pod.Namespace, string(t.Pod.UID)).Inc()
}

// forget drops the counts of a removed pod.
func (m *metrics) forget(uid string) {
	m.probeTotal.DeletePartialMatch(prometheus.Labels{"pod_uid": uid})
}
