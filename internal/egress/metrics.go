package egress

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// labels describe how the proxy is contacted.
type labels struct{ protocol, transport string }

// metrics have upstream's names, labels and buckets.
type metrics struct {
	starts, failures *prometheus.CounterVec
	durations        *prometheus.HistogramVec
}

func newMetrics() *metrics {
	return &metrics{
		starts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_egress_dialer_dial_start_total",
			Help: "Connections begun through a proxy, by its protocol (http_connect or grpc) and transport (tcp or uds).",
		}, []string{"protocol", "transport"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_egress_dialer_dial_failure_count",
			Help: "Connections through a proxy that failed, by its protocol, its transport, and the stage: connect (to the proxy) or proxy (its own part).",
		}, []string{"protocol", "transport", "stage"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_egress_dialer_dial_duration_seconds", Buckets: []float64{0.005, 0.025, 0.1, 0.5, 2.5, 12.5},
			Help: "How long connections through a proxy took, by its protocol and transport, in seconds.",
		}, []string{"protocol", "transport"}),
	}
}

func (m *metrics) started(l labels) { m.starts.WithLabelValues(l.protocol, l.transport).Inc() }

func (m *metrics) failed(l labels, stage string) {
	m.failures.WithLabelValues(l.protocol, l.transport, stage).Inc()
}

func (m *metrics) took(l labels, d time.Duration) {
	m.durations.WithLabelValues(l.protocol, l.transport).Observe(d.Seconds())
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.starts, m.failures, m.durations}
}
