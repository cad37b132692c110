package admissionregistration

import (
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/cel"
	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func ValidatingPolicyStrategy() *strategy.Strategy {
	s := strategy.WithStatusAndGeneration(false)
	s.Default = strategy.On(defaultValidatingPolicy)
	s.ValidateCreate, s.ValidateUpdate = strategy.Checks(validateValidatingPolicy), strategy.ChecksBoth(validateValidatingPolicyUpdate)
	s.ValidateStatus = strategy.ChecksBoth(validateValidatingPolicyStatus)
	s.KeepMetadataInStatus()
	return strategy.Show(strategy.WithNameRuleOnUpdate(strategy.WithLooseFinalizers(s)), validatingPolicyColumns, validatingPolicyRow)
}

func defaultValidatingPolicy(p *admissionregistrationv1.ValidatingAdmissionPolicy) {
	strategy.SetPointer(&p.Spec.FailurePolicy, admissionregistrationv1.Fail)
	defaultMatchResources(p.Spec.MatchConstraints)
}

const (
	maxAuditAnnotations  = 20
	maxValueExpressionKB = 5
)

func validateValidatingPolicy(p *admissionregistrationv1.ValidatingAdmissionPolicy) field.ErrorList {
	return validateValidatingPolicySpec(p, nil)
}

func validateValidatingPolicyUpdate(p, old *admissionregistrationv1.ValidatingAdmissionPolicy) field.ErrorList {
	known := expressionsOf(old.Spec.Variables, old.Spec.MatchConditions)
	for _, v := range old.Spec.Validations {
		known[v.Expression], known[v.MessageExpression] = true, true
	}
	for _, a := range old.Spec.AuditAnnotations {
		known[strings.TrimSpace(a.ValueExpression)] = true
	}
	return validateValidatingPolicySpec(p, known)
}

func validateValidatingPolicySpec(p *admissionregistrationv1.ValidatingAdmissionPolicy, known map[string]bool) field.ErrorList {
	spec, at := &p.Spec, field.NewPath("spec")
	errs := validate.OneOfIfSet(spec.FailurePolicy, at.Child("failurePolicy"), admissionregistrationv1.Fail, admissionregistrationv1.Ignore)
	errs = append(errs, validateParamKind(spec.ParamKind, at.Child("paramKind"))...)
	errs = append(errs, validateConstraints(spec.MatchConstraints, at.Child("matchConstraints"))...)
	scope := cel.Scope{Params: spec.ParamKind != nil, Authorizer: true}
	errs = append(errs, validateMatchConditions(spec.MatchConditions, scope, known, at.Child("matchConditions"))...)
	c, err := newPolicyChecker(scope, known)
	if err != nil {
		return append(errs, field.InternalError(at, err))
	}
	for i := range spec.Variables {
		errs = append(errs, c.declare(&spec.Variables[i], at.Child("variables").Index(i))...)
	}
	if len(spec.Validations) == 0 && len(spec.AuditAnnotations) == 0 {
		const text = "validations or auditAnnotations must contain at least one item"
		return append(errs, field.Required(at.Child("validations"), text), field.Required(at.Child("auditAnnotations"), text))
	}
	inMessages := cel.Scope{Params: scope.Params}
	messages, err := c.narrowed(inMessages)
	if len(spec.Variables) == 0 && err == nil {
		if c, err = bareChecker(scope, known); err == nil {
			messages, err = bareChecker(inMessages, known)
		}
	}
	if err != nil {
		return append(errs, field.InternalError(at, err))
	}
	for i := range spec.Validations {
		errs = append(errs, validateValidation(&spec.Validations[i], c, messages, at.Child("validations").Index(i))...)
	}
	return append(errs, validateAuditAnnotations(p.Name, spec.AuditAnnotations, c, at.Child("auditAnnotations"))...)
}

func validateValidation(v *admissionregistrationv1.Validation, c, messages *policyChecker, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if strings.TrimSpace(v.Expression) == "" {
		errs = append(errs, field.Required(at.Child("expression"), "expression is not specified"))
	} else {
		errs = append(errs, c.check(v.Expression, cel.Bool, at.Child("expression"))...)
	}
	switch {
	case v.MessageExpression == "":
	case strings.TrimSpace(v.MessageExpression) == "":
		errs = append(errs, field.Invalid(at.Child("messageExpression"), v.MessageExpression, "must be non-empty if specified"))
	default:
		errs = append(errs, messages.check(v.MessageExpression, cel.String, at.Child("messageExpression"))...)
	}
	switch {
	case v.Message != "" && strings.TrimSpace(v.Message) == "":
		errs = append(errs, field.Invalid(at.Child("message"), v.Message, "must be non-empty if specified"))
	case strings.Contains(v.Message, "\n"):
		errs = append(errs, field.Invalid(at.Child("message"), v.Message, "must not contain line breaks"))
	}
	return append(errs, validate.OneOfIfSet(v.Reason, at.Child("reason"), metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonRequestEntityTooLarge)...)
}

func validateAuditAnnotations(policy string, annotations []admissionregistrationv1.AuditAnnotation, c *policyChecker, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(annotations) > maxAuditAnnotations {
		errs = append(errs, field.Invalid(at, annotations, "must not have more than 20 auditAnnotations"))
	}
	keys := map[string]bool{}
	for i, a := range annotations {
		at := at.Index(i)
		if policy == "" {
			errs = append(errs, field.Invalid(at.Child("key"), a.Key, "requires metadata.name be non-empty"))
		} else {
			errs = append(errs, validate.Qualified(policy+"/"+a.Key, at.Child("key"))...)
		}
		switch {
		case strings.TrimSpace(a.ValueExpression) == "":
			errs = append(errs, field.Required(at.Child("valueExpression"), "valueExpression is not specified"))
		case len(a.ValueExpression) > maxValueExpressionKB*1024:
			errs = append(errs, field.Required(at.Child("valueExpression"), "must not exceed 5kB in length"))
		default:
			for _, err := range c.check(strings.TrimSpace(a.ValueExpression), cel.StringOrNot, at.Child("valueExpression")) {
				err.BadValue = a.ValueExpression // the untrimmed expression
				errs = append(errs, err)
			}
		}
		if a.Key != "" && keys[a.Key] {
			errs = append(errs, field.Duplicate(at.Child("key"), a.Key))
		}
		keys[a.Key] = true
	}
	return errs
}

func validateValidatingPolicyStatus(p, _ *admissionregistrationv1.ValidatingAdmissionPolicy) field.ErrorList {
	at := field.NewPath("status")
	var errs field.ErrorList
	if p.Status.TypeChecking != nil {
		for i, w := range p.Status.TypeChecking.ExpressionWarnings {
			at := at.Child("typeChecking", "expressionWarnings").Index(i)
			if w.Warning == "" {
				errs = append(errs, field.Required(at.Child("warning"), ""))
			}
			if w.FieldRef == "" {
				errs = append(errs, field.Required(at.Child("fieldRef"), ""))
			}
		}
	}
	return append(errs, metavalidation.ValidateConditions(p.Status.Conditions, at.Child("conditions"))...)
}

var validatingPolicyColumns = columns.Define("Name", "Validations:integer=Validations indicates the number of validation rules defined in this configuration",
	"ParamKind=ParamKind specifies the kind of resources used to parameterize this policy", "Age")

func validatingPolicyRow(p *admissionregistrationv1.ValidatingAdmissionPolicy, now metav1.Time) []any {
	return []any{p.Name, int64(len(p.Spec.Validations)), paramKind(p.Spec.ParamKind), columns.AgeOf(p, now)}
}

func paramKind(k *admissionregistrationv1.ParamKind) string {
	if k == nil {
		return columns.Unset
	}
	return k.APIVersion + "/" + k.Kind
}
