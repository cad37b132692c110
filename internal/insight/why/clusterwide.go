package why

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Causes in extensions of the API, budgets, quotas and certificates.
const (
	causeAPIService    = "apiservice-unavailable"
	causeCRDNames      = "crd-names-conflict"
	causeCRDPending    = "crd-not-established"
	causeCRDSchema     = "crd-schema"
	causeCRDConversion = "crd-conversion-webhook"
	causeWebhook       = "webhook-backend"
	causeWebhookCA     = "webhook-ca"
	causeCSRPending    = "csr-pending"
	causeCSRDenied     = "csr-denied"
	causeCSRFailed     = "csr-failed"
	causeCSRUnsigned   = "csr-not-signed"
	causePDBNone       = "pdb-allows-none"
	causePDBUnhealthy  = "pdb-pods-unhealthy"
	causePDBSelects    = "pdb-selects-nothing"
	causePDBOverlap    = "pdb-overlap"
	causeQuotaFull     = "quota-full"
)

// apiCauses are the causes of an API service that is not available.
var apiCauses = []string{causeAPIService, causeWebhookCA, causeExpired, causeNotYetValid, causeWrongHost, causeWrongCA, causeWrongKey, causeBadCertificate}

// apiService explains an API service that is not available.
func apiService(s *Snapshot, a *apiregistrationv1.APIService) []Finding {
	for _, c := range a.Status.Conditions {
		if c.Type != apiregistrationv1.Available || c.Status == apiregistrationv1.ConditionTrue {
			continue
		}
		f := Finding{Cause: causeAPIService, Problem: "its API does not answer: " + c.Reason + ".", Evidence: []Fact{{Text: oneLine(c.Message)}}, Remedy: "Repair the server behind it, or delete the APIService."}
		if flaw := flawIn(c.Message); flaw != nil {
			f.Cause, f.Problem, f.Remedy = flaw.cause, "its API does not answer: the certificate of its server "+flaw.problem+".", flaw.remedy
		}
		if r := a.Spec.Service; r != nil {
			f.links = []Link{{Object: Ref{"Service", r.Namespace, r.Name}}}
			if broken := servingCertificate(s, r.Namespace, r.Name, a.Spec.CABundle); broken != nil {
				broken.Evidence, broken.links = append(f.Evidence, broken.Evidence...), f.links
				broken.Problem = "its API does not answer: " + broken.Problem
				f = *broken
			}
		}
		if problem := badCA(s.Now, a.Spec.CABundle); problem != "" {
			f.Cause, f.Problem, f.Remedy = causeWebhookCA, "its API is not called: its caBundle "+problem+".", "Set caBundle to the CA of the server's certificate."
		}
		return []Finding{f}
	}
	return nil
}

// definition explains a custom resource definition that is not served.
func definition(s *Snapshot, d *apiextensionsv1.CustomResourceDefinition) (out []Finding) {
	established := false
	for _, c := range d.Status.Conditions {
		fact := []Fact{{Text: c.Reason + ": " + oneLine(c.Message)}}
		switch {
		case c.Type == apiextensionsv1.NamesAccepted && c.Status == apiextensionsv1.ConditionFalse:
			return []Finding{{Cause: causeCRDNames, Problem: "its names are in use by another resource of the same group.", Evidence: fact, Remedy: "Change spec.names, or delete the other definition."}}
		case c.Type == apiextensionsv1.NonStructuralSchema && c.Status == apiextensionsv1.ConditionTrue:
			out = append(out, Finding{Cause: causeCRDSchema, Problem: "its schema is not structural.", Evidence: fact, Remedy: "Correct the schema as the message says."})
		case c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue:
			established = true
		}
	}
	if !established && s.Now.Sub(d.CreationTimestamp.Time) > stuckAfter {
		out = append(out, Finding{Cause: causeCRDPending, Problem: "its resource is not served yet.", Remedy: "Check that the API server is well: kubectl get --raw /readyz."})
	}
	if c := d.Spec.Conversion; c != nil && c.Strategy == apiextensionsv1.WebhookConverter && c.Webhook != nil && c.Webhook.ClientConfig != nil && c.Webhook.ClientConfig.Service != nil {
		r := c.Webhook.ClientConfig.Service
		problem := badCA(s.Now, c.Webhook.ClientConfig.CABundle)
		certificate := servingCertificate(s, r.Namespace, r.Name, c.Webhook.ClientConfig.CABundle)
		switch {
		case problem != "":
			out = append(out, one(causeWebhookCA, "its objects cannot be converted between versions: the caBundle of the webhook "+problem+".", "Set caBundle to the CA of the webhook's certificate.")...)
		case certificate != nil:
			certificate.Problem = "its objects cannot be converted between versions: " + certificate.Problem
			out = append(out, *certificate)
		case serviceBroken(s, r.Namespace, r.Name):
			out = append(out, linked(causeCRDConversion, "its objects cannot be converted between versions: the webhook has no server.", Link{Object: Ref{"Service", r.Namespace, r.Name}}))
		}
	}
	return out
}

