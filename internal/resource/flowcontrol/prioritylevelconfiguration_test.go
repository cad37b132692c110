package flowcontrol_test

import (
	"testing"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestNewPriorityLevelConfigurationsAreValidated(t *testing.T) {
	level := func(spec string) string {
		return "apiVersion: flowcontrol.apiserver.k8s.io/v1\nkind: PriorityLevelConfiguration\nspec: " + spec + "\n"
	}
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a limited level", level("{type: Limited, limited: {limitResponse: {type: Reject}}}"), nil},
		{"an exempt level with a custom name", level("{type: Exempt}"), []string{"spec.type: Invalid value: \"Exempt\": must be 'Exempt' if and only if `name` is 'exempt'"}},
		{"a lendable percentage above 100", level("{type: Limited, limited: {lendablePercent: 101, limitResponse: {type: Reject}}}"), []string{"spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive"}},
		{"a hand larger than the number of queues", level("{type: Limited, limited: {limitResponse: {type: Queue, queuing: {queues: 2, handSize: 3, queueLengthLimit: 1}}}}"), []string{"spec.limited.limitResponse.queuing.handSize: Invalid value: 3: should not be greater than queues (2)"}},
		{"a hand with too many combinations", level("{type: Limited, limited: {limitResponse: {type: Queue, queuing: {queues: 512, handSize: 8, queueLengthLimit: 1}}}}"), []string{"required entropy bits of deckSize 512 and handSize 8 should not be greater than 60"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}
