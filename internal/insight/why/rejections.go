package why

import (
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// Causes of pods that the API server rejects when a controller creates them.
const (
	causeQuota          = "quota-exceeded"
	causeQuotaUnknown   = "quota-not-counted"
	causeQuotaSpecify   = "quota-must-specify"
	causeLimitRange     = "limit-range"
	causePodSecurity    = "pod-security"
	causeWebhookFails   = "webhook-call-failed"
	causeWebhookDenies  = "webhook-denied"
	causePolicyDenies   = "admission-policy-denied"
	causeServiceAccount = "service-account"
	causePriorityClass  = "priority-class"
	causeTemplate       = "pod-template-invalid"
	causeRejected       = "pod-rejected"
)

// rejectionWords classify the API server's message about a rejected pod. A group of the pattern is
// the name of the object that the finding links to.
var rejectionWords = []struct {
	cause   string
	pattern *regexp.Regexp
	problem string
	remedy  string
	kind    string
}{
	{causeQuotaSpecify, regexp.MustCompile(`failed quota: ([^ :,]+): must specify`), "the quota $1 demands requests or limits that the pods do not set", "Set the requests and limits that the message names, or add a LimitRange with defaults.", ""},
	{causeQuotaUnknown, regexp.MustCompile(`status unknown for quota: ([^ :,]+)`), "the use of the quota $1 is not counted yet", "Wait; if it stays, check that the quota controller runs.", ""},
	{causeQuota, regexp.MustCompile(`exceeded quota: ([^ :,]+)`), "the quota $1 is used up", "Raise the quota $1, or free what it counts.", ""},
	{causePodSecurity, regexp.MustCompile(`violates PodSecurity "([^"]+)"`), "the namespace's Pod Security level $1 forbids them", "Correct the securityContext as the message says, or change the namespace's label pod-security.kubernetes.io/enforce.", ""},
	{causeLimitRange, regexp.MustCompile(`(?:maximum|minimum) [\w.-]+ usage per|limit to request ratio`), "a LimitRange of the namespace forbids their requests or limits", "Set requests and limits within the LimitRange.", ""},
	{causeWebhookFails, regexp.MustCompile(`failed calling webhook "([^"]+)"`), "the admission webhook $1 cannot be called, and its failurePolicy is Fail", "Repair the webhook's server, or set failurePolicy: Ignore.", "webhook"},
	{causeWebhookDenies, regexp.MustCompile(`admission webhook "([^"]+)" denied the request`), "the admission webhook $1 denies them", "Change the pod template as the message says, or the webhook's rules.", ""},
	{causePolicyDenies, regexp.MustCompile(`ValidatingAdmissionPolicy '([^']+)'`), "the ValidatingAdmissionPolicy $1 denies them", "Change the pod template as the message says, or the policy.", ""},
	{causeServiceAccount, regexp.MustCompile(`(?i)serviceaccount "([^"]+)" not found|service account [^ ]*/([^ :]+)`), "the service account of the pods does not exist", "", "ServiceAccount"},
	{causePriorityClass, regexp.MustCompile(`no PriorityClass with name "?([^" ]+)"? was found`), "the priority class of the pods does not exist", "", "PriorityClass"},
	{causeTemplate, regexp.MustCompile(`is invalid: `), "the pod template is not valid", "Correct the field that the message names.", ""},
}

// rejection explains a message of the API server about a pod that it did not accept.
func rejection(s *Snapshot, namespace, message string) Finding {
	message = clean(oneLine(message), maxLogBytes)
	f := Finding{Cause: causeRejected, Problem: "its pods are rejected.", Evidence: []Fact{{Text: message}}}
	for _, w := range rejectionWords {
		match := w.pattern.FindStringSubmatch(message)
		if match == nil {
			continue
		}
		name := ""
		for _, group := range match[1:] {
			name += group
		}
		f.Cause = w.cause
		f.Problem = "its pods are rejected: " + strings.ReplaceAll(w.problem, "$1", name) + "."
		f.Remedy = strings.ReplaceAll(w.remedy, "$1", name)
		switch w.kind {
		case "":
		case "webhook":
			f.links = webhookLinks(s, name)
			if flaw := flawIn(message); flaw != nil {
				f.Cause, f.Remedy = flaw.cause, flaw.remedy
				f.Problem = "its pods are rejected: the admission webhook " + name + " cannot be called: the certificate of its server " + flaw.problem + "."
			}
		case "PriorityClass":
			f.links = []Link{{Object: Ref{w.kind, "", name}}}
		default:
			f.links = []Link{{Object: Ref{w.kind, namespace, name[strings.LastIndex(name, "/")+1:]}}}
		}
		break
	}
	return f
}

// webhookLinks finds the configurations that have a webhook of this name.
func webhookLinks(s *Snapshot, name string) (out []Link) {
	validating, _ := list[*admissionregistrationv1.ValidatingWebhookConfiguration](s, "")
	for _, c := range validating {
		if slices.ContainsFunc(c.Webhooks, func(w admissionregistrationv1.ValidatingWebhook) bool { return w.Name == name }) {
			out = append(out, Link{Object: refTo(c)})
		}
	}
	mutating, _ := list[*admissionregistrationv1.MutatingWebhookConfiguration](s, "")
	for _, c := range mutating {
		if slices.ContainsFunc(c.Webhooks, func(w admissionregistrationv1.MutatingWebhook) bool { return w.Name == name }) {
			out = append(out, Link{Object: refTo(c)})
		}
	}
	return out
}
