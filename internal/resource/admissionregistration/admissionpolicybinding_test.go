package admissionregistration_test

import (
	"testing"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestNewMutatingAdmissionPolicyBindingsAreValidated(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a mutating policy for DELETE", "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicyBinding\nspec: {policyName: p, matchResources: {resourceRules: [{apiGroups: [a], apiVersions: [v1], operations: [DELETE], resources: [b]}]}}\n", []string{`spec.matchResources.resourceRules.operations: Unsupported value: "DELETE"`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestNewValidatingAdmissionPolicyBindingsAreValidated(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"an unknown parameterNotFoundAction", "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nspec: {policyName: p, validationActions: [Deny], paramRef: {name: a, parameterNotFoundAction: ''}}\n",
			[]string{"spec.paramRef.parameterNotFoundAction: Required value"}},
		{"parameters by a name and an invalid selector", "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nspec: {policyName: p, validationActions: [Deny], paramRef: {name: a, parameterNotFoundAction: Deny, selector: {matchExpressions: [{key: a, operator: x}]}}}\n",
			[]string{"spec.paramRef.name: Forbidden: name and selector are mutually exclusive", "spec.paramRef.selector: Forbidden: name and selector are mutually exclusive", `spec.paramRef.selector.matchExpressions[0].operator: Invalid value: "x": not a valid selector operator`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}
