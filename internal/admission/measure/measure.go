// Package measure counts and times admission, under upstream's names: the two steps of a chain, its
// plugins, webhooks, policies and expressions.
//
// The builder of a chain makes one Metrics, hands it to the chain and its plugins, and registers
// its Collectors.
package measure

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/knarr-project/knarr/internal/cel"
)

// The steps of admission, as upstream calls them.
const (
	Admit    = "admit"
	Validate = "validate"
)

// Kinds of webhooks.
const (
	Mutating   = "admit"
	Validating = "validating"
)

// Kinds of objects with matchConditions.
const (
	KindWebhook = "webhook"
	KindPolicy  = "policy"
)

// Condition identifies the owner of matchConditions. Kind is KindWebhook or KindPolicy. Type is
// Mutating or Validating for webhooks, and Validate for policies of both kinds, as upstream.
type Condition struct{ Name, Kind, Type string }

// Actions and errors of policies.
const (
	Allowed     = "allow"
	NoError     = "no_error"
	InvalidType = "invalid_error"
)

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return newCounter("apiserver_"+name, help, labels...)
}

func newCounter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "apiserver_" + name, Help: help, Buckets: buckets}, labels)
}

// atZero creates series with the value zero, as upstream does.
func atZero(c *prometheus.CounterVec, series ...[]string) *prometheus.CounterVec {
	for _, labels := range series {
		c.WithLabelValues(labels...)
	}
	return c
}

// Metrics are the metrics of one admission chain. They are safe for concurrent use.
type Metrics struct {
	// Expressions are the metrics of conditions and policies.
	Expressions *cel.Metrics
	// Admit and Validate time the two steps of the chain.
	Admit, Validate *Timer

	steps, plugins                                      *prometheus.HistogramVec
	webhooks                                            *prometheus.HistogramVec
	webhookRequests, webhookRejections, webhookFailOpen *prometheus.CounterVec
	conditions                                          *prometheus.HistogramVec
	conditionErrors, conditionExclusions                *prometheus.CounterVec
	policyChecks                                        *prometheus.CounterVec
	policyTimes                                         *prometheus.HistogramVec
	mutationChecks                                      *prometheus.CounterVec
	mutationTimes                                       *prometheus.HistogramVec

	podSecurity, podSecurityExempt, podSecurityErrors *prometheus.CounterVec
}

var (
	seconds       = []float64{0.005, 0.025, 0.1, 0.5, 1.0, 2.5}
	policySeconds = []float64{0.0000005, 0.001, 0.01, 0.1, 1.0}
)

