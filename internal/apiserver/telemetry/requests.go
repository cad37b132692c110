package telemetry

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

// requestLabels is the part of a request that metrics distinguish.
type requestLabels struct{ verb, group, version, resource, subresource, scope, component string }

// requestSeries are the metrics of one set of labels; metrics that its verb does not have are nil.
// They appear once a request has been counted.
type requestSeries struct {
	requestLabels
	m           *Metrics
	longRunning prometheus.Gauge
	init        func()              // sets the following fields, once
	duration    prometheus.Observer // of requests that are no dry runs
	serviceTime prometheus.Observer
	size        prometheus.Observer // of responses, for reads
	bodySize    prometheus.Observer // of requests, for writes
	counts      sync.Map            // counted → prometheus.Counter
}

type counted struct {
	code   int
	dryRun string
}

// component is the label of resources; upstream has none for other paths.
const component = "apiserver"

func (s requestLabels) labels() []string {
	return []string{s.verb, s.group, s.version, s.resource, s.subresource, s.scope, s.component}
}

func (m *Metrics) newSeries(s requestLabels, info *wire.RequestInfo) *requestSeries {
	series := &requestSeries{requestLabels: s, m: m}
	if info.LongRunning() {
		series.longRunning = m.longRunning.WithLabelValues(s.labels()...)
	}
	// Copied, so that the request is not kept.
	kind, isResource, verb := requestKind(info), info.IsResource, bodyVerb(info)
	series.init = sync.OnceFunc(func() {
		labels := s.labels()
		series.duration = m.durations.WithLabelValues(s.verb, "", s.group, s.version, s.resource, s.subresource, s.scope, s.component)
		if series.longRunning == nil {
			series.serviceTime = m.serviceTimes.WithLabelValues(labels...)
		}
		switch {
		case kind == "readOnly":
			series.size = m.responseSizes.WithLabelValues(labels...)
		case isResource:
			series.bodySize = m.bodySizes.WithLabelValues(s.group, s.resource, verb)
		}
	})
	return series
}

func bodyVerb(info *wire.RequestInfo) string {
	if info.Verb == "deletecollection" {
		return "delete_collection"
	}
	return info.Verb
}

// valid reports whether all labels are UTF-8: a path may hold any bytes, labels may not.
func (s requestLabels) valid() bool {
	for _, label := range []string{s.verb, s.group, s.version, s.resource, s.subresource, s.scope} {
		if !utf8.ValidString(label) {
			return false
		}
	}
	return true
}

// labelsOf returns the labels of a request.
func labelsOf(info *wire.RequestInfo) requestLabels {
	s := requestLabels{verb: metricVerb(info), group: info.GVR.Group, version: info.GVR.Version, resource: info.GVR.Resource, subresource: info.Subresource, scope: info.Scope()}
	if info.IsResource {
		s.component = component
		return s
	}
	if s.resource, s.subresource = metricPath(info.Path); s.resource != "" {
		s.component = component
	}
	return s
}

