package rbac

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	rbacvalidation "k8s.io/component-helpers/auth/rbac/validation"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
)

// Grants checks that a writer of a role or binding does not grant more than they have ("Privilege
// escalation prevention and bootstrapping" in the RBAC reference). The writer must hold the
// permissions, or be allowed the verb escalate on the role, or the verb bind on the referenced
// role.
type Grants struct {
	Rules *Authorizer
	// Authorizer decides about the verbs escalate and bind.
	Authorizer auth.Authorizer
}

// Check returns a Forbidden StatusError for a write that grants too much. old is nil for a
// creation. unnamed means that the request's path has no name (a POST); then rights limited to a
// role's name do not count. Objects of other kinds pass.
func (g Grants) Check(ctx context.Context, u auth.User, unnamed bool, obj, old runtime.Object) error {
	if slices.Contains(u.Groups, auth.GroupMasters) || old != nil && onlyGarbageCollection(obj, old) {
		return nil
	}
	switch o := obj.(type) {
	case *rbacv1.Role:
		return g.checkRole(ctx, u, unnamed, "roles", o.ObjectMeta, o.Rules, nil)
	case *rbacv1.ClusterRole:
		return g.checkRole(ctx, u, unnamed, "clusterroles", o.ObjectMeta, o.Rules, o.AggregationRule)
	case *rbacv1.RoleBinding:
		return g.checkBinding(ctx, u, "rolebindings", o.Namespace, o.Name, o.RoleRef)
	case *rbacv1.ClusterRoleBinding:
		return g.checkBinding(ctx, u, "clusterrolebindings", "", o.Name, o.RoleRef)
	}
	return nil
}

// onlyGarbageCollection reports whether a write changes only owner references and finalizers. That
// grants nothing, and garbage collectors must be able to do it.
func onlyGarbageCollection(obj, old runtime.Object) bool {
	a, aok := obj.DeepCopyObject().(client.Object)
	b, bok := old.DeepCopyObject().(client.Object)
	if !aok || !bok || reflect.TypeOf(a) != reflect.TypeOf(b) {
		return false
	}
	for _, o := range []client.Object{a, b} {
		o.SetOwnerReferences(nil)
		o.SetFinalizers(nil)
		o.SetManagedFields(nil)
		o.SetResourceVersion("")
	}
	return equality.Semantic.DeepEqual(a, b)
}

func (g Grants) checkRole(ctx context.Context, u auth.User, unnamed bool, resource string, role metav1.ObjectMeta, rules []rbacv1.PolicyRule, aggregation *rbacv1.AggregationRule) error {
	namespace, name := role.Namespace, role.Name
	escalate := auth.Attributes{User: u, Verb: "escalate", Group: rbacv1.GroupName, Version: "v1", Resource: resource, Namespace: namespace, Name: name}
	article := "an" // upstream's wording
	if unnamed {
		escalate.Name, article = "", "the"
	}
	if d, _, err := g.Authorizer.Authorize(ctx, escalate); err == nil && d == auth.Allow {
		return nil
	}
	gr := schema.GroupResource{Group: rbacv1.GroupName, Resource: resource}
	if err := g.covers(u, namespace, rules); err != nil {
		return apierrors.NewForbidden(gr, name, err)
	}
	if aggregation != nil {
		everything := []rbacv1.PolicyRule{rule("*", "*", "*"), paths("*", "*")}
		if g.covers(u, namespace, everything) != nil {
			return apierrors.NewForbidden(gr, name, fmt.Errorf("must have cluster-admin privileges to use %s aggregationRule", article))
		}
	}
	return nil
}

func (g Grants) checkBinding(ctx context.Context, u auth.User, resource, namespace, name string, ref rbacv1.RoleRef) error {
	bind := auth.Attributes{User: u, Verb: "bind", Group: ref.APIGroup, Version: "*", Namespace: namespace, Name: ref.Name}
	switch ref.Kind {
	case "ClusterRole":
		bind.Resource = "clusterroles"
	case "Role":
		bind.Resource = "roles"
	}
	if bind.Resource != "" {
		if d, _, err := g.Authorizer.Authorize(ctx, bind); err == nil && d == auth.Allow {
			return nil
		}
	}
	gr := schema.GroupResource{Group: rbacv1.GroupName, Resource: resource}
	rules, err := resolve(g.Rules.live, ref, namespace)
	if apierrors.IsNotFound(err) {
		// Upstream's wording: the role's name and the kind that was written.
		return apierrors.NewNotFound(gr, ref.Name)
	}
	if err != nil {
		return err
	}
	if err := g.covers(u, namespace, rules); err != nil {
		return apierrors.NewForbidden(gr, name, err)
	}
	return nil
}

// covers returns an error that lists the rules that the user does not have.
func (g Grants) covers(u auth.User, namespace string, rules []rbacv1.PolicyRule) error {
	held, errs := g.Rules.Rules(u, namespace)
	covered, missing := rbacvalidation.Covers(held, rules)
	if covered {
		return nil
	}
	text := fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s", u.Name, u.Groups, strings.Join(describe(missing), "\n"))
	if len(errs) > 0 {
		text += fmt.Sprintf("; resolution errors: %v", errs)
	}
	return errors.New(text)
}

// describe writes one rule per line and joins rules that differ only in their verb.
func describe(rules []rbacv1.PolicyRule) []string {
	var joined []rbacv1.PolicyRule
	for _, r := range rules {
		same := func(o rbacv1.PolicyRule) bool {
			return len(r.Resources) > 0 && slices.Equal(o.APIGroups, r.APIGroups) && slices.Equal(o.Resources, r.Resources) && slices.Equal(o.ResourceNames, r.ResourceNames)
		}
		if i := slices.IndexFunc(joined, same); i >= 0 {
			joined[i].Verbs = append(slices.Clip(joined[i].Verbs), r.Verbs...)
			continue
		}
		joined = append(joined, r)
	}
	lines := make([]string, 0, len(joined))
	for _, r := range joined {
		var parts []string
		for _, p := range []struct {
			name   string
			values []string
		}{{"APIGroups", r.APIGroups}, {"Resources", r.Resources}, {"NonResourceURLs", r.NonResourceURLs}, {"ResourceNames", r.ResourceNames}, {"Verbs", r.Verbs}} {
			if len(p.values) > 0 {
				parts = append(parts, fmt.Sprintf("%s:%q", p.name, p.values))
			}
		}
		lines = append(lines, "{"+strings.Join(parts, ", ")+"}")
	}
	sort.Strings(lines)
	return slices.Compact(lines)
}
