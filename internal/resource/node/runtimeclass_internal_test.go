package node

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestManyTolerationsOfARuntimeClassAreNotComparedEachWithEach(t *testing.T) {
	tolerations := resourcetest.Numbered(func(i int) corev1.Toleration {
		seconds := int64(i % 2)
		return corev1.Toleration{Key: resourcetest.Text(i / 2), Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds}
	})
	// The last toleration equals an earlier one, with its seconds behind another pointer.
	again := func(list []corev1.Toleration) []corev1.Toleration {
		same := list[1]
		seconds := *same.TolerationSeconds
		same.TolerationSeconds = &seconds
		return append(list[:len(list):len(list)], same)
	}
	errs := validateClassTolerations(again(tolerations), field.NewPath("x"))
	if n := resourcetest.OfType(errs, field.ErrorTypeDuplicate); n != 1 {
		t.Errorf("%d duplicates, want 1", n)
	}
}
