// Package measure has the metrics of admission, under upstream's names: of its two steps, its plugins, webhooks and policies.
//
// The collectors are the process's: whoever serves metrics registers Collectors. What happens often is looked up once.
package measure

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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

// Whose matchConditions.
const (
	KindWebhook = "webhook"
	KindPolicy  = "policy"
)

// Condition is whose matchConditions are told of: its name, KindWebhook or KindPolicy; and Mutating or Validating for webhooks, Validate for policies
// of both kinds, as upstream.
type Condition struct{ Name, Kind, Type string }

// Actions of policies, and what was wrong when one did not pass a write.
const (
	Allowed     = "allow"
	NoError     = "no_error"
	InvalidType = "invalid_error"
)

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "apiserver_" + name, Help: help}, labels)
}

func histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "apiserver_" + name, Help: help, Buckets: buckets}, labels)
}

// atZero shows series before there is anything to count, as upstream shows these.
func atZero(c *prometheus.CounterVec, series ...[]string) *prometheus.CounterVec {
	for _, labels := range series {
		c.WithLabelValues(labels...)
	}
	return c
}

var (
	seconds       = []float64{0.005, 0.025, 0.1, 0.5, 1.0, 2.5}
	policySeconds = []float64{0.0000005, 0.001, 0.01, 0.1, 1.0}

	steps = histogram("admission_step_admission_duration_seconds",
		"Admission sub-step latency histogram in seconds, broken out for each operation and API resource and step type (validate or admit).", seconds, "type", "operation", "rejected")
	plugins = histogram("admission_controller_admission_duration_seconds",
		"Admission controller latency histogram in seconds, identified by name and broken out for each operation and API resource and type (validate or admit).", seconds, "name", "type", "operation", "rejected")
	webhooks = histogram("admission_webhook_admission_duration_seconds",
		"Admission webhook latency histogram in seconds, identified by name and broken out for each operation and API resource and type (validate or admit).",
		append(seconds, 10, 25), "name", "type", "operation", "rejected")
	webhookRequests = counter("admission_webhook_request_total",
		"Admission webhook request total, identified by name and broken out for each admission type (validating or admit) and operation. Additional labels specify whether the request was rejected or not and an HTTP status code.",
		"name", "type", "operation", "code", "rejected")
	webhookRejections = counter("admission_webhook_rejection_count",
		"Admission webhook rejection count, identified by name and broken out for each admission type (validating or admit) and operation. Additional labels specify an error type (calling_webhook_error or apiserver_internal_error if an error occurred; no_error otherwise) and optionally a non-zero rejection code if the webhook rejects the request with an HTTP status code.",
		"name", "type", "operation", "error_type", "rejection_code")
	webhookFailOpen = counter("admission_webhook_fail_open_count",
		"Admission webhook fail open count, identified by name and broken out for each admission type (validating or admit).", "name", "type")
	conditions = histogram("admission_match_condition_evaluation_seconds",
		"Admission match condition evaluation time in seconds, identified by name and broken out for each kind containing matchConditions (webhook or policy), operation and type (validate or admit).",
		[]float64{0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25}, "name", "kind", "type", "operation")
	conditionErrors = counter("admission_match_condition_evaluation_errors_total",
		"Admission match condition evaluation errors count, identified by name of resource containing the match condition and broken out for each kind containing matchConditions (webhook or policy), operation and admission type (validate or admit).",
		"name", "kind", "type", "operation")
	conditionExclusions = counter("admission_match_condition_exclusions_total",
		"Admission match condition evaluation exclusions count, identified by name of resource containing the match condition and broken out for each kind containing matchConditions (webhook or policy), operation and admission type (validate or admit).",
		"name", "kind", "type", "operation")
	policyChecks = counter("validating_admission_policy_check_total",
		"Validation admission policy check total, labeled by policy and further identified by binding and enforcement action taken.", "policy", "policy_binding", "error_type", "enforcement_action")
	policyTimes = histogram("validating_admission_policy_check_duration_seconds",
		"Validation admission latency for individual validation expressions in seconds, labeled by policy and further including binding and enforcement action taken.",
		policySeconds, "policy", "policy_binding", "error_type", "enforcement_action")
	mutationChecks = counter("mutating_admission_policy_check_total",
		"Mutation admission policy check total, labeled by policy and further identified by binding.", "policy", "policy_binding", "error_type")
	mutationTimes = histogram("mutating_admission_policy_check_duration_seconds",
		"Mutation admission latency for individual mutation expressions in seconds, labeled by policy and binding.", policySeconds, "policy", "policy_binding", "error_type")
	podSecurity = atZero(prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pod_security_evaluations_total",
		Help: "Number of policy evaluations that occurred, not counting ignored or exempt requests."},
		[]string{"decision", "policy_level", "policy_version", "mode", "request_operation", "resource", "subresource"}),
		[]string{"allow", "privileged", "latest", "enforce", "create", "pod", ""}, []string{"allow", "privileged", "latest", "enforce", "update", "pod", ""})
	podSecurityExempt = atZero(prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pod_security_exemptions_total",
		Help: "Number of exempt requests, not counting ignored or out of scope requests."}, []string{"request_operation", "resource", "subresource"}),
		[]string{"create", "pod", ""}, []string{"update", "pod", ""}, []string{"create", "controller", ""}, []string{"update", "controller", ""})
	podSecurityErrors = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pod_security_errors_total",
		Help: "Number of errors preventing normal evaluation. Non-fatal errors may result in the latest restricted profile being used for evaluation."},
		[]string{"fatal", "request_operation", "resource", "subresource"})
)

