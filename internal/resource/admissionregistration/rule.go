package admissionregistration

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/cel"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func defaultMatchResources(m *admissionregistrationv1.MatchResources) {
	if m == nil {
		return
	}
	strategy.SetPointer(&m.MatchPolicy, admissionregistrationv1.Equivalent)
	strategy.SetPointer(&m.NamespaceSelector, metav1.LabelSelector{})
	strategy.SetPointer(&m.ObjectSelector, metav1.LabelSelector{})
	for _, rules := range [][]admissionregistrationv1.NamedRuleWithOperations{m.ResourceRules, m.ExcludeResourceRules} {
		for i := range rules {
			strategy.SetPointer(&rules[i].Scope, admissionregistrationv1.AllScopes)
		}
	}
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

// maxMatchConditions is the limit for a webhook or a policy.
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
