package resource

import (
	"errors"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/cel"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

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

func expressionsOf(variables []admissionregistrationv1.Variable, conditions []admissionregistrationv1.MatchCondition) map[string]bool {
	known := map[string]bool{}
	for _, v := range variables {
		known[v.Expression] = true
	}
	for _, c := range conditions {
		known[c.Expression] = true
	}
	return known
}

// policyChecker compiles a policy's expressions. Expressions of the old object may use everything;
// new ones only what the previous version understands too.
type policyChecker struct {
	fresh, stored *cel.Compiler
	known         map[string]bool
}

func newPolicyChecker(scope cel.Scope, known map[string]bool) (*policyChecker, error) {
	fresh, err := cel.New(scope)
	if err != nil {
		return nil, err
	}
	// The expressions of variables and of mutating policies can use "variables" even when the
	// policy defines none.
	return (&policyChecker{fresh, fresh, known}).narrowed(scope)
}

// bareChecker returns a checker without "variables".
func bareChecker(scope cel.Scope, known map[string]bool) (*policyChecker, error) {
	fresh, err := cel.New(scope)
	if err != nil {
		return nil, err
	}
	scope.Stored = true
	stored, err := cel.New(scope)
	return &policyChecker{fresh, stored, known}, err
}

// narrowed returns a checker with the same variables for another scope.
func (c *policyChecker) narrowed(scope cel.Scope) (*policyChecker, error) {
	fresh, err := c.fresh.In(scope)
	if err != nil {
		return nil, err
	}
	scope.Stored = true
	stored, err := c.stored.In(scope)
	return &policyChecker{fresh, stored, c.known}, err
}

func (c *policyChecker) check(expression string, returns cel.Types, at *field.Path) field.ErrorList {
	compiler := c.fresh
	if c.known[expression] {
		compiler = c.stored
	}
	if p := compiler.Compile(expression, returns); p.Err != nil {
		return field.ErrorList{field.Invalid(at, expression, p.Err.Error())}
	}
	return nil
}

func (c *policyChecker) declare(v *admissionregistrationv1.Variable, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case strings.TrimSpace(v.Name) == "":
		errs = append(errs, field.Required(at.Child("name"), "name is not specified"))
	case !cel.IsIdentifier(v.Name):
		errs = append(errs, field.Invalid(at.Child("name"), v.Name, "must be a valid CEL identifier"))
	}
	if strings.TrimSpace(v.Expression) == "" {
		return append(errs, field.Required(at.Child("expression"), "expression is not specified"))
	}
	program, err := c.fresh.Declare(v.Name, v.Expression)
	stored, storedErr := c.stored.Declare(v.Name, v.Expression)
	if err := errors.Join(err, storedErr); err != nil {
		return append(errs, field.InternalError(at, err))
	}
	if c.known[v.Expression] {
		program = stored
	}
	if program.Err != nil {
		errs = append(errs, field.Invalid(at.Child("expression"), v.Expression, program.Err.Error()))
		c.fresh.Assume(v.Name) // so that expressions that use it are not reported as well
		c.stored.Assume(v.Name)
	}
	return errs
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

func validateParamKind(k *admissionregistrationv1.ParamKind, at *field.Path) field.ErrorList {
	if k == nil {
		return nil
	}
	var errs field.ErrorList
	version := at.Child("apiVersion")
	if k.APIVersion == "" {
		errs = append(errs, field.Required(version, ""))
	} else if gv, err := schema.ParseGroupVersion(k.APIVersion); err != nil {
		errs = append(errs, field.Invalid(version, k.APIVersion, err.Error()))
	} else {
		if gv.Group != "" {
			errs = append(errs, validate.Subdomain(gv.Group, version)...)
		}
		errs = append(errs, validate.Invalids(version, gv.Version, validation.IsDNS1035Label(gv.Version))...)
	}
	if k.Kind == "" {
		return append(errs, field.Required(at.Child("kind"), ""))
	}
	if texts := validation.IsDNS1035Label(strings.ToLower(k.Kind)); len(texts) > 0 {
		errs = append(errs, field.Invalid(at.Child("kind"), k.Kind, "may have mixed case, but should otherwise match: "+strings.Join(texts, ",")))
	}
	return errs
}

func validateConstraints(m *admissionregistrationv1.MatchResources, at *field.Path) field.ErrorList {
	if m == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := validateMatchResources(m, at)
	if len(m.ResourceRules) == 0 {
		errs = append(errs, field.Required(at.Child("resourceRules"), ""))
	}
	return errs
}

func validateMatchResources(m *admissionregistrationv1.MatchResources, at *field.Path) field.ErrorList {
	errs := validate.OneOfIfSet(m.MatchPolicy, at.Child("matchPolicy"), admissionregistrationv1.Equivalent, admissionregistrationv1.Exact)
	if m.NamespaceSelector == nil {
		errs = append(errs, field.Required(at.Child("namespaceSelector"), ""))
	} else {
		errs = append(errs, validate.Selector(m.NamespaceSelector, at.Child("namespaceSelector"))...)
	}
	if m.ObjectSelector == nil {
		errs = append(errs, field.Required(at.Child("objectSelector"), ""))
	} else {
		errs = append(errs, validate.Selector(m.ObjectSelector, at.Child("objectSelector"))...)
	}
	for i := range m.ResourceRules {
		errs = append(errs, validateNamedRule(&m.ResourceRules[i], at.Child("resourceRules").Index(i))...)
	}
	for i := range m.ExcludeResourceRules {
		errs = append(errs, validateNamedRule(&m.ExcludeResourceRules[i], at.Child("excludeResourceRules").Index(i))...)
	}
	return errs
}

func validateNamedRule(r *admissionregistrationv1.NamedRuleWithOperations, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := map[string]bool{}
	for i, name := range r.ResourceNames {
		errs = append(errs, validate.Invalids(at.Child("resourceNames").Index(i), name, strategy.PathSegment(name, false))...)
		if names[name] {
			errs = append(errs, field.Duplicate(at.Child("resourceNames").Index(i), name))
		}
		names[name] = true
	}
	return append(errs, validateAdmissionRule(&r.RuleWithOperations, at)...)
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
