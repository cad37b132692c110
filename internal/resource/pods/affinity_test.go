package pods

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/resourcetest"
	"github.com/knarr-project/knarr/internal/resource/strategy"
)

// onlyPods is for manifests of pods.
func onlyPods(schema.GroupResource) *strategy.Strategy { return Strategy() }

func TestOnlyRequiredNodeAffinityNeedsValidLabelValues(t *testing.T) {
	const term = "matchExpressions: [{key: a, operator: In, values: [a/b]}]"
	for affinity, want := range map[string]int{
		"requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{" + term + "}]}":                                          1,
		"preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {" + term + "}}]":                                     0,
		"preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a b, operator: Exists}]}}]": 1,
	} {
		obj, _ := resourcetest.Read(t, onlyPods, "apiVersion: v1\nkind: Pod\nspec: {affinity: {nodeAffinity: {"+affinity+"}}}\n")
		errs := validateNodeAffinity(obj.(*corev1.Pod).Spec.Affinity.NodeAffinity, field.NewPath("a"))
		if len(errs) != want {
			t.Errorf("%s: %v", affinity, errs)
		}
	}
}
