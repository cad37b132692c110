package admissionregistration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func ValidatingPolicyBindingStrategy() *strategy.Strategy {
	s := strategy.WithGeneration(false)
	s.Default = strategy.On(defaultValidatingPolicyBinding)
	s.ValidateCreate, s.ValidateUpdate = strategy.Checks(validateValidatingPolicyBinding), strategy.ChecksBoth(validateValidatingPolicyBindingUpdate)
	return strategy.Show(strategy.WithLooseFinalizers(s), policyBindingColumns, validatingPolicyBindingRow)
}

func MutatingPolicyBindingStrategy() *strategy.Strategy {
	s := strategy.WithGeneration(false)
	s.Default = strategy.On(defaultMutatingPolicyBinding)
	s.ValidateCreate, s.ValidateUpdate = strategy.Checks(validateMutatingPolicyBinding), strategy.ChecksBoth(validateMutatingPolicyBindingUpdate)
	return strategy.Show(strategy.WithLooseFinalizers(s), policyBindingColumns, mutatingPolicyBindingRow)
}

func defaultValidatingPolicyBinding(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	defaultMatchResources(b.Spec.MatchResources)
}

func defaultMutatingPolicyBinding(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) {
	defaultMatchResources(b.Spec.MatchResources)
}

func validateParamRef(r *admissionregistrationv1.ParamRef, at *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	var errs field.ErrorList
	switch {
	case r.Name != "" && r.Selector != nil:
		const text = "name and selector are mutually exclusive"
		errs = append(errs, field.Forbidden(at.Child("name"), text), field.Forbidden(at.Child("selector"), text))
	case r.Name == "" && r.Selector == nil:
		errs = append(errs, field.Required(at, "one of name or selector must be specified"))
	}
	if r.Name != "" {
		errs = append(errs, validate.Invalids(at.Child("name"), r.Name, strategy.PathSegment(r.Name, false))...)
	}
	if r.Selector != nil {
		errs = append(errs, validate.Selector(r.Selector, at.Child("selector"))...)
	}
	if r.ParameterNotFoundAction == nil || *r.ParameterNotFoundAction == "" {
		return append(errs, field.Required(at.Child("parameterNotFoundAction"), ""))
	}
	if a := *r.ParameterNotFoundAction; a != admissionregistrationv1.AllowAction && a != admissionregistrationv1.DenyAction {
		errs = append(errs, field.NotSupported(at.Child("parameterNotFoundAction"), a, []string{"Deny", "Allow"}))
	}
	return errs
}

func validatePolicyName(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	return validate.Subdomain(name, at)
}

func validateValidatingPolicyBinding(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) field.ErrorList {
	at := field.NewPath("spec")
	errs := validatePolicyName(b.Spec.PolicyName, at.Child("policyName"))
	errs = append(errs, validateParamRef(b.Spec.ParamRef, at.Child("paramRef"))...)
	if b.Spec.MatchResources != nil {
		errs = append(errs, validateMatchResources(b.Spec.MatchResources, at.Child("matchResources"))...)
	}
	at = at.Child("validationActions")
	if len(b.Spec.ValidationActions) == 0 {
		return append(errs, field.Required(at, "at least one validation action is required"))
	}
	seen := map[admissionregistrationv1.ValidationAction]bool{}
	for i, a := range b.Spec.ValidationActions {
		errs = append(errs, validate.NotSupportedUnless(a, at.Index(i), admissionregistrationv1.Audit, admissionregistrationv1.Deny, admissionregistrationv1.Warn)...)
		if seen[a] {
			errs = append(errs, field.Duplicate(at.Index(i), a))
		}
		seen[a] = true
	}
	if seen[admissionregistrationv1.Deny] && seen[admissionregistrationv1.Warn] {
		errs = append(errs, field.Invalid(at, b.Spec.ValidationActions,
			"must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)"))
	}
	return errs
}

func validateValidatingPolicyBindingUpdate(b, _ *admissionregistrationv1.ValidatingAdmissionPolicyBinding) field.ErrorList {
	return validateValidatingPolicyBinding(b)
}

func validateMutatingPolicyBinding(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) field.ErrorList {
	at := field.NewPath("spec")
	errs := validatePolicyName(b.Spec.PolicyName, at.Child("policyName"))
	errs = append(errs, validateParamRef(b.Spec.ParamRef, at.Child("paramRef"))...)
	if b.Spec.MatchResources != nil {
		errs = append(errs, validateMatchResources(b.Spec.MatchResources, at.Child("matchResources"))...)
		errs = append(errs, refuseDelete(b.Spec.MatchResources, at.Child("matchResources", "resourceRules", "operations"))...)
	}
	return errs
}

func validateMutatingPolicyBindingUpdate(b, _ *admissionregistrationv1.MutatingAdmissionPolicyBinding) field.ErrorList {
	return validateMutatingPolicyBinding(b)
}

var policyBindingColumns = columns.Define("Name", "PolicyName=PolicyName indicates the policy definition which the policy binding binded to",
	"ParamRef=ParamRef indicates the param resource which sets the configuration param", "Age")

func validatingPolicyBindingRow(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding, now metav1.Time) []any {
	return []any{b.Name, b.Spec.PolicyName, paramRef(b.Spec.ParamRef), columns.AgeOf(b, now)}
}

func mutatingPolicyBindingRow(b *admissionregistrationv1.MutatingAdmissionPolicyBinding, now metav1.Time) []any {
	return []any{b.Name, b.Spec.PolicyName, paramRef(b.Spec.ParamRef), columns.AgeOf(b, now)}
}

func paramRef(r *admissionregistrationv1.ParamRef) string {
	switch {
	case r == nil:
		return columns.Unset
	case r.Name == "":
		return metav1.FormatLabelSelector(r.Selector)
	case r.Namespace == "":
		return "*/" + r.Name // the parameter of the written object's namespace
	}
	return r.Namespace + "/" + r.Name
}
