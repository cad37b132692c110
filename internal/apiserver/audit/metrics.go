package audit

import (
	"github.com/prometheus/client_golang/prometheus"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// Metrics count all records of a server, under upstream's names. A nil Metrics counts nothing.
type Metrics struct {
	events, rejected prometheus.Counter
	levels, errors   *prometheus.CounterVec
}

// NewMetrics creates the metrics, which exist even if nothing is recorded.
func NewMetrics() *Metrics {
	counter := func(name, help string, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	return &Metrics{
		events: prometheus.NewCounter(prometheus.CounterOpts{Name: "apiserver_audit_event_total",
			Help: "Counter of audit events generated and sent to the audit backend."}),
		rejected: prometheus.NewCounter(prometheus.CounterOpts{Name: "apiserver_audit_requests_rejected_total",
			Help: "Counter of apiserver requests rejected due to an error in audit logging backend."}),
		levels: counter("apiserver_audit_level_total", "Counter of policy levels for audit events (1 per request).", "level"),
		errors: counter("apiserver_audit_error_total", "Counter of audit events that failed to be audited properly. Plugin identifies the plugin affected by the error.", "plugin"),
	}
}

// Collectors returns the metrics for a registry.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.events, m.rejected, m.levels, m.errors}
}

func (m *Metrics) event() {
	if m != nil {
		m.events.Inc()
	}
}

func (m *Metrics) level(level auditv1.Level) {
	if m != nil {
		m.levels.WithLabelValues(string(level)).Inc()
	}
}

func (m *Metrics) lost(plugin string, events int) {
	if m != nil {
		m.errors.WithLabelValues(plugin).Add(float64(events))
	}
}

func (m *Metrics) reject() {
	if m != nil {
		m.rejected.Inc()
	}
}
