package aggregation

import "github.com/prometheus/client_golang/prometheus"

// metrics are under upstream's names.
type metrics struct {
	unavailable *prometheus.GaugeVec
	changes     *prometheus.CounterVec
}

func newMetrics() *metrics {
	return &metrics{
		unavailable: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "aggregator_unavailable_apiservice",
			Help: "Gauge of APIServices which are marked as unavailable broken down by APIService name."}, []string{"name"}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "aggregator_unavailable_apiservice_total",
			Help: "Counter of APIServices which are marked as unavailable broken down by APIService name and reason."}, []string{"name", "reason"}),
	}
}

// Collectors are the aggregator's metrics.
func (a *Aggregator) Collectors() []prometheus.Collector {
	return []prometheus.Collector{a.metrics.unavailable, a.metrics.changes}
}

func (m *metrics) observe(name string, v verdict) {
	if v == passed {
		m.unavailable.WithLabelValues(name).Set(0)
		return
	}
	m.unavailable.WithLabelValues(name).Set(1)
	m.changes.WithLabelValues(name, v.reason).Inc()
}

func (m *metrics) forget(name string) { m.unavailable.DeleteLabelValues(name) }
