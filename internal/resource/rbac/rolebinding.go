package rbac

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func RoleBindingStrategy() *strategy.Strategy {
	s := rbacStrategy()
	s.Default = strategy.On(defaultRoleBinding)
	s.ValidateCreate = strategy.Checks(validateRoleBinding)
	s.ValidateUpdate = strategy.ChecksBoth(validateRoleBindingUpdate)
	return strategy.Show(s, roleBindingColumns, roleBindingRow)
}

func ClusterRoleBindingStrategy() *strategy.Strategy {
	s := rbacStrategy()
	s.Default = strategy.On(defaultClusterRoleBinding)
	s.ValidateCreate = strategy.Checks(validateClusterRoleBinding)
	s.ValidateUpdate = strategy.ChecksBoth(validateClusterRoleBindingUpdate)
	return strategy.Show(s, clusterRoleBindingColumns, clusterRoleBindingRow)
}

func defaultRoleBinding(b *rbacv1.RoleBinding) { defaultBinding(&b.RoleRef, b.Subjects) }

func defaultClusterRoleBinding(b *rbacv1.ClusterRoleBinding) { defaultBinding(&b.RoleRef, b.Subjects) }

func defaultBinding(ref *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	strategy.SetDefault(&ref.APIGroup, rbacv1.GroupName)
	for i := range subjects {
		if s := &subjects[i]; s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind {
			strategy.SetDefault(&s.APIGroup, rbacv1.GroupName)
		}
	}
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

var roleBindingColumns = columns.Define("Name", "Role=RoleRef can reference a Role in the current namespace or a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the Authorizer must return an error.",
	"Age", "+Users=Users in the roleBinding", "+Groups=Groups in the roleBinding", "+ServiceAccounts=ServiceAccounts in the roleBinding")

var clusterRoleBindingColumns = columns.Define("Name", "Role=RoleRef can only reference a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the Authorizer must return an error.",
	"Age", "+Users=Users in the clusterRoleBinding", "+Groups=Groups in the clusterRoleBinding", "+ServiceAccounts=ServiceAccounts in the clusterRoleBinding")

func roleBindingRow(b *rbacv1.RoleBinding, now metav1.Time) []any {
	return bindingRow(b, b.RoleRef, b.Subjects, now)
}

func clusterRoleBindingRow(b *rbacv1.ClusterRoleBinding, now metav1.Time) []any {
	return bindingRow(b, b.RoleRef, b.Subjects, now)
}

func bindingRow(b metav1.Object, ref rbacv1.RoleRef, subjects []rbacv1.Subject, now metav1.Time) []any {
	var users, groups, accounts []string
	for _, s := range subjects {
		switch s.Kind {
		case rbacv1.UserKind:
			users = append(users, s.Name)
		case rbacv1.GroupKind:
			groups = append(groups, s.Name)
		case rbacv1.ServiceAccountKind:
			accounts = append(accounts, s.Namespace+"/"+s.Name)
		}
	}
	return []any{
		b.GetName(), ref.Kind + "/" + ref.Name, columns.AgeOf(b, now),
		strings.Join(users, ", "), strings.Join(groups, ", "), strings.Join(accounts, ", "),
	}
}
