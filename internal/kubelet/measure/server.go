package measure

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func (m *Metrics) server() {
	labels := []string{"method", "path", "server_type", "long_running"}
	m.requests = m.counter("kubelet_http_requests_total", "[ALPHA] Number of the http requests received since the server started", labels...)
	m.requestSeconds = m.histogram("kubelet_http_requests_duration_seconds", "[ALPHA] Duration in seconds to serve http requests", prometheus.DefBuckets, labels...)
	m.requestsNow = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubelet_http_inflight_requests", Help: "[ALPHA] Number of the inflight http requests"}, labels)
	m.main.MustRegister(m.requestsNow)
}

// paths are the first parts of the paths of the node's API. Other paths count as "other".
var paths = []string{
	"attach", "checkpoint", "configz", "containerLogs", "debug", "exec", "flagz", "healthz", "logs", "metrics", "pods", "portForward", "run", "runningpods",
	"stats", "statusz",
}

// longRunning are the paths whose requests last as long as the caller wants.
var longRunning = []string{"attach", "containerLogs", "debug", "exec", "portForward", "run"}

// Serve measures the requests to the node's API.
func (m *Metrics) Serve(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		long := "false"
		if slices.Contains(longRunning, path) {
			long = "true"
		}
		if !slices.Contains(paths, path) {
			path = "other"
		}
		if path == "metrics" {
			path = strings.Trim(r.URL.Path, "/")
			if !slices.Contains([]string{"metrics", "metrics/cadvisor", "metrics/resource", "metrics/probes", "metrics/slis"}, path) {
				path = "other"
			}
		}
		labels := []string{method(r.Method), path, "readwrite", long}
		m.requests.WithLabelValues(labels...).Inc()
		now := m.requestsNow.WithLabelValues(labels...)
		now.Inc()
		defer now.Dec()
		began := time.Now()
		defer func() { m.requestSeconds.WithLabelValues(labels...).Observe(time.Since(began).Seconds()) }()
		next.ServeHTTP(w, r)
	})
}

func method(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return m
	}
	return "other"
}
