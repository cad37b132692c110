package aggregation

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// metrics have upstream's names.
type metrics struct {
	// mu orders the last verdict of a remote before the end of its series.
	mu      sync.Mutex
	changes *prometheus.CounterVec
}

func newMetrics() *metrics {
	return &metrics{changes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "aggregator_unavailable_apiservice_total",
		Help: "Counter of APIServices which are marked as unavailable broken down by APIService name and reason."}, []string{"name", "reason"})}
}

var descUnavailable = prometheus.NewDesc("aggregator_unavailable_apiservice",
	"Gauge of APIServices which are marked as unavailable broken down by APIService name.", []string{"name"}, nil)

// Describe implements prometheus.Collector.
func (a *Aggregator) Describe(ch chan<- *prometheus.Desc) {
	ch <- descUnavailable
	a.metrics.changes.Describe(ch)
}

// Collect implements prometheus.Collector. It reads the availability of the APIServices at that
// moment.
func (a *Aggregator) Collect(ch chan<- prometheus.Metric) {
	// Last, so that the counters include everything that the gauges show.
	defer a.metrics.changes.Collect(ch)
	view := a.view.Load()
	if view == nil {
		return
	}
	remotes := *a.remotes.Load()
	for _, object := range view.List("", nil) {
		value := 0.0
		if object.Spec.Service != nil {
			r := remotes[schema.GroupVersion{Group: object.Spec.Group, Version: object.Spec.Version}]
			switch {
			case r == nil || r.uid != object.UID:
				continue // not known yet
			case r.available.Load():
			case r.checked.Load():
				value = 1
			default:
				continue
			}
		}
		ch <- prometheus.MustNewConstMetric(descUnavailable, prometheus.GaugeValue, value, object.Name)
	}
}

// observe counts a verdict, unless the remote is closed.
func (m *metrics) observe(r *Remote, v verdict) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v != passed && r.context.Err() == nil {
		m.changes.WithLabelValues(r.name, v.reason).Inc()
	}
}

// forget removes the series of a closed remote.
func (m *metrics) forget(object *apiregistrationv1.APIService) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes.DeletePartialMatch(prometheus.Labels{"name": object.Name})
}