// New returns metrics that count from zero.
func New() *Metrics {
	m := &Metrics{
		Expressions: cel.NewMetrics(),
		steps: histogram("admission_step_admission_duration_seconds",
			"Admission sub-step latency histogram in seconds, broken out for each operation and API resource and step type (validate or admit).", seconds, "type", "operation", "rejected"),
		plugins: histogram("admission_controller_admission_duration_seconds",
			"Admission controller latency histogram in seconds, identified by name and broken out for each operation and API resource and type (validate or admit).", seconds, "name", "type", "operation", "rejected"),
		webhooks: histogram("admission_webhook_admission_duration_seconds",
			"Admission webhook latency histogram in seconds, identified by name and broken out for each operation and API resource and type (validate or admit).",
			append(seconds, 10, 25), "name", "type", "operation", "rejected"),
		webhookRequests: counter("admission_webhook_request_total",
			"Admission webhook request total, identified by name and broken out for each admission type (validating or admit) and operation. Additional labels specify whether the request was rejected or not and an HTTP status code.",
			"name", "type", "operation", "code", "rejected"),
		webhookRejections: counter("admission_webhook_rejection_count",
			"Admission webhook rejection count, identified by name and broken out for each admission type (validating or admit) and operation. Additional labels specify an error type (calling_webhook_error or apiserver_internal_error if an error occurred; no_error otherwise) and optionally a non-zero rejection code if the webhook rejects the request with an HTTP status code.",
			"name", "type", "operation", "error_type", "rejection_code"),
		webhookFailOpen: counter("admission_webhook_fail_open_count",
			"Admission webhook fail open count, identified by name and broken out for each admission type (validating or admit).", "name", "type"),
		conditions: histogram("admission_match_condition_evaluation_seconds",
			"Admission match condition evaluation time in seconds, identified by name and broken out for each kind containing matchConditions (webhook or policy), operation and type (validate or admit).",
			[]float64{0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25}, "name", "kind", "type", "operation"),
		conditionErrors: counter("admission_match_condition_evaluation_errors_total",
			"Admission match condition evaluation errors count, identified by name of resource containing the match condition and broken out for each kind containing matchConditions (webhook or policy), operation and admission type (validate or admit).",
			"name", "kind", "type", "operation"),
		conditionExclusions: counter("admission_match_condition_exclusions_total",
			"Admission match condition evaluation exclusions count, identified by name of resource containing the match condition and broken out for each kind containing matchConditions (webhook or policy), operation and admission type (validate or admit).",
			"name", "kind", "type", "operation"),
		policyChecks: counter("validating_admission_policy_check_total",
			"Validation admission policy check total, labeled by policy and further identified by binding and enforcement action taken.", "policy", "policy_binding", "error_type", "enforcement_action"),
		policyTimes: histogram("validating_admission_policy_check_duration_seconds",
			"Validation admission latency for individual validation expressions in seconds, labeled by policy and further including binding and enforcement action taken.",
			policySeconds, "policy", "policy_binding", "error_type", "enforcement_action"),
		mutationChecks: counter("mutating_admission_policy_check_total",
			"Mutation admission policy check total, labeled by policy and further identified by binding.", "policy", "policy_binding", "error_type"),
		mutationTimes: histogram("mutating_admission_policy_check_duration_seconds",
			"Mutation admission latency for individual mutation expressions in seconds, labeled by policy and binding.", policySeconds, "policy", "policy_binding", "error_type"),
		podSecurity: atZero(newCounter("pod_security_evaluations_total",
			"Number of policy evaluations that occurred, not counting ignored or exempt requests.",
			"decision", "policy_level", "policy_version", "mode", "request_operation", "resource", "subresource"),
			[]string{"allow", "privileged", "latest", "enforce", "create", "pod", ""}, []string{"allow", "privileged", "latest", "enforce", "update", "pod", ""}),
		podSecurityExempt: atZero(newCounter("pod_security_exemptions_total",
			"Number of exempt requests, not counting ignored or out of scope requests.", "request_operation", "resource", "subresource"),
			[]string{"create", "pod", ""}, []string{"update", "pod", ""}, []string{"create", "controller", ""}, []string{"update", "controller", ""}),
		podSecurityErrors: newCounter("pod_security_errors_total",
			"Number of errors preventing normal evaluation. Non-fatal errors may result in the latest restricted profile being used for evaluation.",
			"fatal", "request_operation", "resource", "subresource"),
	}
	m.Admit, m.Validate = newTimer(m.steps, Admit), newTimer(m.steps, Validate)
	return m
}

// Collectors returns the collectors for a registry.
func (m *Metrics) Collectors() []prometheus.Collector {
	return append(m.Expressions.Collectors(),
		m.steps, m.plugins, m.webhooks, m.webhookRequests, m.webhookRejections, m.webhookFailOpen, m.conditions, m.conditionErrors, m.conditionExclusions,
		m.policyChecks, m.policyTimes, m.mutationChecks, m.mutationTimes, m.podSecurity, m.podSecurityExempt, m.podSecurityErrors)
}

// Timer measures a step or a plugin. Looking up a series costs time, so the common series (writes
// that pass) are looked up once.
type Timer struct {
	of     *prometheus.HistogramVec
	labels []string
	passed map[string]prometheus.Observer // by operation
}

// operations are the operations of admission.
var operations = []string{"CREATE", "UPDATE", "DELETE", "CONNECT"}

func newTimer(of *prometheus.HistogramVec, labels ...string) *Timer {
	t := &Timer{of: of, labels: labels, passed: make(map[string]prometheus.Observer, len(operations))}
	for _, o := range operations {
		t.passed[o] = of.WithLabelValues(t.values(o, "false")...)
	}
	return t
}

