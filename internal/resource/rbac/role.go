// Package rbac holds the kinds of rbac.authorization.k8s.io.
package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func rbacStrategy() *strategy.Strategy {
	s := strategy.Plain(true)
	s.AllowCreateOnUpdate = true
	s.ValidateName = strategy.PathSegment
	return s
}

func RoleStrategy() *strategy.Strategy {
	s := rbacStrategy()
	s.ValidateCreate = strategy.Checks(validateRole)
	s.ValidateUpdate = strategy.ChecksBoth(validateRoleUpdate)
	return strategy.ShowAny(s, columns.Created, columns.CreatedRow)
}

func ClusterRoleStrategy() *strategy.Strategy {
	s := rbacStrategy()
	s.ValidateCreate = strategy.Checks(validateClusterRole)
	s.ValidateUpdate = strategy.ChecksBoth(validateClusterRoleUpdate)
	return strategy.ShowAny(s, columns.Created, columns.CreatedRow)
}

func validateRole(r *rbacv1.Role) field.ErrorList {
	return validateRules(r.Rules, true)
}

func validateRoleUpdate(r, _ *rbacv1.Role) field.ErrorList { return validateRole(r) }

func validateClusterRole(r *rbacv1.ClusterRole) field.ErrorList {
	errs := validateRules(r.Rules, false)
	if a := r.AggregationRule; a != nil {
		at := field.NewPath("aggregationRule", "clusterRoleSelectors")
		if len(a.ClusterRoleSelectors) == 0 {
			errs = append(errs, field.Required(at, "at least one clusterRoleSelector required if aggregationRule is non-nil"))
		}
		for i := range a.ClusterRoleSelectors {
			wrong := validate.Selector(&a.ClusterRoleSelectors[i], at.Index(i))
			errs = append(errs, wrong...)
			if _, err := metav1.LabelSelectorAsSelector(&a.ClusterRoleSelectors[i]); err != nil {
				errs = append(errs, field.Invalid(at.Index(i), nil, "invalid label selector."))
			}
		}
	}
	return errs
}

func validateClusterRoleUpdate(r, _ *rbacv1.ClusterRole) field.ErrorList {
	return validateClusterRole(r)
}

func validateRules(rules []rbacv1.PolicyRule, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	for i := range rules {
		errs = append(errs, validateRule(&rules[i], namespaced, field.NewPath("rules").Index(i))...)
	}
	return errs
}

func validateRule(r *rbacv1.PolicyRule, namespaced bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(r.Verbs) == 0 {
		errs = append(errs, field.Required(at.Child("verbs"), "verbs must contain at least one value"))
	}
	if len(r.NonResourceURLs) > 0 {
		if namespaced {
			errs = append(errs, field.Invalid(at.Child("nonResourceURLs"), r.NonResourceURLs, "namespaced rules cannot apply to non-resource URLs"))
		}
		if len(r.APIGroups) > 0 || len(r.Resources) > 0 || len(r.ResourceNames) > 0 {
			errs = append(errs, field.Invalid(at.Child("nonResourceURLs"), r.NonResourceURLs, "rules cannot apply to both regular resources and non-resource URLs"))
		}
		return errs
	}
	if len(r.APIGroups) == 0 {
		errs = append(errs, field.Required(at.Child("apiGroups"), "resource rules must supply at least one api group"))
	}
	if len(r.Resources) == 0 {
		errs = append(errs, field.Required(at.Child("resources"), "resource rules must supply at least one resource"))
	}
	return errs
}
