package apiserver

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
)

// TestPoliciesSeeWebhookConfigurationsButNotPolicies: a policy may decide on new webhooks. If
// it could refuse policies, it could lock out its own repair.
func TestPoliciesSeeWebhookConfigurationsButNotPolicies(t *testing.T) {
	c := newPolicyServer(t)
	policyOf := func(name string) *admissionregistrationv1.ValidatingAdmissionPolicy {
		return &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: named("admissionregistration.k8s.io", "*", "*"), Validations: []admissionregistrationv1.Validation{{Expression: "false", Message: "nobody may"}},
		}}
	}
	mustCreate(t, c, policyOf("p"))
	mustCreate(t, c, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: "p", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}}})
	_, validating := client.Create(t.Context(), c, &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "w"}})
	_, mutating := client.Create(t.Context(), c, &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "w"}})
	if !apierrors.IsInvalid(validating) || !apierrors.IsInvalid(mutating) {
		t.Errorf("expected the policy's refusal: %v, %v", validating, mutating)
	}
	mustCreate(t, c, policyOf("other"))
	mustCreate(t, c, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: "other", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}}})
}
