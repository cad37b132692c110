package apiserver

import (
	"bufio"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are the server's own, under upstream's names.
type metrics struct {
	registry    *prometheus.Registry
	requests    *prometheus.CounterVec
	durations   *prometheus.HistogramVec
	inflight    *prometheus.GaugeVec
	longRunning *prometheus.GaugeVec
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "apiserver_request_total",
			Help: "Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, scope, component, and HTTP response code."},
			[]string{"verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component", "code"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "apiserver_request_duration_seconds",
			Help:    "Response latency distribution in seconds for each verb, dry run value, group, version, resource, subresource, scope and component.",
			Buckets: []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60}},
			[]string{"verb", "group", "version", "resource", "subresource", "scope", "component"}),
		inflight: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "apiserver_current_inflight_requests",
			Help: "Maximal number of currently used inflight request limit of this apiserver per request kind in last second."}, []string{"request_kind"}),
		longRunning: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "apiserver_longrunning_requests",
			Help: "Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, scope and component. Not all requests are tracked this way."},
			[]string{"verb", "group", "version", "resource", "subresource", "scope", "component"}),
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubernetes_build_info",
		Help: "A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running."},
		[]string{"major", "minor", "git_version", "git_tree_state"})
	build.WithLabelValues(Version.Major, Version.Minor, Version.GitVersion, Version.GitTreeState).Set(1)
	m.registry.MustRegister(m.requests, m.durations, m.inflight, m.longRunning, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

const component = "apiserver"

// begin counts a request that has come in; the function that it returns counts its end.
func (m *metrics) begin(w *codeWriter, info *requestInfo) func() {
	verb, scope := metricVerb(info), info.scope()
	if info.longRunning() {
		gauge := m.longRunning.WithLabelValues(verb, info.gvr.Group, info.gvr.Version, info.gvr.Resource, info.subresource, scope, component)
		gauge.Inc()
		return func() {
			gauge.Dec()
			m.count(w, info, verb, scope)
		}
	}
	kind := "readOnly"
	switch info.verb {
	case "create", "update", "patch", "delete", "deletecollection":
		kind = "mutating"
	}
	gauge := m.inflight.WithLabelValues(kind)
	gauge.Inc()
	start := time.Now()
	return func() {
		gauge.Dec()
		m.count(w, info, verb, scope)
		m.durations.WithLabelValues(verb, info.gvr.Group, info.gvr.Version, info.gvr.Resource, info.subresource, scope, component).Observe(time.Since(start).Seconds())
	}
}

func (m *metrics) count(w *codeWriter, info *requestInfo, verb, scope string) {
	dryRun := ""
	if len(info.query["dryRun"]) > 0 {
		dryRun = "All"
	}
	m.requests.WithLabelValues(verb, dryRun, info.gvr.Group, info.gvr.Version, info.gvr.Resource, info.subresource, scope, component, codeText(w.code)).Inc()
}

func codeText(code int) string {
	switch code {
	case 0, http.StatusOK:
		return "200"
	case http.StatusCreated:
		return "201"
	}
	return strconv.Itoa(code)
}

func metricVerb(info *requestInfo) string {
	switch info.verb {
	case "get":
		return "GET"
	case "list":
		return "LIST"
	case "watch":
		return "WATCH"
	case "create":
		return "POST"
	case "update":
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

// codeWriter remembers the response's code.
type codeWriter struct {
	http.ResponseWriter
	code int
}

func (w *codeWriter) WriteHeader(code int) {
	if w.code == 0 {
		w.code = code
	}
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap lets http.ResponseController find what the connection can do.
func (w *codeWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack and Flush are for libraries that look for them themselves.
func (w *codeWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.code = http.StatusSwitchingProtocols
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

func (w *codeWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }
