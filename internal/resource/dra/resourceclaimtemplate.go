package dra

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func ResourceClaimTemplateStrategy() *strategy.Strategy {
	s := strategy.Plain(true)
	s.Default = strategy.On(defaultResourceClaimTemplate)
	s.ValidateCreate = strategy.Checks(validateResourceClaimTemplate)
	s.ValidateUpdate = strategy.ChecksBoth(validateResourceClaimTemplateUpdate)
	return strategy.ShowAny(strategy.WithNameRuleOnUpdate(s), columns.NameAndAge, columns.NameAndAgeRow)
}

func defaultResourceClaimTemplate(t *resourcev1.ResourceClaimTemplate) {
	defaultClaimRequests(t.Spec.Spec.Devices.Requests)
}

func validateResourceClaimTemplate(t *resourcev1.ResourceClaimTemplate) field.ErrorList {
	errs := validate.TemplateMeta(&t.Spec.ObjectMeta, validate.SpecPath.Child("metadata"))
	return append(errs, validateDeviceClaim(&t.Spec.Spec, nil, validate.SpecPath.Child("spec"))...)
}

// validateResourceClaimTemplateUpdate reports errors in the new spec as well as the change itself,
// which is illegal. Accepted expressions stay valid.
func validateResourceClaimTemplateUpdate(t, old *resourcev1.ResourceClaimTemplate) field.ErrorList {
	errs := validate.TemplateMeta(&t.Spec.ObjectMeta, validate.SpecPath.Child("metadata"))
	errs = append(errs, validateDeviceClaim(&t.Spec.Spec, claimExpressions(&old.Spec.Spec), validate.SpecPath.Child("spec"))...)
	return append(errs, validate.Immutable(t.Spec, old.Spec, validate.SpecPath)...)
}

// claimExpressions returns all expressions of a claim.
func claimExpressions(spec *resourcev1.ResourceClaimSpec) map[string]bool {
	stored := map[string]bool{}
	note := func(list []resourcev1.DeviceSelector) {
		for _, s := range list {
			if s.CEL != nil {
				stored[s.CEL.Expression] = true
			}
		}
	}
	for _, r := range spec.Devices.Requests {
		if r.Exactly != nil {
			note(r.Exactly.Selectors)
		}
		for _, sub := range r.FirstAvailable {
			note(sub.Selectors)
		}
	}
	return stored
}
