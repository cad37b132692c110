// Package policy holds PodDisruptionBudget, the kind of the group policy.
package policy

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func DisruptionBudgetStrategy() *strategy.Strategy {
	s := strategy.WithStatusAndGeneration(false)
	s.ValidateName, s.LateMeta = strategy.PathSegment, true
	s.ValidateCreate = strategy.Checks(validateDisruptionBudget)
	s.ValidateUpdate = strategy.ChecksBoth(validateDisruptionBudgetUpdate)
	s.ValidateStatus = strategy.ChecksBoth(validateDisruptionBudgetStatus)
	return strategy.Show(strategy.WithLooseFinalizers(s), disruptionBudgetColumns, disruptionBudgetRow)
}

func validateDisruptionBudget(b *policyv1.PodDisruptionBudget) field.ErrorList {
	return validateDisruptionBudgetWith(b, metavalidation.LabelSelectorValidationOptions{})
}

func validateDisruptionBudgetUpdate(b, old *policyv1.PodDisruptionBudget) field.ErrorList {
	return validateDisruptionBudgetWith(b, metavalidation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: validate.SelectsNoLabel(old.Spec.Selector)})
}

func validateDisruptionBudgetWith(b *policyv1.PodDisruptionBudget, options metavalidation.LabelSelectorValidationOptions) field.ErrorList {
	var errs field.ErrorList
	s := &b.Spec
	if s.MinAvailable != nil && s.MaxUnavailable != nil {
		errs = append(errs, field.Invalid(validate.SpecPath, *s, "minAvailable and maxUnavailable cannot be both set"))
	}
	for name, v := range map[string]*intstr.IntOrString{"minAvailable": s.MinAvailable, "maxUnavailable": s.MaxUnavailable} {
		if v != nil {
			errs = append(errs, validate.PositiveIntOrPercent(*v, validate.SpecPath.Child(name))...)
			errs = append(errs, validate.AtMostHundredPercent(*v, validate.SpecPath.Child(name))...)
		}
	}
	errs = append(errs, metavalidation.ValidateLabelSelector(s.Selector, options, validate.SpecPath.Child("selector"))...)
	if p := s.UnhealthyPodEvictionPolicy; p != nil {
		errs = append(errs, validate.NotSupportedUnless(*p, validate.SpecPath.Child("unhealthyPodEvictionPolicy"), policyv1.AlwaysAllow, policyv1.IfHealthyBudget)...)
	}
	return errs
}

func validateDisruptionBudgetStatus(b, _ *policyv1.PodDisruptionBudget) field.ErrorList {
	s, at := b.Status, field.NewPath("status")
	errs := metavalidation.ValidateConditions(s.Conditions, at.Child("conditions"))
	for _, c := range []struct {
		name  string
		value int32
	}{{"disruptionsAllowed", s.DisruptionsAllowed}, {"currentHealthy", s.CurrentHealthy}, {"desiredHealthy", s.DesiredHealthy}, {"expectedPods", s.ExpectedPods}} {
		errs = append(errs, validate.NonNegative(int64(c.value), at.Child(c.name))...)
	}
	return errs
}

var disruptionBudgetColumns = columns.Define("Name", "Min Available=The minimum number of pods that must be available.", "Max Unavailable=The maximum number of pods that may be unavailable.",
	"Allowed Disruptions:integer=Calculated number of pods that may be disrupted at this time.", "Age")

func disruptionBudgetRow(p *policyv1.PodDisruptionBudget, now metav1.Time) []any {
	least, most := "N/A", "N/A"
	if p.Spec.MinAvailable != nil {
		least = p.Spec.MinAvailable.String()
	}
	if p.Spec.MaxUnavailable != nil {
		most = p.Spec.MaxUnavailable.String()
	}
	return []any{p.Name, least, most, int64(p.Status.DisruptionsAllowed), columns.AgeOf(p, now)}
}
