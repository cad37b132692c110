package autoscaling_test

import (
	"testing"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func hpa(spec string) string {
	return "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nspec: {scaleTargetRef: {kind: Deployment, name: d, apiVersion: apps/v1}, maxReplicas: 3" + spec + "}\n"
}

func TestErrorsOfNewHorizontalPodAutoscalersComeInOrder(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"an autoscaler", hpa(""), nil},
		{"an autoscaler with max below min", hpa(", minReplicas: 5"),
			[]string{"spec.maxReplicas: Invalid value: 3: must be greater than or equal to `minReplicas`"}},
		{"an autoscaler with an empty metric", hpa(", metrics: [{type: Resource}]"),
			[]string{"spec.metrics[0].resource: Required value: must populate information for the given metric source"}},
		{"an autoscaler with invalid scaling rules", hpa(", behavior: {scaleUp: {stabilizationWindowSeconds: 3601, policies: [{type: Odd, value: 0, periodSeconds: 1}]}}"),
			[]string{"spec.behavior.scaleUp.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600",
				`spec.behavior.scaleUp.policies[0].type: Unsupported value: "Odd": supported values: "Percent", "Pods"`,
				"spec.behavior.scaleUp.policies[0].value: Invalid value: 0: must be greater than zero"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.ExpectInOrder(t, resourcetest.Create(s, obj), c.want)
		})
	}
}

func TestNewHorizontalPodAutoscalersAreValidated(t *testing.T) {
	average := func(value string) string {
		return "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nspec: {maxReplicas: 1, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: d}, metrics: [{type: Pods, pods: {metric: {name: m}, target: {type: AverageValue" + value + "}}}]}\n"
	}
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"an autoscaler with minReplicas 0", "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nspec: {minReplicas: 0, maxReplicas: 1, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: d}}\n", []string{
			"spec.minReplicas: Invalid value: 0: must be greater than or equal to 1", "spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas"}},
		{"a negative average", average(", averageValue: -1"), []string{`spec.metrics[0].pods.target.averageValue: Invalid value: "-1": must be positive`}},
		{"no average", average(""), []string{"spec.metrics[0].pods.target.averageValue: Required value: must specify a positive target averageValue"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}