// serviceBroken reports whether a Service is missing or has no endpoints.
func serviceBroken(s *Snapshot, namespace, name string) bool {
	svc, presence := get[*corev1.Service](s, namespace, name)
	return presence == Absent || presence == Found && len(serviceEndpoints(s, svc)) > 0
}

func validatingWebhooks(s *Snapshot, c *admissionregistrationv1.ValidatingWebhookConfiguration) (out []Finding) {
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		out = append(out, webhook(s, w.Name, &w.ClientConfig, w.FailurePolicy)...)
	}
	return out
}

func mutatingWebhooks(s *Snapshot, c *admissionregistrationv1.MutatingWebhookConfiguration) (out []Finding) {
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		out = append(out, webhook(s, w.Name, &w.ClientConfig, w.FailurePolicy)...)
	}
	return out
}

// webhook explains an admission webhook that cannot be called.
func webhook(s *Snapshot, name string, c *admissionregistrationv1.WebhookClientConfig, policy *admissionregistrationv1.FailurePolicyType) []Finding {
	effect := "requests that match its rules are rejected (failurePolicy Fail)"
	if policy != nil && *policy == admissionregistrationv1.Ignore {
		effect = "it is skipped (failurePolicy Ignore)"
	}
	if problem := badCA(s.Now, c.CABundle); problem != "" {
		return one(causeWebhookCA, "its webhook "+name+" has a caBundle that "+problem+": "+effect+".", "Set caBundle to the CA of the webhook's certificate.")
	}
	if c.Service == nil {
		return nil
	}
	if f := servingCertificate(s, c.Service.Namespace, c.Service.Name, c.CABundle); f != nil {
		f.Problem = "its webhook " + name + " cannot be called: " + strings.TrimSuffix(f.Problem, ".") + "; " + effect + "."
		return []Finding{*f}
	}
	if !serviceBroken(s, c.Service.Namespace, c.Service.Name) {
		return nil
	}
	f := linked(causeWebhook, "its webhook "+name+" has no server: "+effect+".", Link{Object: Ref{"Service", c.Service.Namespace, c.Service.Name}})
	f.Remedy = "Start the webhook's server, or set failurePolicy: Ignore until it runs."
	return []Finding{f}
}

// badCA says what is wrong with a bundle of certificates; "" if nothing is, or if it is empty.
func badCA(now time.Time, bundle []byte) string {
	if len(bundle) == 0 {
		return ""
	}
	valid, expired, early := 0, time.Time{}, time.Time{}
	for rest := bundle; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		switch {
		case err != nil:
		case now.After(cert.NotAfter):
			expired = cert.NotAfter
		case now.Before(cert.NotBefore):
			early = cert.NotBefore
		default:
			valid++
		}
	}
	switch {
	case valid > 0:
		return ""
	case !expired.IsZero():
		return "expired at " + date(expired)
	case !early.IsZero():
		return "is not valid before " + date(early)
	}
	return "has no valid certificate"
}

