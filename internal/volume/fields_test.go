package volume

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestAMissingLimitIsThePodsOrTheNodes(t *testing.T) {
	t.Parallel()
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	whole := &corev1.Pod{Spec: corev1.PodSpec{Resources: &corev1.ResourceRequirements{Limits: list("1250m", "64Mi")}}}
	for _, c := range []struct {
		name      string
		pod       *corev1.Pod
		container corev1.ResourceRequirements
		cpu, size string
	}{
		{"the container's own", whole, corev1.ResourceRequirements{Limits: list("1", "1Mi")}, "1", "1048576"},
		{"the pod's", whole, corev1.ResourceRequirements{}, "2", "67108864"},
		{"the node's", &corev1.Pod{}, corev1.ResourceRequirements{}, "8", "1073741824"},
	} {
		for field, want := range map[string]string{"limits.cpu": c.cpu, "limits.memory": c.size} {
			got, err := ResourceField(c.pod, c.container, &corev1.ResourceFieldSelector{Resource: field}, list("8", "1Gi"))
			if err != nil || got != want {
				t.Errorf("%s: %s is %s (%v), want %s", c.name, field, got, err, want)
			}
		}
	}
}
