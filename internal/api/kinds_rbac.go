package api

import (
	rbacv1 "k8s.io/api/rbac/v1"
)

// rbacKinds are the kinds of the group rbac.authorization.k8s.io.
var rbacKinds = []Kind{
	{
		Kind: rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"), Resource: "clusterrolebindings", Singular: "clusterrolebinding",
		Object: &rbacv1.ClusterRoleBinding{}, Served: []string{"v1"},
		Prefix: "/registry/clusterrolebindings",
	},
	{
		Kind: rbacv1.SchemeGroupVersion.WithKind("ClusterRole"), Resource: "clusterroles", Singular: "clusterrole",
		Object: &rbacv1.ClusterRole{}, Served: []string{"v1"},
		Prefix: "/registry/clusterroles",
	},
	{
		Kind: rbacv1.SchemeGroupVersion.WithKind("RoleBinding"), Resource: "rolebindings", Singular: "rolebinding",
		Object: &rbacv1.RoleBinding{}, Namespaced: true, Served: []string{"v1"},
		Prefix: "/registry/rolebindings",
	},
	{
		Kind: rbacv1.SchemeGroupVersion.WithKind("Role"), Resource: "roles", Singular: "role",
		Object: &rbacv1.Role{}, Namespaced: true, Served: []string{"v1"},
		Prefix: "/registry/roles",
	},
}
