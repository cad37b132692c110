package custom

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics count the calls of conversion webhooks, under upstream's names. Safe for concurrent use.
// A nil Metrics counts nothing.
type Metrics struct {
	requests          *prometheus.CounterVec
	seconds           *prometheus.HistogramVec
	definitionSeconds *prometheus.HistogramVec
}

// NewMetrics returns metrics that count from zero.
func NewMetrics() *Metrics {
	return &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_conversion_webhook_request_total",
			Help: "Counter for conversion webhook requests with success/failure and failure error type",
		}, []string{"result", "failure_type"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_conversion_webhook_duration_seconds", Help: "Conversion webhook request latency",
			Buckets: []float64{0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 45, 60},
		}, []string{"result", "failure_type"}),
		definitionSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_crd_conversion_webhook_duration_seconds", Help: "CRD webhook conversion duration in seconds",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{"crd_name", "from_version", "to_version", "succeeded"}),
	}
}

// Collectors returns the collectors for a registry.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.seconds, m.definitionSeconds}
}

// conversionError is an error of a conversion with its failure type.
type conversionError struct {
	error
	failure string
}

func (e *conversionError) Unwrap() error { return e.error }

const (
	callFailure      = "conversion_webhook_call_failure"
	malformedFailure = "conversion_webhook_malformed_response_failure"
	objectFailure    = "conversion_webhook_invalid_converted_object_failure"
)

func failed(failure string, err error) error { return &conversionError{err, failure} }

// observe counts one conversion by the webhook of a definition.
func (m *Metrics) observe(definition, from, to string, took time.Duration, err error) {
	if m == nil {
		return
	}
	m.definitionSeconds.WithLabelValues(definition, from, to, strconv.FormatBool(err == nil)).Observe(took.Seconds())
	var how *conversionError
	result, failure := "success", ""
	switch {
	case errors.As(err, &how):
		result, failure = "failure", how.failure
	case err != nil:
		return // the webhook was not called
	}
	m.requests.WithLabelValues(result, failure).Inc()
	m.seconds.WithLabelValues(result, failure).Observe(took.Seconds())
}
