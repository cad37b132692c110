package webhook

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/knarr-project/knarr/internal/auth"
)

// Metrics counts decisions of authorizers, under upstream's names.
type Metrics struct {
	decisions                *prometheus.CounterVec
	asked                    *prometheus.CounterVec
	open                     *prometheus.CounterVec
	latency                  *prometheus.HistogramVec
	conditionErrors, skipped *prometheus.CounterVec
	conditionLatency         *prometheus.HistogramVec
}

// NewMetrics returns empty metrics.
func NewMetrics() *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "apiserver_authorization_" + name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "apiserver_authorization_" + name, Help: help, Buckets: buckets}, labels)
	}
	return &Metrics{
		decisions:       counter("decisions_total", "Total number of terminal decisions made by an authorizer split by authorizer type, name, and decision.", "type", "name", "decision"),
		asked:           counter("webhook_evaluations_total", "Round-trips to authorization webhooks.", "name", "result"),
		open:            counter("webhook_evaluations_fail_open_total", "NoOpinion results due to webhook timeout or error.", "name", "result"),
		latency:         histogram("webhook_duration_seconds", "Request latency in seconds.", prometheus.DefBuckets, "name", "result"),
		conditionErrors: counter("match_condition_evaluation_errors_total", "Total number of errors when an authorization webhook encounters a match condition error split by authorizer type and name.", "type", "name"),
		skipped:         counter("match_condition_exclusions_total", "Total number of exclusions when an authorization webhook is skipped because match conditions exclude it.", "type", "name"),
		conditionLatency: histogram("match_condition_evaluation_seconds", "Authorization match condition evaluation time in seconds, split by authorizer type and name.",
			[]float64{0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25}, "type", "name"),
	}
}

// Collectors returns the metrics to register.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.decisions, m.asked, m.open, m.latency, m.conditionErrors, m.skipped, m.conditionLatency}
}

// webhook counts one request to a webhook.
func (m *Metrics) webhook(name string, err error, took time.Duration) {
	result := outcome(err)
	m.asked.WithLabelValues(name, result).Inc()
	m.latency.WithLabelValues(name, result).Observe(took.Seconds())
}

// failed counts a request that a webhook did not answer, if the next authorizer is asked instead.
func (m *Metrics) failed(name string, err error, failure auth.Decision) {
	if failure == auth.NoOpinion {
		m.open.WithLabelValues(name, outcome(err)).Inc()
	}
}

func outcome(err error) string {
	switch {
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case err != nil:
		return "error"
	}
	return "success"
}

// RecordAuthorizationMatchConditionEvaluation and the next two methods implement the matcher's
// metrics.
func (m *Metrics) RecordAuthorizationMatchConditionEvaluation(_ context.Context, kind, name string, took time.Duration) {
	m.conditionLatency.WithLabelValues(kind, name).Observe(took.Seconds())
}

// RecordAuthorizationMatchConditionEvaluationFailure counts a condition that could not be
// evaluated.
func (m *Metrics) RecordAuthorizationMatchConditionEvaluationFailure(_ context.Context, kind, name string) {
	m.conditionErrors.WithLabelValues(kind, name).Inc()
}

// RecordAuthorizationMatchConditionExclusion counts a request that the conditions kept from a
// webhook.
func (m *Metrics) RecordAuthorizationMatchConditionExclusion(_ context.Context, kind, name string) {
	m.skipped.WithLabelValues(kind, name).Inc()
}

// counted counts an authorizer's decisions.
type counted struct {
	auth.Authorizer
	metrics    *Metrics
	kind, name string
}

func (m *Metrics) count(kind, name string, z auth.Authorizer) auth.Authorizer {
	return &counted{z, m, kind, name}
}

// Authorize implements auth.Authorizer.
func (c *counted) Authorize(ctx context.Context, a auth.Attributes) (auth.Decision, string, error) {
	decision, reason, err := c.Authorizer.Authorize(ctx, a)
	switch decision {
	case auth.Allow:
		c.metrics.decisions.WithLabelValues(c.kind, c.name, "allowed").Inc()
	case auth.Deny:
		c.metrics.decisions.WithLabelValues(c.kind, c.name, "denied").Inc()
	}
	return decision, reason, err
}