// seriesOf returns the series of a request's labels.
func (m *Metrics) seriesOf(info *wire.RequestInfo) *requestSeries {
	s := labelsOf(info)
	if found, ok := m.series.Load(s); ok {
		return found.(*requestSeries)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.labelSets >= maxSeries || !s.valid() {
		return m.others
	}
	made, loaded := m.series.LoadOrStore(s, m.newSeries(s, info))
	if !loaded {
		m.labelSets++
	}
	return made.(*requestSeries)
}

// known returns the labels of a request, if a request with these labels has been served. Requests
// that are never served may have any labels.
func (m *Metrics) known(info *wire.RequestInfo) requestLabels {
	s := labelsOf(info)
	if _, ok := m.series.Load(s); ok {
		return s
	}
	return m.others.requestLabels
}

// metricPath returns the labels of a path that is no resource, as upstream. Other paths have none:
// discovery, the older OpenAPI document, the metrics themselves.
func metricPath(path string) (resource, subresource string) {
	switch path {
	case "/healthz", "/livez", "/readyz":
		return "", path
	case "/flagz", "/statusz":
		return path[1:], ""
	case "/openapi/v3":
		return "", path[1:]
	}
	if strings.HasPrefix(path, "/openapi/v3/") {
		return "", "openapi/v3/"
	}
	return "", ""
}

// Served marks a request as having reached its handler. Only such requests are counted, as
// upstream: not those refused by authentication, flow control or authorization, nor unknown paths,
// which anyone can invent. Responses of extension servers are not counted either, because their
// errors would look like this server's.
func (m *Metrics) Served(w *ResponseRecorder, info *wire.RequestInfo) {
	series := m.seriesOf(info)
	if w.running == nil && series.longRunning != nil {
		w.running = series.longRunning
		w.running.Inc()
	}
	if series.resource != "" || series.subresource != "" || series == m.others {
		w.series = series
	}
}

// Begin counts a request that has arrived; the function that it returns counts its end. size is
// that of its body.
func (m *Metrics) Begin(w *ResponseRecorder, info *wire.RequestInfo, size int64) func() {
	start, validation := time.Now(), info.Query.Get("fieldValidation")
	dryRun := ""
	if len(info.Query["dryRun"]) > 0 {
		dryRun = "All"
	}
	if !info.LongRunning() {
		w.running = m.readOnly
		if requestKind(info) == "mutating" {
			w.running = m.mutating
		}
		w.running.Inc()
	}
	return func() {
		if w.running != nil {
			w.running.Dec()
		}
		series := w.series
		if series == nil {
			return
		}
		series.init()
		series.count(w.Code, dryRun).Inc()
		took := time.Since(start)
		series.observe(took, w.Queued+time.Duration(w.mutating.Load()+w.validating.Load()), dryRun)
		if series.size != nil {
			series.size.Observe(float64(w.Written))
		}
		if series.bodySize != nil {
			series.bodySize.Observe(float64(max(size, 0)))
			m.fieldValidation(validation).Observe(took.Seconds())
		}
	}
}

// Terminated counts a request that the server itself ended with an error.
func (m *Metrics) Terminated(info *wire.RequestInfo, code int) {
	m.terminations.WithLabelValues(append(m.known(info).labels(), strconv.Itoa(code))...).Inc()
}

// Expired counts a request that timed out before it had its response.
func (m *Metrics) Expired(ctx context.Context, w *ResponseRecorder, info *wire.RequestInfo) {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && w.Code == http.StatusGatewayTimeout {
		m.Terminated(info, w.Code)
	}
}

// Aborted counts a request whose connection was broken off.
func (m *Metrics) Aborted(info *wire.RequestInfo) {
	s := m.known(info)
	m.aborts.WithLabelValues(s.verb, s.group, s.version, s.resource, s.subresource, s.scope).Inc()
}

// WatchListed records how long a watch took to send the initial objects.
func (m *Metrics) WatchListed(gvr schema.GroupVersionResource, scope string, took time.Duration) {
	m.watchLists.WithLabelValues(gvr.Group, gvr.Version, gvr.Resource, scope).Observe(took.Seconds())
}

func (s *requestSeries) observe(took, waited time.Duration, dryRun string) {
	duration := s.duration
	if dryRun != "" {
		duration = s.m.durations.WithLabelValues(s.verb, dryRun, s.group, s.version, s.resource, s.subresource, s.scope, s.component)
	}
	duration.Observe(took.Seconds())
	if s.serviceTime != nil {
		// The waits of a collection's objects may overlap.
		s.serviceTime.Observe(max(0, took-waited).Seconds())
	}
}

// fieldValidation returns the series of a value of the query option.
func (m *Metrics) fieldValidation(value string) prometheus.Observer {
	switch value {
	case "":
		return m.notValidated
	case "Ignore", "Warn", "Strict":
		return m.validated.WithLabelValues(value)
	}
	return m.validated.WithLabelValues("Other")
}

// requestKind returns whether the request is mutating or readOnly.
func requestKind(info *wire.RequestInfo) string {
	switch info.Verb {
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
	c := s.m.requests.WithLabelValues(s.verb, dryRun, s.group, s.version, s.resource, s.subresource, s.scope, s.component, strconv.Itoa(code))
	s.counts.Store(key, c)
	return c
}

// metricVerb returns the verb as metrics name it.
func metricVerb(info *wire.RequestInfo) string {
	switch info.Subresource {
	case "exec", "attach", "log", "portforward", "proxy":
		return "CONNECT"
	}
	switch info.Verb {
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
		if info.Apply {
			return "APPLY"
		}
		return "PATCH"
	case "delete", "deletecollection":
		return "DELETE"
	}
	return "other"
}
