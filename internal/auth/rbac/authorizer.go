package rbac

import (
	"context"

	"fmt"
	"slices"
	"sync/atomic"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
)

// Authorizer decides by the cluster's roles and bindings. Safe for concurrent use.
type Authorizer struct {
	live *views
	// starting is the bootstrap policy. It applies beside the live roles until Bootstrap has
	// written it to an empty cluster's store.
	starting atomic.Pointer[memory]
}

// New opens Views of roles and bindings. The client must be allowed to read them all. gates are
// those of Bootstrap.
func New(ctx context.Context, c client.Interface, gates ...string) (*Authorizer, error) {
	live, err := openViews(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("rbac: %w", err)
	}
	z := &Authorizer{live: live}
	// Bootstrap writes this role last, so if it exists, the whole policy does.
	if _, ok := live.clusterRoles.Get("", lastRole); !ok {
		z.starting.Store(newMemory(Bootstrap(gates...)))
	}
	return z, nil
}

// Stored reports whether the bootstrap policy is in the store, perhaps that of an earlier version.
// Until it is, the whole policy applies as if it were stored.
func (z *Authorizer) Stored() bool { return z.starting.Load() == nil }

// Authorize implements auth.Authorizer.
func (z *Authorizer) Authorize(_ context.Context, a auth.Attributes) (auth.Decision, string, error) {
	var reason string
	var errs []error
	z.visit(a.User, a.Namespace, func(b binding, rules []rbacv1.PolicyRule, err error) bool {
		if err != nil {
			errs = append(errs, err)
			return true
		}
		for i := range rules {
			if Allows(&rules[i], &a) {
				reason = b.String()
				return false
			}
		}
		return true
	})
	if reason != "" {
		return auth.Allow, reason, nil
	}
	if len(errs) > 0 {
		reason = "RBAC: " + joined(errs)
	}
	return auth.NoOpinion, reason, nil
}

// Rules returns all rules that a user has in a namespace (cluster-wide ones if it is empty), and
// the errors of bindings without a role.
func (z *Authorizer) Rules(u auth.User, namespace string) (rules []rbacv1.PolicyRule, errs []error) {
	z.visit(u, namespace, func(_ binding, some []rbacv1.PolicyRule, err error) bool {
		if err != nil {
			errs = append(errs, err)
		}
		rules = append(rules, some...)
		return true
	})
	return rules, errs
}

// visit calls fn for each binding that concerns the user, cluster-wide ones first, until fn returns
// false.
func (z *Authorizer) visit(u auth.User, namespace string, fn func(b binding, rules []rbacv1.PolicyRule, err error) bool) {
	if starting := z.starting.Load(); starting != nil && !visitSource(starting, u, namespace, fn) {
		return
	}
	visitSource(z.live, u, namespace, fn)
}

func visitSource(s source, u auth.User, namespace string, fn func(b binding, rules []rbacv1.PolicyRule, err error) bool) bool {
	node, _ := auth.NodeName(u)
	return eachSubject(u, func(subject string) bool {
		for _, b := range s.clusterBindings(subject) {
			if node == "" && isForNodes("", b.Name, subject) {
				continue
			}
			rules, err := resolve(s, b.RoleRef, "")
			if !fn(binding{cluster: b, subject: subject}, rules, err) {
				return false
			}
		}
		return true
	}) && (namespace == "" || eachSubject(u, func(subject string) bool {
		for _, b := range s.bindings(namespace, subject) {
			if node == "" && isForNodes(b.Namespace, b.Name, subject) {
				continue
			}
			rules, err := resolve(s, b.RoleRef, namespace)
			if !fn(binding{local: b, subject: subject}, rules, err) {
				return false
			}
		}
		return true
	}))
}

// eachSubject calls fn with the index keys of the user and of its groups. A service account is
// indexed under its user name.
func eachSubject(u auth.User, fn func(subject string) bool) bool {
	if !fn(userKey(u.Name)) {
		return false
	}
	for _, g := range u.Groups {
		if !fn(groupKey(g)) {
			return false
		}
	}
	return true
}

func resolve(s source, r rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error) {
	switch r.Kind {
	case "ClusterRole":
		if role, ok := s.clusterRole(r.Name); ok {
			return role.Rules, nil
		}
		return nil, apierrors.NewNotFound(rbacv1.Resource("clusterrole"), r.Name)
	case "Role":
		if role, ok := s.role(namespace, r.Name); ok {
			return role.Rules, nil
		}
		return nil, apierrors.NewNotFound(rbacv1.Resource("role"), r.Name)
	}
	return nil, fmt.Errorf("unsupported role reference kind: %q", r.Kind)
}

// binding is a RoleBinding or a ClusterRoleBinding, with the subject that matches the user.
type binding struct {
	cluster *rbacv1.ClusterRoleBinding
	local   *rbacv1.RoleBinding
	subject string
}

// String returns the reason for the audit log.
func (b binding) String() string {
	kind, name, ref, subjects := "ClusterRoleBinding", "", rbacv1.RoleRef{}, []rbacv1.Subject(nil)
	if b.cluster != nil {
		name, ref, subjects = b.cluster.Name, b.cluster.RoleRef, b.cluster.Subjects
	} else {
		kind, name, ref, subjects = "RoleBinding", b.local.Name+"/"+b.local.Namespace, b.local.RoleRef, b.local.Subjects
	}
	to := ""
	namespace := ""
	if b.local != nil {
		namespace = b.local.Namespace
	}
	if i := slices.IndexFunc(subjects, func(s rbacv1.Subject) bool { return subjectKey(s, namespace) == b.subject }); i >= 0 {
		s := subjects[i]
		to = s.Kind + " \"" + s.Name
		if s.Kind == rbacv1.ServiceAccountKind {
			to += "/" + s.Namespace
		}
		to += "\""
	}
	return "RBAC: allowed by " + kind + " \"" + name + "\" of " + ref.Kind + " \"" + ref.Name + "\" to " + to
}

// joined formats errors as upstream does: one as it is, several in brackets.
func joined(errs []error) string {
	if len(errs) == 1 {
		return errs[0].Error()
	}
	text, seen := "[", map[string]bool{}
	for _, err := range errs {
		if seen[err.Error()] {
			continue
		}
		if len(seen) > 0 {
			text += ", "
		}
		seen[err.Error()] = true
		text += err.Error()
	}
	return text + "]"
}
