package run

import (
	"context"
	"net/url"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/metrics"
)

// clientMetrics count the requests to API servers in other processes, under upstream's names.
// client-go reports the requests of the whole process to one receiver, so there is one instance,
// and only a process of knarr makes it.
var clientMetrics = sync.OnceValue(func() []prometheus.Collector {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rest_client_requests_total", Help: "Number of HTTP requests, partitioned by status code, method, and host.",
	}, []string{"code", "method", "host"})
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "rest_client_request_duration_seconds", Help: "Request latency in seconds. Broken down by verb, and host.",
		Buckets: []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60},
	}, []string{"verb", "host"})
	metrics.Register(metrics.RegisterOpts{RequestLatency: requestSeconds{seconds}, RequestResult: requestResults{requests}})
	return []prometheus.Collector{requests, seconds}
})

type requestSeconds struct{ *prometheus.HistogramVec }

// Observe implements metrics.LatencyMetric.
func (s requestSeconds) Observe(_ context.Context, verb string, u url.URL, took time.Duration) {
	s.WithLabelValues(verb, u.Host).Observe(took.Seconds())
}

type requestResults struct{ *prometheus.CounterVec }

// Increment implements metrics.ResultMetric.
func (r requestResults) Increment(_ context.Context, code, method, host string) {
	r.WithLabelValues(code, method, host).Inc()
}
