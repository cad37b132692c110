package core

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/knarr-project/knarr/internal/resource/resourcetest"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func TestManyScopesOfAQuotaAreCheckedOnceEach(t *testing.T) {
	q := &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{}, ScopeSelector: &corev1.ScopeSelector{}}}
	for i := range resourcetest.LongList {
		q.Spec.Hard[corev1.ResourceName("hugepages-"+resourcetest.Text(i))] = resource.MustParse("1")
	}
	q.Spec.Scopes = resourcetest.Numbered(func(int) corev1.ResourceQuotaScope { return corev1.ResourceQuotaScopeBestEffort })
	q.Spec.ScopeSelector.MatchExpressions = resourcetest.Numbered(func(int) corev1.ScopedResourceSelectorRequirement {
		return corev1.ScopedResourceSelectorRequirement{ScopeName: corev1.ResourceQuotaScopeBestEffort, Operator: corev1.ScopeSelectorOpExists}
	})
	if errs := append(validateQuotaScopes(q), validateQuotaSelector(q)...); len(errs) != 2*validate.MaxRepeated {
		t.Errorf("%d errors, want %d of each", len(errs), validate.MaxRepeated)
	}
	q.Spec.Hard = corev1.ResourceList{"services": {}, "secrets": {}, "pods": {}}
	q.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeTerminating}
	if errs := validateQuotaScopes(q); len(errs) != 4 {
		t.Error(errs)
	}
}
