package rbac

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	rbacvalidation "k8s.io/component-helpers/auth/rbac/validation"

	"github.com/knarr-project/knarr/internal/client"
)

// lastRole is the last role that Bootstrap writes. If it exists, the whole policy does.
const lastRole = "cluster-admin"

// writers is the number of concurrent writes of the bootstrap policy.
const writers = 32

// Bootstrap writes the bootstrap policy to the store. It creates missing objects, and adds missing
// rules and subjects to existing ones unless their autoupdate annotation is "false". It removes
// nothing. It runs while the API serves.
func (z *Authorizer) Bootstrap(ctx context.Context, c client.Interface, gates ...string) error {
	if err := reconcile(ctx, c, Bootstrap(gates...)); err != nil {
		return fmt.Errorf("rbac bootstrap policy: %w", err)
	}
	z.starting.Store(nil)
	return nil
}

func reconcile(ctx context.Context, c client.Interface, p *Policy) error {
	g, groupCtx := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	var last *rbacv1.ClusterRole
	for _, role := range p.ClusterRoles {
		if role.Name == lastRole {
			last = role
			continue
		}
		g.Go(func() error { return ensure(groupCtx, c, role, mergeClusterRole) })
	}
	for _, role := range p.Roles {
		g.Go(func() error { return ensure(groupCtx, c, role, mergeRole) })
	}
	for _, b := range p.ClusterRoleBindings {
		g.Go(func() error { return ensureBinding(groupCtx, c, b, mergeClusterRoleBinding, b.RoleRef) })
	}
	for _, b := range p.RoleBindings {
		g.Go(func() error { return ensureBinding(groupCtx, c, b, mergeRoleBinding, b.RoleRef) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return ensure(ctx, c, last, mergeClusterRole)
}

// ensure creates the object, or lets merge update the existing one. merge gets a copy, and returns
// whether it changed it.
func ensure[T client.Object](ctx context.Context, c client.Interface, want T, merge func(have, want T) bool) error {
	for {
		have, err := client.Get[T](ctx, c, want.GetNamespace(), want.GetName())
		switch {
		case apierrors.IsNotFound(err):
			if _, err = client.Create(ctx, c, want.DeepCopyObject().(T)); apierrors.IsNotFound(err) && want.GetNamespace() != "" {
				if err = ensureNamespace(ctx, c, want.GetNamespace()); err == nil {
					continue
				}
			}
			if apierrors.IsAlreadyExists(err) {
				continue
			}
		case err == nil:
			if have.GetAnnotations()[annotationAutoUpdate] == "false" {
				return nil
			}
			have = have.DeepCopyObject().(T)
			marked := mergeMeta(have, want)
			if changed := merge(have, want); !changed && !marked {
				return nil
			}
			if _, err = client.Update(ctx, c, have); apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
				continue
			}
		}
		if err != nil {
			return fmt.Errorf("%T %s: %w", want, want.GetName(), err)
		}
		return nil
	}
}

// ensureBinding is ensure for bindings. It replaces a binding to another role, because the
// reference is immutable.
func ensureBinding[T client.Object](ctx context.Context, c client.Interface, want T, merge func(have, want T) bool, ref rbacv1.RoleRef) error {
	have, err := client.Get[T](ctx, c, want.GetNamespace(), want.GetName())
	if err == nil && have.GetAnnotations()[annotationAutoUpdate] != "false" && roleRefOf(have) != ref {
		uid := have.GetUID()
		opts := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
		if err := client.Delete[T](ctx, c, want.GetNamespace(), want.GetName(), opts); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("%T %s: %w", want, want.GetName(), err)
		}
	}
	return ensure(ctx, c, want, merge)
}

func roleRefOf(obj any) rbacv1.RoleRef {
	switch b := obj.(type) {
	case *rbacv1.ClusterRoleBinding:
		return b.RoleRef
	case *rbacv1.RoleBinding:
		return b.RoleRef
	}
	return rbacv1.RoleRef{}
}

func ensureNamespace(ctx context.Context, c client.Interface, name string) error {
	_, err := client.Create(ctx, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// mergeMeta adds missing labels and annotations.
func mergeMeta(have, want client.Object) bool {
	labels, changed := addMissing(have.GetLabels(), want.GetLabels())
	annotations, changedToo := addMissing(have.GetAnnotations(), want.GetAnnotations())
	have.SetLabels(labels)
	have.SetAnnotations(annotations)
	return changed || changedToo
}

func addMissing(have, want map[string]string) (map[string]string, bool) {
	changed := false
	for k, v := range want {
		if _, ok := have[k]; !ok {
			if have == nil {
				have = map[string]string{}
			}
			have[k], changed = v, true
		}
	}
	return have, changed
}

func mergeClusterRole(have, want *rbacv1.ClusterRole) bool {
	if want.AggregationRule != nil {
		// The aggregation controller owns the rules, so only add missing selectors.
		if have.AggregationRule == nil {
			have.AggregationRule = want.AggregationRule
			return true
		}
		changed := false
		for _, s := range want.AggregationRule.ClusterRoleSelectors {
			if !slices.ContainsFunc(have.AggregationRule.ClusterRoleSelectors, func(h metav1.LabelSelector) bool { return reflect.DeepEqual(h, s) }) {
				have.AggregationRule.ClusterRoleSelectors, changed = append(have.AggregationRule.ClusterRoleSelectors, s), true
			}
		}
		return changed
	}
	return mergeRules(&have.Rules, want.Rules)
}

func mergeRole(have, want *rbacv1.Role) bool { return mergeRules(&have.Rules, want.Rules) }

func mergeRules(have *[]rbacv1.PolicyRule, want []rbacv1.PolicyRule) bool {
	covered, missing := rbacvalidation.Covers(*have, want)
	if covered {
		return false
	}
	*have = append(*have, missing...)
	return true
}

func mergeClusterRoleBinding(have, want *rbacv1.ClusterRoleBinding) bool {
	return mergeSubjects(&have.Subjects, want.Subjects)
}

func mergeRoleBinding(have, want *rbacv1.RoleBinding) bool {
	return mergeSubjects(&have.Subjects, want.Subjects)
}

func mergeSubjects(have *[]rbacv1.Subject, want []rbacv1.Subject) bool {
	changed := false
	for _, s := range want {
		if !slices.Contains(*have, s) {
			*have, changed = append(*have, s), true
		}
	}
	return changed
}
