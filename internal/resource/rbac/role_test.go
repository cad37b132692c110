package rbac_test

import (
	"testing"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestErrorsOfNewRolesComeInOrder(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a role", "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nrules: [{verbs: [get], resources: [pods], apiGroups: ['']}]\n", nil},
		{"an incomplete role", "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nrules: [{}, {verbs: [get], nonResourceURLs: [/x]}]\n",
			[]string{"rules[0].verbs: Required value: verbs must contain at least one value",
				"rules[0].apiGroups: Required value: resource rules must supply at least one api group",
				"rules[0].resources: Required value: resource rules must supply at least one resource",
				`rules[1].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.ExpectInOrder(t, resourcetest.Create(s, obj), c.want)
		})
	}
}
