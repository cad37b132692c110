package rbac_test

import (
	"strings"
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
			if s.PrepareCreate != nil {
				s.PrepareCreate(obj)
			}
			var got []string
			for _, err := range s.ValidateCreate(obj) {
				got = append(got, err.Error())
			}
			if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(c.want, "\n  "))
			}
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
			if s.PrepareCreate != nil {
				s.PrepareCreate(old)
			}
			obj, _ := resourcetest.Read(t, rules.For, c.obj)
			if s.PrepareCreate != nil {
				s.PrepareCreate(obj) // clients send the generated labels back
			}
			if s.PrepareUpdate != nil {
				s.PrepareUpdate(obj, old)
			}
			var got []string
			for _, err := range s.ValidateUpdate(obj, old) {
				got = append(got, err.Error())
			}
			if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(c.want, "\n  "))
			}
		})
	}
}
