package apiserver

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/knarr-project/knarr/internal/apiserver/audit"
)

// metrics are the server's own, under upstream's names.
type metrics struct {
	registry       *prometheus.Registry
	requests       *prometheus.CounterVec
	durations      *prometheus.HistogramVec
	serviceTimes   *prometheus.HistogramVec
	responseSizes  *prometheus.HistogramVec
	inflight       *prometheus.GaugeVec
	longRunning    *prometheus.GaugeVec
	deprecated     *prometheus.GaugeVec
	terminations   *prometheus.CounterVec
	authentication *prometheus.CounterVec
	authorization  *prometheus.CounterVec
	allowed        prometheus.Counter // of authorization
	audit          *audit.Metrics

	// series are the metrics of requests of one shape, so that a request looks labels up once. Names of objects are no part of a
	// shape, but resources that do not exist are: maxSeries bounds what strangers can make of them.
	series sync.Map // shape → *requestSeries
	shapes int
	mu     sync.Mutex // guards shapes
	others *requestSeries
}

const maxSeries = 10000

// shape is what tells requests apart in metrics.
type shape struct{ verb, group, version, resource, subresource, scope string }

// requestSeries are the metrics of one shape.
type requestSeries struct {
	shape
	m                           *metrics
	duration, serviceTime, size prometheus.Observer
	longRunning                 prometheus.Gauge
	counts                      sync.Map // counted → prometheus.Counter
}

type counted struct {
	code   int
	dryRun string
}

