package resource

import (
	"testing"
)

func TestFlowControlIsValidated(t *testing.T) {
	schema := func(rest string) string {
		return "apiVersion: flowcontrol.apiserver.k8s.io/v1\nkind: FlowSchema\nspec: {priorityLevelConfiguration: {name: a}" + rest + "}\n"
	}
	level := func(spec string) string {
		return "apiVersion: flowcontrol.apiserver.k8s.io/v1\nkind: PriorityLevelConfiguration\nspec: " + spec + "\n"
	}
	rule := func(rule string) string { return schema(", rules: [" + rule + "]") }
	user := "subjects: [{kind: User, user: {name: u}}]"
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a schema", rule("{" + user + ", nonResourceRules: [{verbs: [get], nonResourceURLs: [/a/*]}]}"), nil},
		{"a schema of no level", "apiVersion: flowcontrol.apiserver.k8s.io/v1\nkind: FlowSchema\nspec: {}\n", []string{"spec.priorityLevelConfiguration.name: Required value: must reference a priority level"}},
		{"a schema before all others", schema(", matchingPrecedence: 1"), []string{"spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1"}},
		{"a schema behind the last", schema(", matchingPrecedence: 10001"), []string{"spec.matchingPrecedence: Invalid value: 10001: must not be greater than 10000"}},
		{"an unknown way to tell flows apart", schema(", distinguisherMethod: {type: X}"), []string{`spec.distinguisherMethod.type: Unsupported value: {"type":"X"}`}},
		{"a rule for nothing", rule("{" + user + "}"), []string{"spec.rules[0]: Required value: at least one of resourceRules and nonResourceRules has to be non-empty"}},
		{"a subject of another kind than it says", rule("{subjects: [{kind: Group, user: {name: u}}], nonResourceRules: [{verbs: ['*'], nonResourceURLs: ['*']}]}"), []string{
			"spec.rules[0].subjects[0].user: Forbidden: user is forbidden when subject kind is not 'User'", "spec.rules[0].subjects[0].group: Required value: group is required when subject kind is 'Group'"}},
		{"a rule for no namespace", rule("{" + user + ", resourceRules: [{verbs: [get], apiGroups: [''], resources: [pods]}]}"), []string{
			"spec.rules[0].resourceRules[0].namespaces: Required value: resource rules that are not cluster scoped must supply at least one namespace"}},
		{"a path with a hole", rule("{" + user + ", nonResourceRules: [{verbs: [get], nonResourceURLs: [/a*]}]}"), []string{"wildcard can only do suffix matching"}},
		{"a limited level", level("{type: Limited, limited: {limitResponse: {type: Reject}}}"), nil},
		{"a level that is exempt under a name of its own", level("{type: Exempt}"), []string{"spec.type: Invalid value: \"Exempt\": must be 'Exempt' if and only if `name` is 'exempt'"}},
		{"more than all lent", level("{type: Limited, limited: {lendablePercent: 101, limitResponse: {type: Reject}}}"), []string{"spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive"}},
		{"a hand larger than the deck", level("{type: Limited, limited: {limitResponse: {type: Queue, queuing: {queues: 2, handSize: 3, queueLengthLimit: 1}}}}"), []string{"spec.limited.limitResponse.queuing.handSize: Invalid value: 3: should not be greater than queues (2)"}},
		{"a hand of too many cards", level("{type: Limited, limited: {limitResponse: {type: Queue, queuing: {queues: 512, handSize: 8, queueLengthLimit: 1}}}}"), []string{"required entropy bits of deckSize 512 and handSize 8 should not be greater than 60"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := read(t, c.manifest)
			expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}