// Collectors are all of them.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{
		steps, plugins, webhooks, webhookRequests, webhookRejections, webhookFailOpen, conditions, conditionErrors, conditionExclusions, policyChecks, policyTimes, mutationChecks, mutationTimes,
		podSecurity, podSecurityExempt, podSecurityErrors,
	}
}

// Timer is of a step or a plugin; those that pass are what happens always.
type Timer struct {
	of     *prometheus.HistogramVec
	labels []string
	passed map[string]prometheus.Observer // by operation
}

// operations are those of admission.
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

// Took notes how long it took.
func (t *Timer) Took(operation string, took time.Duration, err error) {
	passed, ok := t.passed[operation]
	if err != nil || !ok {
		t.of.WithLabelValues(t.values(operation, strconv.FormatBool(err != nil))...).Observe(took.Seconds())
		return
	}
	passed.Observe(took.Seconds())
}

// Step times Admit or Validate of the whole chain.
func Step(step string) *Timer { return newTimer(steps, step) }

// Plugin times a plugin in one of them.
func Plugin(name, step string) *Timer { return newTimer(plugins, name, step) }

// Webhook notes one request to a webhook: its HTTP code, and whether the write was refused.
func Webhook(name, kind, operation string, code int, rejected bool, took time.Duration) {
	text := strconv.FormatBool(rejected)
	webhooks.WithLabelValues(name, kind, operation, text).Observe(took.Seconds())
	webhookRequests.WithLabelValues(name, kind, operation, strconv.Itoa(code), text).Inc()
}

// WebhookRejected notes why a write was refused: with "no_error" by the webhook itself, which gave the code.
func WebhookRejected(name, kind, operation, errorType string, code int) {
	webhookRejections.WithLabelValues(name, kind, operation, errorType, strconv.Itoa(code)).Inc()
}

// WebhookFailedOpen notes that a write passed though its webhook could not be asked.
func WebhookFailedOpen(name, kind string) { webhookFailOpen.WithLabelValues(name, kind).Inc() }

// Evaluated notes how long matchConditions took, and whether one of them could not be evaluated.
func (c *Condition) Evaluated(operation string, took time.Duration, err error) {
	conditions.WithLabelValues(c.Name, c.Kind, c.Type, operation).Observe(took.Seconds())
	if err != nil {
		conditionErrors.WithLabelValues(c.Name, c.Kind, c.Type, operation).Inc()
	}
}

// WebhookExcluded notes that a webhook's matchConditions do not want a write.
func WebhookExcluded(name, kind, operation string) {
	if kind == Validating {
		kind = Validate // upstream has both names
	}
	conditionExclusions.WithLabelValues(name, KindWebhook, kind, operation).Inc()
}

// Policy notes what one binding of a ValidatingAdmissionPolicy did about a write.
func Policy(policy, binding, errorType, action string, took time.Duration) {
	policyChecks.WithLabelValues(policy, binding, errorType, action).Inc()
	policyTimes.WithLabelValues(policy, binding, errorType, action).Observe(took.Seconds())
}

// Mutation notes what one binding of a MutatingAdmissionPolicy did about a write.
func Mutation(policy, binding, errorType string, took time.Duration) {
	mutationChecks.WithLabelValues(policy, binding, errorType).Inc()
	mutationTimes.WithLabelValues(policy, binding, errorType).Observe(took.Seconds())
}

// PodSecurity counts an evaluation of a pod, or of what makes pods.
func PodSecurity(decision, level, version, mode, operation, resource, subresource string) {
	podSecurity.WithLabelValues(decision, level, version, mode, operation, resource, subresource).Inc()
}

// PodSecurityExempt counts a write that is not evaluated.
func PodSecurityExempt(operation, resource, subresource string) {
	podSecurityExempt.WithLabelValues(operation, resource, subresource).Inc()
}

// PodSecurityError counts an evaluation that was not possible.
func PodSecurityError(fatal bool, operation, resource, subresource string) {
	podSecurityErrors.WithLabelValues(strconv.FormatBool(fatal), operation, resource, subresource).Inc()
}
