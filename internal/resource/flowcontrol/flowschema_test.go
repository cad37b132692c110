package flowcontrol_test

import (
	"testing"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestNewFlowSchemasAreValidated(t *testing.T) {
	flow := func(spec string) string {
		return "apiVersion: flowcontrol.apiserver.k8s.io/v1\nkind: FlowSchema\nspec: {priorityLevelConfiguration: {name: p}, matchingPrecedence: 5, " + spec + "}\n"
	}
	schema := func(rest string) string {
		return "apiVersion: flowcontrol.apiserver.k8s.io/v1\nkind: FlowSchema\nspec: {priorityLevelConfiguration: {name: a}" + rest + "}\n"
	}
	rule := func(rule string) string { return schema(", rules: [" + rule + "]") }
	user := "subjects: [{kind: User, user: {name: u}}]"
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"an unknown type of distinguisher method", flow("distinguisherMethod: {type: x}"), []string{`spec.distinguisherMethod.type: Unsupported value: {"type":"x"}: supported values: "ByNamespace", "ByUser"`}},
		{"a flow rule with an invalid namespace", flow("rules: [{subjects: [{kind: User, user: {name: a}}], resourceRules: [{verbs: [get], apiGroups: [''], resources: [pods], namespaces: [a.b]}]}]"), []string{"namespaces[0]: Invalid value: \"a.b\": each member of this list must be '*' or a DNS-1123 label; must not contain dots"}},
		{"a schema", rule("{" + user + ", nonResourceRules: [{verbs: [get], nonResourceURLs: [/a/*]}]}"), nil},
		{"a schema without a level", "apiVersion: flowcontrol.apiserver.k8s.io/v1\nkind: FlowSchema\nspec: {}\n", []string{"spec.priorityLevelConfiguration.name: Required value: must reference a priority level"}},
		{"a schema with the precedence of exempt", schema(", matchingPrecedence: 1"), []string{"spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1"}},
		{"a schema with a precedence above the limit", schema(", matchingPrecedence: 10001"), []string{"spec.matchingPrecedence: Invalid value: 10001: must not be greater than 10000"}},
		{"an unknown distinguisher method", schema(", distinguisherMethod: {type: X}"), []string{`spec.distinguisherMethod.type: Unsupported value: {"type":"X"}`}},
		{"an empty rule", rule("{" + user + "}"), []string{"spec.rules[0]: Required value: at least one of resourceRules and nonResourceRules has to be non-empty"}},
		{"a subject with the field of another kind", rule("{subjects: [{kind: Group, user: {name: u}}], nonResourceRules: [{verbs: ['*'], nonResourceURLs: ['*']}]}"), []string{
			"spec.rules[0].subjects[0].user: Forbidden: user is forbidden when subject kind is not 'User'", "spec.rules[0].subjects[0].group: Required value: group is required when subject kind is 'Group'"}},
		{"a namespaced rule without namespaces", rule("{" + user + ", resourceRules: [{verbs: [get], apiGroups: [''], resources: [pods]}]}"), []string{
			"spec.rules[0].resourceRules[0].namespaces: Required value: resource rules that are not cluster scoped must supply at least one namespace"}},
		{"a path with a wildcard inside", rule("{" + user + ", nonResourceRules: [{verbs: [get], nonResourceURLs: [/a*]}]}"), []string{"wildcard can only do suffix matching"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}
