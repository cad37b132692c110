package apps

import (
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Comparing every pair of claims took minutes.
func TestManyClaimTemplatesBecomeVolumes(t *testing.T) {
	const many = 100000
	template := &corev1.PodTemplateSpec{}
	claims := make([]corev1.PersistentVolumeClaim, many)
	for i := range claims {
		claims[i].Name = strconv.Itoa(i)
		template.Spec.Volumes = append(template.Spec.Volumes, corev1.Volume{Name: strconv.Itoa(i + 1)})
	}
	if got := withClaims(template, claims).Spec.Volumes; len(got) != many+1 || got[many].Name != strconv.Itoa(many) {
		t.Errorf("got %d volumes, want %d", len(got), many+1)
	}
}
