package rbac_test

import (
	"testing"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestErrorsOfNewClusterRoleBindingsComeInOrder(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a binding", "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nroleRef: {kind: ClusterRole, name: 'system:x'}\nsubjects: [{kind: User, name: u}]\n", nil},
		{"an incomplete binding", "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nroleRef: {kind: Role, name: a/b}\nsubjects: [{kind: ServiceAccount, name: u}, {kind: Robot, name: r}]\n",
			[]string{`roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"`, `roleRef.name: Invalid value: "a/b": may not contain '/'`,
				"subjects[0].namespace: Required value", `subjects[1].kind: Unsupported value: "Robot": supported values: "ServiceAccount", "User", "Group"`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.ExpectInOrder(t, resourcetest.Create(s, obj), c.want)
		})
	}
}

func TestErrorsOfUpdatesOfRoleBindingsComeInOrder(t *testing.T) {
	cases := []struct {
		name, old, obj string
		want           []string
	}{
		{"a binding's role is immutable", "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nroleRef: {kind: Role, name: a}\n",
			"apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nroleRef: {kind: Role, name: b}\n",
			[]string{`roleRef: Invalid value: {"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"b"}: cannot change roleRef`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := resourcetest.Read(t, rules.For, c.old)
			obj, _ := resourcetest.Read(t, rules.For, c.obj)
			resourcetest.ExpectInOrder(t, resourcetest.Update(s, obj, old), c.want)
		})
	}
}
