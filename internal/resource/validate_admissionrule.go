package resource

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/cel"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

// Rules and match conditions, which webhooks and policies share.

const maxMatchConditions = 64

func validateAdmissionRule(r *admissionregistrationv1.RuleWithOperations, at *field.Path) field.ErrorList {
	errs := validateRuleOperations(r.Operations, at.Child("operations"))
	errs = append(errs, validateWildcardList(r.APIGroups, "API groups", true, at.Child("apiGroups"))...)
	errs = append(errs, validateWildcardList(r.APIVersions, "API versions", false, at.Child("apiVersions"))...)
	errs = append(errs, validateRuleResources(r.Resources, at.Child("resources"))...)
	if s := r.Scope; s != nil && *s != admissionregistrationv1.AllScopes && *s != admissionregistrationv1.ClusterScope && *s != admissionregistrationv1.NamespacedScope {
		errs = append(errs, field.NotSupported(at.Child("scope"), *s,
			[]admissionregistrationv1.ScopeType{admissionregistrationv1.AllScopes, admissionregistrationv1.ClusterScope, admissionregistrationv1.NamespacedScope}))
	}
	return errs
}

func validateRuleOperations(operations []admissionregistrationv1.OperationType, at *field.Path) field.ErrorList {
	if len(operations) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	if len(operations) > 1 && slices.Contains(operations, admissionregistrationv1.OperationAll) {
		errs = append(errs, field.Invalid(at, operations, "if '*' is present, must not specify other operations"))
	}
	for i, o := range operations {
		errs = append(errs, validate.NotSupportedUnless(o, at.Index(i), admissionregistrationv1.OperationAll, admissionregistrationv1.Connect,
			admissionregistrationv1.Create, admissionregistrationv1.Delete, admissionregistrationv1.Update)...)
	}
	return errs
}

func validateWildcardList(values []string, what string, emptyAllowed bool, at *field.Path) field.ErrorList {
	if len(values) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	if len(values) > 1 && slices.Contains(values, "*") {
		errs = append(errs, field.Invalid(at, values, "if '*' is present, must not specify other "+what))
	}
	for i, v := range values {
		if v == "" && !emptyAllowed {
			errs = append(errs, field.Required(at.Index(i), ""))
		}
	}
	return errs
}

// validateRuleResources refuses a resource that an earlier wildcard already covers.
func validateRuleResources(resources []string, at *field.Path) field.ErrorList {
	if len(resources) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	everything, plain, plainAfter := false, false, false
	ofResource, ofSubresource := map[string]bool{}, map[string]bool{} // "pods/*", "*/status"
	for i, r := range resources {
		if r == "" {
			errs = append(errs, field.Required(at.Index(i), ""))
			continue
		}
		resource, sub, hasSub := strings.Cut(r, "/")
		switch {
		case r == "*/*":
			everything = true
		case r == "*":
			plain = true
		case !hasSub:
			plainAfter = plainAfter || plain
		}
		if !hasSub {
			continue
		}
		if ofResource[resource] {
			errs = append(errs, field.Invalid(at.Index(i), r, "if '"+resource+"/*' is present, must not specify "+r))
		}
		if ofSubresource[sub] {
			errs = append(errs, field.Invalid(at.Index(i), r, "if '*/"+sub+"' is present, must not specify "+r))
		}
		if sub == "*" {
			ofResource[resource] = true
		}
		if resource == "*" {
			ofSubresource[sub] = true
		}
	}
	switch {
	case everything && len(resources) > 1:
		errs = append(errs, field.Invalid(at, resources, "if '*/*' is present, must not specify other resources"))
	case plainAfter:
		errs = append(errs, field.Invalid(at, resources, "if '*' is present, must not specify other resources without subresources"))
	}
	return errs
}

// validateMatchConditions checks match conditions. Expressions in old may use everything that a
// newer server might have accepted.
func validateMatchConditions(conditions []admissionregistrationv1.MatchCondition, scope cel.Scope, old map[string]bool, at *field.Path) field.ErrorList {
	if len(conditions) > maxMatchConditions {
		return field.ErrorList{field.TooMany(at, len(conditions), maxMatchConditions)}
	}
	var errs field.ErrorList
	names := map[string]bool{}
	for i, c := range conditions {
		at := at.Index(i)
		if text := strings.TrimSpace(c.Expression); text == "" {
			errs = append(errs, field.Required(at.Child("expression"), ""))
		} else {
			scope.Stored = old[c.Expression]
			errs = append(errs, compiles(scope, text, at.Child("expression"))...)
		}
		switch {
		case c.Name == "":
			errs = append(errs, field.Required(at.Child("name"), ""))
		case names[c.Name]:
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		default:
			errs = append(errs, validate.Qualified(c.Name, at.Child("name"))...)
		}
		names[c.Name] = true
	}
	return errs
}

// compiles checks a single boolean expression.
func compiles(scope cel.Scope, expression string, at *field.Path) field.ErrorList {
	compiler, err := cel.New(scope)
	if err != nil {
		return field.ErrorList{field.InternalError(at, err)}
	}
	if p := compiler.Compile(expression, cel.Bool); p.Err != nil {
		return field.ErrorList{field.Invalid(at, expression, p.Err.Error())}
	}
	return nil
}