func newMetrics() *metrics {
	requestLabels := []string{"verb", "group", "version", "resource", "subresource", "scope", "component"}
	durations := []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, requestLabels)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: counter("apiserver_request_total",
			"Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, scope, component, and HTTP response code.",
			"verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component", "code"),
		durations: histogram("apiserver_request_duration_seconds",
			"Response latency distribution in seconds for each verb, dry run value, group, version, resource, subresource, scope and component.", durations),
		serviceTimes: histogram("apiserver_request_sli_duration_seconds",
			"Response latency distribution (not counting webhook duration and priority & fairness queue wait times) in seconds for each verb, group, version, resource, subresource, scope and component.", durations[2:]),
		responseSizes: histogram("apiserver_response_sizes",
			"Response size distribution in bytes for each group, version, verb, resource, subresource, scope and component.", prometheus.ExponentialBuckets(1000, 10, 7)),
		inflight: gauge("apiserver_current_inflight_requests",
			"Maximal number of currently used inflight request limit of this apiserver per request kind in last second.", "request_kind"),
		longRunning: gauge("apiserver_longrunning_requests",
			"Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, scope and component. Not all requests are tracked this way.", requestLabels...),
		deprecated: gauge("apiserver_requested_deprecated_apis",
			"Gauge of deprecated APIs that have been requested, broken out by API group, version, resource, subresource, and removed_release.",
			"group", "version", "resource", "subresource", "removed_release"),
		terminations: counter("apiserver_request_terminations_total", "Number of requests which apiserver terminated in self-defense.",
			"verb", "group", "version", "resource", "subresource", "scope", "component", "code"),
		authentication: counter("authentication_attempts", "Counter of authenticated attempts.", "result"),
		authorization: counter("authorization_attempts_total",
			"Counter of authorization attempts broken down by result. It can be either 'allowed', 'denied', 'no-opinion' or 'error'.", "result"),
		audit: audit.NewMetrics(),
	}
	build := gauge("kubernetes_build_info",
		"A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.",
		"major", "minor", "git_version", "git_tree_state", "go_version", "platform")
	build.WithLabelValues(Version.Major, Version.Minor, Version.GitVersion, Version.GitTreeState, Version.GoVersion, Version.Platform).Set(1)
	m.registry.MustRegister(m.requests, m.durations, m.serviceTimes, m.responseSizes, m.inflight, m.longRunning, m.deprecated, m.terminations,
		m.authentication, m.authorization, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.registry.MustRegister(m.audit.Collectors()...)
	m.allowed = m.authorization.WithLabelValues("allowed")
	m.others = m.newSeries(shape{verb: "other"})
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

const component = "apiserver"

func (m *metrics) newSeries(s shape) *requestSeries {
	labels := []string{s.verb, s.group, s.version, s.resource, s.subresource, s.scope, component}
	return &requestSeries{
		shape: s, m: m, duration: m.durations.WithLabelValues(labels...), serviceTime: m.serviceTimes.WithLabelValues(labels...),
		size: m.responseSizes.WithLabelValues(labels...), longRunning: m.longRunning.WithLabelValues(labels...),
	}
}

// of gives the series of a request's shape.
func (m *metrics) of(info *requestInfo) *requestSeries {
	s := shape{verb: metricVerb(info), group: info.gvr.Group, version: info.gvr.Version, resource: info.gvr.Resource, subresource: info.subresource, scope: info.scope()}
	if !info.isResource {
		s.subresource = metricPath(info.path)
	}
	if found, ok := m.series.Load(s); ok {
		return found.(*requestSeries)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shapes >= maxSeries {
		return m.others
	}
	made, loaded := m.series.LoadOrStore(s, m.newSeries(s))
	if !loaded {
		m.shapes++
	}
	return made.(*requestSeries)
}

// metricPath is how metrics call what is not a resource; of other paths they say nothing.
func metricPath(path string) string {
	switch path {
	case "/healthz", "/livez", "/readyz", "/metrics", "/version", "/openapi/v2", "/openapi/v3", "/api", "/apis":
		return path
	}
	return ""
}

// begin counts a request that has come in; the function that it returns counts its end.
func (m *metrics) begin(w *codeWriter, info *requestInfo) func() {
	series := m.of(info)
	dryRun := ""
	if len(info.query["dryRun"]) > 0 {
		dryRun = "All"
	}
	if info.longRunning() {
		series.longRunning.Inc()
		return func() {
			series.longRunning.Dec()
			series.count(w.code, dryRun).Inc()
		}
	}
	gauge := m.inflight.WithLabelValues(requestKind(info))
	gauge.Inc()
	start := time.Now()
	return func() {
		gauge.Dec()
		series.count(w.code, dryRun).Inc()
		took := time.Since(start)
		series.duration.Observe(took.Seconds())
		series.serviceTime.Observe((took - w.waited).Seconds())
		if info.verb == "get" || info.verb == "list" {
			series.size.Observe(float64(w.written))
		}
	}
}

// requestKind tells requests that change something from those that do not.
func requestKind(info *requestInfo) string {
	switch info.verb {
	case "create", "update", "patch", "delete", "deletecollection", "post", "put":
		return "mutating"
	}
	return "readOnly"
}

func (s *requestSeries) count(code int, dryRun string) prometheus.Counter {
	if code == 0 {
		code = http.StatusOK
	}
	key := counted{code, dryRun}
	if c, ok := s.counts.Load(key); ok {
		return c.(prometheus.Counter)
	}
	c := s.m.requests.WithLabelValues(s.verb, dryRun, s.group, s.version, s.resource, s.subresource, s.scope, component, strconv.Itoa(code))
	s.counts.Store(key, c)
	return c
}

func metricVerb(info *requestInfo) string {
	switch info.verb {
	case "get":
		return "GET"
	case "list":
		return "LIST"
	case "watch":
		return "WATCH"
	case "create", "post":
		return "POST"
	case "update", "put":
		return "PUT"
	case "patch":
		return "PATCH"
	case "delete":
		return "DELETE"
	case "deletecollection":
		return "DELETECOLLECTION"
	}
	return "other"
}

// scope is how much of the cluster a request is about.
func (i *requestInfo) scope() string {
	switch {
	case !i.isResource:
		return ""
	case i.name != "" && i.verb != "list" && i.verb != "watch" || i.verb == "create":
		return "resource"
	case i.namespace != "":
		return "namespace"
	}
	return "cluster"
}

// objectCounts tells how many objects there are of the kinds that somebody uses: their caches know.
type objectCounts struct{ endpoints *endpoints }

var objectsDesc = prometheus.NewDesc("apiserver_resource_objects", "Number of stored objects at the time of last check split by kind.", []string{"group", "resource"}, nil)

func (c objectCounts) Describe(ch chan<- *prometheus.Desc) { ch <- objectsDesc }

func (c objectCounts) Collect(ch chan<- prometheus.Metric) {
	for gr, r := range c.endpoints.registries {
		if reader := r.started(); reader != nil {
			ch <- prometheus.MustNewConstMetric(objectsDesc, prometheus.GaugeValue, float64(reader.Snapshot().Len()), gr.Group, gr.Resource)
		}
	}
}
