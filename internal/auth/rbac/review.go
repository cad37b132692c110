package rbac

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/knarr-project/knarr/internal/auth"
)

// ReviewRules answers a SelfSubjectRulesReview of the user (kubectl auth can-i --list).
func (z *Authorizer) ReviewRules(u auth.User, review *authorizationv1.SelfSubjectRulesReview) error {
	if review.Spec.Namespace == "" {
		return apierrors.NewBadRequest("no namespace on request")
	}
	rules, errs := z.Rules(u, review.Spec.Namespace)
	status := authorizationv1.SubjectRulesReviewStatus{
		ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{},
	}
	for _, r := range rules {
		if len(r.Resources) > 0 {
			status.ResourceRules = append(status.ResourceRules, authorizationv1.ResourceRule{
				Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames,
			})
		}
		if len(r.NonResourceURLs) > 0 {
			status.NonResourceRules = append(status.NonResourceRules, authorizationv1.NonResourceRule{Verbs: r.Verbs, NonResourceURLs: r.NonResourceURLs})
		}
	}
	if len(errs) > 0 {
		status.EvaluationError, status.Incomplete = joined(errs), true
	}
	if _, ok := auth.NodeName(u); ok {
		// The node authorizer decides by objects, so its rules cannot be listed.
		status.Incomplete = true
		status.EvaluationError = "node authorizer does not support user rule resolution"
	}
	// Without the request's spec, as upstream.
	review.Spec, review.Status = authorizationv1.SelfSubjectRulesReviewSpec{}, status
	return nil
}
