package telemetry

import (
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/knarr-project/knarr/internal/apiserver/audit"
	"github.com/knarr-project/knarr/internal/apiserver/custom"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/zpages"
)

// Metrics are the server's own, under upstream's names.
type Metrics struct {
	Registry      *prometheus.Registry
	requests      *prometheus.CounterVec
	durations     *prometheus.HistogramVec
	serviceTimes  *prometheus.HistogramVec
	responseSizes *prometheus.HistogramVec
	bodySizes     *prometheus.HistogramVec
	validated     *prometheus.HistogramVec
	longRunning   *prometheus.GaugeVec
	watchLists    *prometheus.HistogramVec
	Deprecated    *prometheus.GaugeVec
	terminations  *prometheus.CounterVec
	aborts        *prometheus.CounterVec
	TLSErrors     prometheus.Counter
	notValidated  prometheus.Observer // validated, of requests without the option
	mutating      prometheus.Gauge    // requests in progress
	readOnly      prometheus.Gauge
	Audit         *audit.Metrics
	Security      *SecurityMetrics
	Store         *StoreMetrics
	Writes        *WriteMetrics
	Health        *zpages.HealthMetrics
	Conversions   *custom.Metrics

	// series are the metrics of requests by their labels, so that a request looks up its collectors
	// once. Names of objects are no labels, but resources that do not exist are: maxSeries limits
	// how many series unknown clients can create.
	series    sync.Map // requestLabels → *requestSeries
	labelSets int
	mu        sync.Mutex // guards labelSets
	others    *requestSeries
}

// maxSeries is the largest number of label sets of requests; more share one series.
const maxSeries = 10000

// NewCounter returns a vector of counters with the given name, help and labels.
func NewCounter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func newGauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

// NewHistogram returns a vector of histograms with the given name, help, buckets and labels.
func NewHistogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

// requestSeconds are upstream's buckets of request durations; service times omit the first two.
var requestSeconds = []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60}

// NewMetrics creates the metrics of a server.
func NewMetrics() *Metrics {
	labels := []string{"verb", "group", "version", "resource", "subresource", "scope", "component"}
	inflight := newGauge("apiserver_current_inflight_requests",
		"Maximal number of currently used inflight request limit of this apiserver per request kind in last second.", "request_kind")
	m := &Metrics{
		Registry: prometheus.NewRegistry(),
		requests: NewCounter("apiserver_request_total",
			"Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, scope, component, and HTTP response code.",
			"verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component", "code"),
		durations: NewHistogram("apiserver_request_duration_seconds",
			"Response latency distribution in seconds for each verb, dry run value, group, version, resource, subresource, scope and component.", requestSeconds,
			"verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component"),
		serviceTimes: NewHistogram("apiserver_request_sli_duration_seconds",
			"Response latency distribution (not counting webhook duration and priority & fairness queue wait times) in seconds for each verb, group, version, resource, subresource, scope and component.",
			requestSeconds[2:], labels...),
		responseSizes: NewHistogram("apiserver_response_sizes",
			"Response size distribution in bytes for each group, version, verb, resource, subresource, scope and component.", prometheus.ExponentialBuckets(1000, 10, 7), labels...),
		bodySizes: NewHistogram("apiserver_request_body_size_bytes",
			"Apiserver request body size in bytes broken out by resource and verb.", prometheus.LinearBuckets(50000, 100000, 31), "group", "resource", "verb"),
		validated: NewHistogram("field_validation_request_duration_seconds",
			"Response latency distribution in seconds for each field validation value", requestSeconds[2:], "field_validation"),
		longRunning: newGauge("apiserver_longrunning_requests",
			"Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, scope and component. Not all requests are tracked this way.", labels...),
		watchLists: NewHistogram("apiserver_watch_list_duration_seconds",
			"Response latency distribution in seconds for watch list requests broken by group, version, resource and scope.",
			[]float64{0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 15, 20, 30, 45, 60}, "group", "version", "resource", "scope"),
		Deprecated: newGauge("apiserver_requested_deprecated_apis",
			"Gauge of deprecated APIs that have been requested, broken out by API group, version, resource, subresource, and removed_release.",
			"group", "version", "resource", "subresource", "removed_release"),
		terminations: NewCounter("apiserver_request_terminations_total", "Number of requests which apiserver terminated in self-defense.",
			"verb", "group", "version", "resource", "subresource", "scope", "component", "code"),
		aborts: NewCounter("apiserver_request_aborts_total",
			"Number of requests which apiserver aborted possibly due to a timeout, for each group, version, verb, resource, subresource and scope",
			"verb", "group", "version", "resource", "subresource", "scope"),
		TLSErrors: prometheus.NewCounter(prometheus.CounterOpts{Name: "apiserver_tls_handshake_errors_total",
			Help: "Number of requests dropped with 'TLS handshake error from' error"}),
		mutating: inflight.WithLabelValues("mutating"), readOnly: inflight.WithLabelValues("readOnly"),
		Audit: audit.NewMetrics(), Security: newSecurityMetrics(), Store: newStoreMetrics(), Writes: newWriteMetrics(), Health: zpages.NewHealthMetrics(), Conversions: custom.NewMetrics(),
	}
	m.notValidated = m.validated.WithLabelValues("")
	m.Registry.MustRegister(m.requests, m.durations, m.serviceTimes, m.responseSizes, m.bodySizes, m.validated, inflight, m.longRunning, m.watchLists, m.Deprecated, m.terminations, m.aborts,
		m.TLSErrors)
	m.Registry.MustRegister(zpages.Collectors()...)
	m.Registry.MustRegister(m.Audit.Collectors()...)
	m.Registry.MustRegister(m.Security.collectors()...)
	m.Registry.MustRegister(m.Store.collectors()...)
	m.Registry.MustRegister(m.Writes.collectors()...)
	m.Registry.MustRegister(m.Conversions.Collectors()...)
	m.others = m.newSeries(requestLabels{verb: "other"}, &wire.RequestInfo{Verb: "other"})
	return m
}

// Handler serves /metrics.
func (m *Metrics) Handler() http.Handler {
	return zpages.Metrics(m.Registry)
}
