package client

import (
	"context"
	"net/url"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/metrics"
)

// Metrics of requests to API servers elsewhere, under upstream's names; client-go tells of them, once it was asked to.
var (
	restRequests = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rest_client_requests_total",
		Help: "Number of HTTP requests, partitioned by status code, method, and host."}, []string{"code", "method", "host"})
	restSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "rest_client_request_duration_seconds", Help: "Request latency in seconds. Broken down by verb, and host.",
		Buckets: []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60}}, []string{"verb", "host"})

	askForMetrics = sync.OnceFunc(func() {
		metrics.Register(metrics.RegisterOpts{RequestLatency: restLatency{}, RequestResult: restResult{}})
	})
)

// Collectors are what a registry takes. Requests are counted from the first call on.
func Collectors() []prometheus.Collector {
	askForMetrics()
	return []prometheus.Collector{restRequests, restSeconds}
}

type restLatency struct{}

// Observe implements metrics.LatencyMetric.
func (restLatency) Observe(_ context.Context, verb string, u url.URL, took time.Duration) {
	restSeconds.WithLabelValues(verb, u.Host).Observe(took.Seconds())
}

type restResult struct{}

// Increment implements metrics.ResultMetric.
func (restResult) Increment(_ context.Context, code, method, host string) {
	restRequests.WithLabelValues(code, method, host).Inc()
}
