package apps_test

import (
	"strings"
	"testing"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestErrorsOfNewDeploymentsComeInOrder(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a deployment", workload("Deployment", ""), nil},
		{"a deployment without selector", "apiVersion: apps/v1\nkind: Deployment\nspec: {template: " + podTemplate + "}\n",
			[]string{"spec.selector: Required value", "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`"}},
		{"a deployment with an empty selector", "apiVersion: apps/v1\nkind: Deployment\nspec: {selector: {}, template: " + podTemplate + "}\n",
			[]string{"spec.selector: Invalid value: {}: empty selector is invalid for deployment"}},
		{"a deployment with a selector of other pods", "apiVersion: apps/v1\nkind: Deployment\nspec: {selector: {matchLabels: {x: z}}, template: " + podTemplate + "}\n",
			[]string{"spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`"}},
		{"a deployment with negative replicas", workload("Deployment", ", replicas: -1"),
			[]string{"spec.replicas: Invalid value: -1: must be greater than or equal to 0"}},
		{"a deployment with maxSurge and maxUnavailable 0", workload("Deployment", ", strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 0%}}"),
			[]string{"spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"0%\": may not be 0 when `maxSurge` is 0"}},
		{"a deployment with Recreate and rollingUpdate", workload("Deployment", ", strategy: {type: Recreate, rollingUpdate: {}}"),
			[]string{"spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'"}},
		{"a deployment with an invalid percentage", workload("Deployment", ", strategy: {rollingUpdate: {maxSurge: some, maxUnavailable: 101%}}"),
			[]string{"spec.strategy.rollingUpdate.maxSurge: Invalid value: \"some\": a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
				"spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"101%\": must not be greater than 100%"}},
		{"a deployment with a deadline below minReadySeconds", workload("Deployment", ", minReadySeconds: 600"),
			[]string{"spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds"}},
		{"a deployment with restart policy Never", strings.Replace(workload("Deployment", ""), "spec: {containers", "spec: {restartPolicy: Never, containers", 1),
			[]string{`spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.ExpectInOrder(t, resourcetest.Create(s, obj), c.want)
		})
	}
}

func TestErrorsOfUpdatesOfDeploymentsComeInOrder(t *testing.T) {
	cases := []struct {
		name, old, obj string
		want           []string
	}{
		{"a deployment scales", workload("Deployment", ""), workload("Deployment", ", replicas: 3"), nil},
		{"a deployment's selector is immutable", workload("Deployment", ""), strings.ReplaceAll(workload("Deployment", ""), "a: b", "a: c"),
			[]string{`spec.selector: Invalid value: {"matchLabels":{"a":"c"}}: field is immutable`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := resourcetest.Read(t, rules.For, c.old)
			obj, _ := resourcetest.Read(t, rules.For, c.obj)
			resourcetest.ExpectInOrder(t, resourcetest.Update(s, obj, old), c.want)
		})
	}
}
