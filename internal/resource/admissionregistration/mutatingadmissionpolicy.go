package admissionregistration

import (
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/cel"
	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func MutatingPolicyStrategy() *strategy.Strategy {
	s := strategy.WithGeneration(false)
	s.Default = strategy.On(defaultMutatingPolicy)
	s.ValidateCreate, s.ValidateUpdate = strategy.Checks(validateMutatingPolicy), strategy.ChecksBoth(validateMutatingPolicyUpdate)
	return strategy.Show(strategy.WithNameRuleOnUpdate(strategy.WithLooseFinalizers(s)), mutatingPolicyColumns, mutatingPolicyRow)
}

func defaultMutatingPolicy(p *admissionregistrationv1.MutatingAdmissionPolicy) {
	strategy.SetPointer(&p.Spec.FailurePolicy, admissionregistrationv1.Fail)
	defaultMatchResources(p.Spec.MatchConstraints)
}

func validateMutatingPolicy(p *admissionregistrationv1.MutatingAdmissionPolicy) field.ErrorList {
	return validateMutatingPolicySpec(&p.Spec, nil)
}

func validateMutatingPolicyUpdate(p, old *admissionregistrationv1.MutatingAdmissionPolicy) field.ErrorList {
	known := expressionsOf(old.Spec.Variables, old.Spec.MatchConditions)
	for _, m := range old.Spec.Mutations {
		if m.ApplyConfiguration != nil {
			known[strings.TrimSpace(m.ApplyConfiguration.Expression)] = true
		}
		if m.JSONPatch != nil {
			known[strings.TrimSpace(m.JSONPatch.Expression)] = true
		}
	}
	return validateMutatingPolicySpec(&p.Spec, known)
}

func validateMutatingPolicySpec(spec *admissionregistrationv1.MutatingAdmissionPolicySpec, known map[string]bool) field.ErrorList {
	at := field.NewPath("spec")
	errs := validate.OneOfIfSet(spec.FailurePolicy, at.Child("failurePolicy"), admissionregistrationv1.Fail, admissionregistrationv1.Ignore)
	errs = append(errs, validateParamKind(spec.ParamKind, at.Child("paramKind"))...)
	errs = append(errs, validateConstraints(spec.MatchConstraints, at.Child("matchConstraints"))...)
	errs = append(errs, refuseDelete(spec.MatchConstraints, at.Child("matchConstraints", "resourceRules", "operations"))...)
	scope := cel.Scope{Params: spec.ParamKind != nil, Authorizer: true}
	errs = append(errs, validateMatchConditions(spec.MatchConditions, scope, known, at.Child("matchConditions"))...)
	c, err := newPolicyChecker(scope, known)
	if err != nil {
		return append(errs, field.InternalError(at, err))
	}
	for i := range spec.Variables {
		errs = append(errs, c.declare(&spec.Variables[i], at.Child("variables").Index(i))...)
	}
	if len(spec.Mutations) == 0 {
		errs = append(errs, field.Required(at.Child("mutations"), "mutations must contain at least one item"))
	}
	scope.Patches = true
	if c, err = c.narrowed(scope); err != nil {
		return append(errs, field.InternalError(at, err))
	}
	for i := range spec.Mutations {
		errs = append(errs, validateMutation(&spec.Mutations[i], c, at.Child("mutations").Index(i))...)
	}
	return append(errs, validate.OneOf(spec.ReinvocationPolicy, at.Child("reinvocationPolicy"), admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)...)
}

// refuseDelete refuses rules for DELETE: a deleted object cannot be mutated.
func refuseDelete(m *admissionregistrationv1.MatchResources, at *field.Path) (errs field.ErrorList) {
	if m == nil {
		return nil
	}
	for _, r := range m.ResourceRules {
		for _, o := range r.Operations {
			errs = append(errs, validate.NotSupportedUnless(o, at, admissionregistrationv1.OperationAll, admissionregistrationv1.Connect, admissionregistrationv1.Create, admissionregistrationv1.Update)...)
		}
	}
	return errs
}

func validateMutation(m *admissionregistrationv1.Mutation, c *policyChecker, at *field.Path) field.ErrorList {
	const apply, patch = admissionregistrationv1.PatchTypeApplyConfiguration, admissionregistrationv1.PatchTypeJSONPatch
	var errs field.ErrorList
	expression := func(text string, returns cel.Types, at *field.Path) {
		if text = strings.TrimSpace(text); text == "" {
			errs = append(errs, field.Required(at, ""))
			return
		}
		errs = append(errs, c.check(text, returns, at)...)
	}
	switch m.PatchType {
	case "":
		errs = append(errs, field.Required(at.Child("patchType"), ""))
	case apply:
		if m.ApplyConfiguration == nil {
			errs = append(errs, field.Required(at.Child("applyConfiguration"), "must be specified when patchType is ApplyConfiguration"))
		} else {
			expression(m.ApplyConfiguration.Expression, cel.Object, at.Child("applyConfiguration", "expression"))
		}
		if m.JSONPatch != nil {
			errs = append(errs, field.Invalid(at.Child("jsonPatch"), "{jsonPatch}", "must not be specified when patchType is ApplyConfiguration"))
		}
	case patch:
		if m.JSONPatch == nil {
			errs = append(errs, field.Required(at.Child("jsonPatch"), "must be specified when patchType is JSONPatch"))
		} else {
			expression(m.JSONPatch.Expression, cel.JSONPatch, at.Child("jsonPatch", "expression"))
		}
		if m.ApplyConfiguration != nil {
			errs = append(errs, field.Invalid(at.Child("applyConfiguration"), "{applyConfiguration}", "must not be specified when patchType is JSONPatch"))
		}
	default:
		errs = append(errs, validate.NotSupportedUnless(m.PatchType, at.Child("patchType"), apply, patch)...)
	}
	return errs
}

var mutatingPolicyColumns = columns.Define("Name", "Mutations:integer=Mutation indicates the number of mutations rules defined in this configuration",
	"ParamKind=ParamKind specifies the kind of resources used to parameterize this policy", "Age")

func mutatingPolicyRow(p *admissionregistrationv1.MutatingAdmissionPolicy, now metav1.Time) []any {
	return []any{p.Name, int64(len(p.Spec.Mutations)), paramKind(p.Spec.ParamKind), columns.AgeOf(p, now)}
}