func (t *Timer) values(operation, rejected string) []string {
	return append(append(make([]string, 0, len(t.labels)+2), t.labels...), operation, rejected)
}

// Took records a duration. A nil Timer records nothing.
func (t *Timer) Took(operation string, took time.Duration, err error) {
	if t == nil {
		return
	}
	passed, ok := t.passed[operation]
	if err != nil || !ok {
		t.of.WithLabelValues(t.values(operation, strconv.FormatBool(err != nil))...).Observe(took.Seconds())
		return
	}
	passed.Observe(took.Seconds())
}

// Plugin returns a timer for a plugin in one of the steps.
func (m *Metrics) Plugin(name, step string) *Timer { return newTimer(m.plugins, name, step) }

// Webhook counts one request to a webhook, by its HTTP code and whether the write was refused.
func (m *Metrics) Webhook(name, kind, operation string, code int, rejected bool, took time.Duration) {
	text := strconv.FormatBool(rejected)
	m.webhooks.WithLabelValues(name, kind, operation, text).Observe(took.Seconds())
	m.webhookRequests.WithLabelValues(name, kind, operation, strconv.Itoa(code), text).Inc()
}

// WebhookRejected counts a refused write by its cause. "no_error" means that the webhook itself
// refused it with the code.
func (m *Metrics) WebhookRejected(name, kind, operation, errorType string, code int) {
	m.webhookRejections.WithLabelValues(name, kind, operation, errorType, strconv.Itoa(code)).Inc()
}

// WebhookFailedOpen counts a write that passed although its webhook could not be called.
func (m *Metrics) WebhookFailedOpen(name, kind string) {
	m.webhookFailOpen.WithLabelValues(name, kind).Inc()
}

// Evaluated records the duration of matchConditions. err is not nil if one of them could not be
// evaluated.
func (m *Metrics) Evaluated(c Condition, operation string, took time.Duration, err error) {
	m.conditions.WithLabelValues(c.Name, c.Kind, c.Type, operation).Observe(took.Seconds())
	if err != nil {
		m.conditionErrors.WithLabelValues(c.Name, c.Kind, c.Type, operation).Inc()
	}
}

// WebhookExcluded counts a write that a webhook's matchConditions exclude.
func (m *Metrics) WebhookExcluded(name, kind, operation string) {
	if kind == Validating {
		kind = Validate // upstream has both names
	}
	m.conditionExclusions.WithLabelValues(name, KindWebhook, kind, operation).Inc()
}

// Policy counts the action of one ValidatingAdmissionPolicyBinding on a write.
func (m *Metrics) Policy(policy, binding, errorType, action string, took time.Duration) {
	m.policyChecks.WithLabelValues(policy, binding, errorType, action).Inc()
	m.policyTimes.WithLabelValues(policy, binding, errorType, action).Observe(took.Seconds())
}

// Mutation counts the result of one MutatingAdmissionPolicyBinding for a write.
func (m *Metrics) Mutation(policy, binding, errorType string, took time.Duration) {
	m.mutationChecks.WithLabelValues(policy, binding, errorType).Inc()
	m.mutationTimes.WithLabelValues(policy, binding, errorType).Observe(took.Seconds())
}

// PodSecurity counts an evaluation of a pod or of a kind with a pod template.
func (m *Metrics) PodSecurity(decision, level, version, mode, operation, resource, subresource string) {
	m.podSecurity.WithLabelValues(decision, level, version, mode, operation, resource, subresource).Inc()
}

// PodSecurityExempt counts an exempt write.
func (m *Metrics) PodSecurityExempt(operation, resource, subresource string) {
	m.podSecurityExempt.WithLabelValues(operation, resource, subresource).Inc()
}

// PodSecurityError counts a failed evaluation.
func (m *Metrics) PodSecurityError(fatal bool, operation, resource, subresource string) {
	m.podSecurityErrors.WithLabelValues(strconv.FormatBool(fatal), operation, resource, subresource).Inc()
}
