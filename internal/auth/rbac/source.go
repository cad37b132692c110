package rbac

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
)

// source finds roles and bindings; subjects are index keys.
type source interface {
	clusterBindings(subject string) []*rbacv1.ClusterRoleBinding
	bindings(namespace, subject string) []*rbacv1.RoleBinding
	clusterRole(name string) (*rbacv1.ClusterRole, bool)
	role(namespace, name string) (*rbacv1.Role, bool)
}

func userKey(name string) string  { return "u:" + name }
func groupKey(name string) string { return "g:" + name }

// subjectKey returns a subject's index key. namespace is the binding's, for service accounts
// without one.
func subjectKey(s rbacv1.Subject, namespace string) string {
	switch s.Kind {
	case rbacv1.UserKind:
		return userKey(s.Name)
	case rbacv1.GroupKind:
		return groupKey(s.Name)
	case rbacv1.ServiceAccountKind:
		if s.Namespace != "" {
			namespace = s.Namespace
		}
		return userKey(auth.ServiceAccountName(namespace, s.Name))
	}
	return ""
}

// views is the live source.
type views struct {
	clusterRoles        client.ViewOf[*rbacv1.ClusterRole]
	clusterRoleBindings client.ViewOf[*rbacv1.ClusterRoleBinding]
	roles               client.ViewOf[*rbacv1.Role]
	roleBindings        client.ViewOf[*rbacv1.RoleBinding]
}

const bySubject = "rbac-subject"

func openViews(ctx context.Context, c client.Interface) (v *views, err error) {
	v = &views{}
	if v.clusterRoles, err = client.Open[*rbacv1.ClusterRole](ctx, c, client.Scope{}); err != nil {
		return nil, err
	}
	if v.roles, err = client.Open[*rbacv1.Role](ctx, c, client.Scope{}); err != nil {
		return nil, err
	}
	if v.clusterRoleBindings, err = client.Open[*rbacv1.ClusterRoleBinding](ctx, c, client.Scope{}); err != nil {
		return nil, err
	}
	if v.roleBindings, err = client.Open[*rbacv1.RoleBinding](ctx, c, client.Scope{}); err != nil {
		return nil, err
	}
	v.clusterRoleBindings.AddIndex(bySubject, func(b *rbacv1.ClusterRoleBinding) []string {
		return subjectKeys(b.Subjects, "", "")
	})
	v.roleBindings.AddIndex(bySubject, func(b *rbacv1.RoleBinding) []string {
		return subjectKeys(b.Subjects, b.Namespace, b.Namespace+"/")
	})
	return v, nil
}

func subjectKeys(subjects []rbacv1.Subject, namespace, prefix string) []string {
	keys := make([]string, 0, len(subjects))
	seen := map[string]bool{}
	for _, s := range subjects {
		if key := subjectKey(s, namespace); key != "" && !seen[key] {
			seen[key] = true
			keys = append(keys, prefix+key)
		}
	}
	return keys
}

func (v *views) clusterBindings(subject string) []*rbacv1.ClusterRoleBinding {
	return v.clusterRoleBindings.ByIndex(bySubject, subject)
}

func (v *views) bindings(namespace, subject string) []*rbacv1.RoleBinding {
	return v.roleBindings.ByIndex(bySubject, namespace+"/"+subject)
}

func (v *views) clusterRole(name string) (*rbacv1.ClusterRole, bool) {
	return v.clusterRoles.Get("", name)
}

func (v *views) role(namespace, name string) (*rbacv1.Role, bool) {
	return v.roles.Get(namespace, name)
}

// memory is a Policy as a source. It is immutable.
type memory struct {
	byClusterRole map[string]*rbacv1.ClusterRole
	byRole        map[string]*rbacv1.Role
	byCluster     map[string][]*rbacv1.ClusterRoleBinding
	byNamespace   map[string][]*rbacv1.RoleBinding
}

func newMemory(p *Policy) *memory {
	m := &memory{
		byClusterRole: map[string]*rbacv1.ClusterRole{}, byRole: map[string]*rbacv1.Role{},
		byCluster: map[string][]*rbacv1.ClusterRoleBinding{}, byNamespace: map[string][]*rbacv1.RoleBinding{},
	}
	for _, r := range p.ClusterRoles {
		m.byClusterRole[r.Name] = r
	}
	for _, r := range p.Roles {
		m.byRole[r.Namespace+"/"+r.Name] = r
	}
	for _, b := range p.ClusterRoleBindings {
		for _, key := range subjectKeys(b.Subjects, "", "") {
			m.byCluster[key] = append(m.byCluster[key], b)
		}
	}
	for _, b := range p.RoleBindings {
		for _, key := range subjectKeys(b.Subjects, b.Namespace, b.Namespace+"/") {
			m.byNamespace[key] = append(m.byNamespace[key], b)
		}
	}
	return m
}

func (m *memory) clusterBindings(subject string) []*rbacv1.ClusterRoleBinding {
	return m.byCluster[subject]
}

func (m *memory) bindings(namespace, subject string) []*rbacv1.RoleBinding {
	return m.byNamespace[namespace+"/"+subject]
}

func (m *memory) clusterRole(name string) (*rbacv1.ClusterRole, bool) {
	r, ok := m.byClusterRole[name]
	return r, ok
}

func (m *memory) role(namespace, name string) (*rbacv1.Role, bool) {
	r, ok := m.byRole[namespace+"/"+name]
	return r, ok
}
