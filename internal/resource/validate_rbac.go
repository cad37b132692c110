package resource

import (
	rbacv1 "k8s.io/api/rbac/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/validate"
)

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

func validateRoleBinding(b *rbacv1.RoleBinding) field.ErrorList {
	errs := validateRoleRef(b.RoleRef, "Role", "ClusterRole")
	return append(errs, validateSubjects(b.Subjects, true)...)
}

func validateRoleBindingUpdate(b, old *rbacv1.RoleBinding) field.ErrorList {
	return append(validateRoleBinding(b), sameRole(b.RoleRef, old.RoleRef)...)
}

func validateClusterRoleBinding(b *rbacv1.ClusterRoleBinding) field.ErrorList {
	errs := validateRoleRef(b.RoleRef, "ClusterRole")
	return append(errs, validateSubjects(b.Subjects, false)...)
}

func validateClusterRoleBindingUpdate(b, old *rbacv1.ClusterRoleBinding) field.ErrorList {
	return append(validateClusterRoleBinding(b), sameRole(b.RoleRef, old.RoleRef)...)
}

// sameRole refuses to change the role of a binding: binding another role needs another permission,
// hence another binding.
func sameRole(ref, old rbacv1.RoleRef) field.ErrorList {
	if ref != old {
		return field.ErrorList{field.Invalid(field.NewPath("roleRef"), ref, "cannot change roleRef")}
	}
	return nil
}

func validateRoleRef(ref rbacv1.RoleRef, kinds ...string) field.ErrorList {
	at := field.NewPath("roleRef")
	errs := validate.NotSupportedUnless(ref.APIGroup, at.Child("apiGroup"), rbacv1.GroupName)
	errs = append(errs, validate.NotSupportedUnless(ref.Kind, at.Child("kind"), kinds...)...)
	return append(errs, validate.RequiredSegment(ref.Name, at.Child("name"))...)
}

func validateSubjects(subjects []rbacv1.Subject, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	for i := range subjects {
		errs = append(errs, validateSubject(&subjects[i], namespaced, field.NewPath("subjects").Index(i))...)
	}
	return errs
}

func validateSubject(s *rbacv1.Subject, namespaced bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	}
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		if s.Name != "" {
			errs = append(errs, validate.Invalids(at.Child("name"), s.Name, apivalidation.ValidateServiceAccountName(s.Name, false))...)
		}
		if s.APIGroup != "" {
			errs = append(errs, field.NotSupported(at.Child("apiGroup"), s.APIGroup, []string{""}))
		}
		if !namespaced && s.Namespace == "" {
			errs = append(errs, field.Required(at.Child("namespace"), ""))
		}
	case rbacv1.UserKind, rbacv1.GroupKind:
		errs = append(errs, validate.NotSupportedUnless(s.APIGroup, at.Child("apiGroup"), rbacv1.GroupName)...)
	default:
		errs = append(errs, field.NotSupported(at.Child("kind"), s.Kind, []string{rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind}))
	}
	return errs
}
