package apps_test

import (
	"testing"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func workload(kind, more string) string {
	return "apiVersion: apps/v1\nkind: " + kind + "\nspec: {selector: {matchLabels: {a: b}}, template: " + podTemplate + more + "}\n"
}

const podTemplate = `{metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}`

func TestErrorsOfNewDaemonSetsComeInOrder(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a daemon set", workload("DaemonSet", ""), nil},
		{"a daemon set without selector", "apiVersion: apps/v1\nkind: DaemonSet\nspec: {template: " + podTemplate + "}\n",
			[]string{"spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`"}},
		{"a daemon set with both budgets", workload("DaemonSet", ", updateStrategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 1}}"),
			[]string{"spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero"}},
		{"a daemon set with no budget", workload("DaemonSet", ", updateStrategy: {rollingUpdate: {maxUnavailable: 0}}"),
			[]string{"spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.ExpectInOrder(t, resourcetest.Create(s, obj), c.want)
		})
	}
}
