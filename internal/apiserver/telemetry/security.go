package telemetry

import (
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/trace"
)

// SecurityMetrics are of the filters that a request passes before it is served.
type SecurityMetrics struct {
	attempts, authorized, users *prometheus.CounterVec
	authenticating, authorizing *prometheus.HistogramVec
	filters                     *prometheus.HistogramVec
	// impersonations, and the authorization checks for them
	Impersonations, Checks             attempts
	certificates                       prometheus.Histogram
	authenticated, Allowed             outcome
	Authentication, Record             prometheus.Observer // of filters
	Impersonation, Flow, Authorization prometheus.Observer
	admins, others                     prometheus.Counter // of users
}

// outcome holds the series of the usual result, so that it need not be looked up.
type outcome struct {
	count prometheus.Counter
	took  prometheus.Observer
}

// attempts are metrics of impersonation by mode and decision.
type attempts struct {
	Count *prometheus.CounterVec
	took  *prometheus.HistogramVec
}

func newAttempts(name, count, took string, seconds []float64) attempts {
	return attempts{
		NewCounter("apiserver_"+name+"_total", count+" split by mode and decision.", "mode", "decision"),
		NewHistogram("apiserver_"+name+"_duration_seconds", took+" in seconds split by mode and decision.", seconds, "mode", "decision"),
	}
}

// Observe counts one attempt.
func (a attempts) Observe(mode string, err error, took time.Duration) {
	decision := "allowed"
	if err != nil {
		decision = "denied"
	}
	a.Count.WithLabelValues(mode, decision).Inc()
	a.took.WithLabelValues(mode, decision).Observe(took.Seconds())
}

func newSecurityMetrics() *SecurityMetrics {
	seconds := prometheus.ExponentialBuckets(0.001, 2, 15)
	const day = 24 * 60 * 60
	m := &SecurityMetrics{
		attempts:       NewCounter("authentication_attempts", "Counter of authenticated attempts.", "result"),
		users:          NewCounter("authenticated_user_requests", "Counter of authenticated requests broken out by username.", "username"),
		authorized:     NewCounter("authorization_attempts_total", "Counter of authorization attempts broken down by result. It can be either 'allowed', 'denied', 'no-opinion' or 'error'.", "result"),
		authenticating: NewHistogram("authentication_duration_seconds", "Authentication duration in seconds broken out by result.", seconds, "result"),
		authorizing:    NewHistogram("authorization_duration_seconds", "Authorization duration in seconds broken out by result.", seconds, "result"),
		Impersonations: newAttempts("impersonation_attempts", "Total number of impersonation attempts", "Latency of impersonation attempts", seconds),
		Checks: newAttempts("impersonation_authorization_attempts", "Total number of authorization checks made by the impersonation handler",
			"Latency of authorization checks made by the impersonation handler", seconds),
		filters: NewHistogram("apiserver_request_filter_duration_seconds", "Request filter latency distribution in seconds, for each filter type",
			[]float64{0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 5, 10, 15, 30}, "filter"),
		certificates: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "apiserver_client_certificate_expiration_seconds",
			Help:    "Distribution of the remaining lifetime on the certificate used to authenticate a request.",
			Buckets: []float64{0, 1800, 3600, 7200, 21600, 43200, day, 2 * day, 4 * day, 7 * day, 30 * day, 90 * day, 180 * day, 360 * day}}),
	}
	m.authenticated = outcome{m.attempts.WithLabelValues("success"), m.authenticating.WithLabelValues("success")}
	m.Allowed = outcome{m.authorized.WithLabelValues("allowed"), m.authorizing.WithLabelValues("allowed")}
	m.Authentication, m.Record = m.filters.WithLabelValues("authentication"), m.filters.WithLabelValues("audit")
	m.Impersonation, m.Flow = m.filters.WithLabelValues("constrainedimpersonation"), m.filters.WithLabelValues("priorityandfairness")
	m.Authorization = m.filters.WithLabelValues("authorization")
	m.admins, m.others = m.users.WithLabelValues("admin"), m.users.WithLabelValues("other")
	return m
}

func (m *SecurityMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.attempts, m.users, m.authorized, m.authenticating, m.authorizing, m.filters, m.certificates,
		m.Impersonations.Count, m.Impersonations.took, m.Checks.Count, m.Checks.took,
	}
}

func (o outcome) Observe(took time.Duration) {
	o.count.Inc()
	o.took.Observe(took.Seconds())
}

// AuthenticatedAs counts the result of authentication.
func (m *SecurityMetrics) AuthenticatedAs(r *http.Request, user *auth.User, err error, took time.Duration) {
	if err != nil {
		result := "error"
		if errors.Is(err, wire.ErrNoCredentials) {
			result = "failure" // no credentials, as opposed to bad ones
		}
		outcome{m.attempts.WithLabelValues(result), m.authenticating.WithLabelValues(result)}.Observe(took)
		return
	}
	m.authenticated.Observe(took)
	if user.Name == "admin" {
		m.admins.Inc()
	} else {
		m.others.Inc() // as upstream: no user names in metrics
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		m.certificates.Observe(time.Until(r.TLS.PeerCertificates[0].NotAfter).Seconds())
	}
}

// AuthorizedAs counts any decision but the usual one.
func (m *SecurityMetrics) AuthorizedAs(result string, took time.Duration) {
	outcome{m.authorized.WithLabelValues(result), m.authorizing.WithLabelValues(result)}.Observe(took)
}

// FilterTimer measures one filter after the other.
type FilterTimer struct {
	Since time.Time
	Span  trace.Span // of the request
}

// EndStage is EndFilter for a filter with a span. If the filter refuses the request, filter is nil:
// the span is recorded, but not the metric, as upstream.
func (l *FilterTimer) EndStage(name string, filter prometheus.Observer) {
	began := l.Since
	if filter != nil {
		l.EndFilter(filter)
	} else {
		l.Since = time.Now()
	}
	l.Span.Stage(name, began, l.Since)
}

// EndFilter ends a filter, and begins the next.
func (l *FilterTimer) EndFilter(filter prometheus.Observer) time.Duration {
	now := time.Now()
	took := now.Sub(l.Since)
	l.Since = now
	filter.Observe(took.Seconds())
	return took
}