// signingRequest explains a certificate signing request without a certificate.
func signingRequest(s *Snapshot, c *certificatesv1.CertificateSigningRequest) []Finding {
	approved := false
	for _, condition := range c.Status.Conditions {
		fact := []Fact{{Text: condition.Reason + ": " + oneLine(condition.Message)}}
		switch condition.Type {
		case certificatesv1.CertificateDenied:
			return []Finding{{Cause: causeCSRDenied, Problem: "it was denied.", Evidence: fact, Remedy: "Create a new request that the approver accepts."}}
		case certificatesv1.CertificateFailed:
			return []Finding{{Cause: causeCSRFailed, Problem: "the signer could not sign it.", Evidence: fact, Remedy: "Correct the request as the message says."}}
		case certificatesv1.CertificateApproved:
			approved = true
		}
	}
	switch {
	case len(c.Status.Certificate) > 0:
		return nil
	case approved && strings.HasPrefix(c.Spec.SignerName, "kubernetes.io/"):
		return one(causeCSRUnsigned, "it is approved, and "+c.Spec.SignerName+" has not signed it.", "Check that the controllers run.")
	case approved:
		return one(causeCSRUnsigned, "it is approved, and the signer "+c.Spec.SignerName+" has not signed it: it may not run.", "Start the signer's controller.")
	}
	return one(causeCSRPending, fmt.Sprintf("it waits for approval since %s; %s asked for it.", age(s.Now.Sub(c.CreationTimestamp.Time)), c.Spec.Username), "kubectl certificate approve "+c.Name+", if the request is right.")
}

// budget explains a PodDisruptionBudget that allows no eviction.
func budget(s *Snapshot, b *policyv1.PodDisruptionBudget) []Finding {
	pods, ok := list[*corev1.Pod](s, b.Namespace)
	if !ok || b.Spec.Selector == nil {
		return nil
	}
	var selected []*corev1.Pod
	for _, p := range pods {
		if selects(b.Spec.Selector, p.Labels) && !podOver(p) {
			selected = append(selected, p)
		}
	}
	if len(selected) == 0 {
		return one(causePDBSelects, "its selector matches no pod: it protects nothing.", "Correct spec.selector.")
	}
	others, _ := list[*policyv1.PodDisruptionBudget](s, b.Namespace)
	for _, o := range others {
		if o.Name == b.Name || o.Spec.Selector == nil {
			continue
		}
		if i := slices.IndexFunc(selected, func(p *corev1.Pod) bool { return selects(o.Spec.Selector, p.Labels) }); i >= 0 {
			return one(causePDBOverlap, refTo(selected[i]).String()+" belongs to pdb/"+o.Name+" too: pods with several budgets cannot be evicted.", "Delete one budget, or make the selectors disjoint.")
		}
	}
	if b.Status.DisruptionsAllowed > 0 || b.Status.ObservedGeneration < b.Generation {
		return nil
	}
	if b.Status.CurrentHealthy < b.Status.DesiredHealthy {
		f := linked(causePDBUnhealthy, fmt.Sprintf("it allows no eviction: %d of its pods are healthy, %d must be.", b.Status.CurrentHealthy, b.Status.DesiredHealthy), unreadyLinks(selected)...)
		f.Remedy = "Repair the pods, or set unhealthyPodEvictionPolicy: AlwaysAllow."
		return []Finding{f}
	}
	return one(causePDBNone, fmt.Sprintf("it allows no eviction: %d of its pods must be healthy, and %d are.", b.Status.DesiredHealthy, b.Status.CurrentHealthy), "Add replicas, lower minAvailable, or raise maxUnavailable.")
}

// quota explains a quota that is used up.
func quota(_ *Snapshot, q *corev1.ResourceQuota) []Finding {
	var full []string
	for name, hard := range q.Status.Hard {
		if used, ok := q.Status.Used[name]; ok && used.Cmp(hard) >= 0 {
			full = append(full, fmt.Sprintf("%s (%s of %s)", name, used.String(), hard.String()))
		}
	}
	if len(full) == 0 {
		return nil
	}
	slices.Sort(full)
	return one(causeQuotaFull, "it is used up: "+names(full)+".", "Raise it, or free what it counts.")
}
