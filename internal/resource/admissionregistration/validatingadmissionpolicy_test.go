package admissionregistration_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestAuditAnnotationsNeedTheNameOfThePolicy(t *testing.T) {
	obj, s := resourcetest.Read(t, rules.For, "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nspec: {matchConstraints: {resourceRules: [{apiGroups: [a], apiVersions: [v1], operations: [CREATE], resources: [b]}]}, auditAnnotations: [{key: a b, valueExpression: \"'v'\"}]}\n")
	obj.(metav1.Object).SetName("")
	resourcetest.Expect(t, s.ValidateCreate(obj), `spec.auditAnnotations[0].key: Invalid value: "a b": requires metadata.name be non-empty`)
}

func TestNewValidatingAdmissionPoliciesAreValidated(t *testing.T) {
	policy := func(spec string) string {
		return "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: p}\nspec: {matchConstraints: {resourceRules: [{apiGroups: [a], apiVersions: [v1], operations: [CREATE], resources: [b]}]}, " + spec + "}\n"
	}
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"variables in a policy without variables", policy("validations: [{expression: variables.v}]"), []string{"undeclared reference to 'variables'"}},
		{"a missing variable in a policy with variables", policy("variables: [{name: w, expression: '1'}], validations: [{expression: variables.v}]"), []string{"undefined field 'v'"}},
		{"a variable with a blank name", "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nspec: {matchConstraints: {resourceRules: [{apiGroups: [a], apiVersions: [v1], operations: [CREATE], resources: [b]}]}, variables: [{name: ' ', expression: '1'}], validations: [{expression: 'true'}]}\n",
			[]string{"spec.variables[0].name: Required value: name is not specified"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestNewValidatingAdmissionPoliciesAreValidatedWithTheirMetadata(t *testing.T) {
	policy := func(kind, rest string) string {
		return "apiVersion: admissionregistration.k8s.io/v1\nkind: " + kind + "\nspec: {matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}, " + rest + "}\n"
	}
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"errors omit spaces around a condition", policy("ValidatingAdmissionPolicy", "failurePolicy: Fail, validations: [{expression: 'true'}], matchConditions: [{name: a, expression: ' 1 '}]"), []string{`spec.matchConditions[0].expression: Invalid value: "1": must evaluate to bool but got int`}},
		{"errors show spaces around a validation", policy("ValidatingAdmissionPolicy", "failurePolicy: Fail, validations: [{expression: ' 1 '}]"), []string{`spec.validations[0].expression: Invalid value: " 1 ": must evaluate to bool but got int`}},
		{"all errors of paramKind are reported", policy("ValidatingAdmissionPolicy", "failurePolicy: Fail, paramKind: {apiVersion: v1, kind: a."+strings.Repeat("a", 62)+"}, validations: [{expression: 'true'}]"), []string{"otherwise match: must be no more than 63 characters,a DNS-1035 label must consist of"}},
		{"an audit annotation is compiled without spaces", policy("ValidatingAdmissionPolicy", "failurePolicy: Fail, auditAnnotations: [{key: a, valueExpression: ' 1.1.1 '}]"), []string{`Invalid value: " 1.1.1 ": compilation failed: ERROR: <input>:1:4`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateNew(obj, obj.(metav1.Object).GetNamespace() != ""), c.want...)
		})
	}
}
