package framework

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestRequestsOfThePodAsAWholeCount(t *testing.T) {
	cpu := func(amount string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)}
	}
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{
			Resources:  &corev1.ResourceRequirements{Requests: cpu("500m")},
			Containers: []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{Requests: cpu("100m")}}, {Name: "b"}},
		}}
		change(p)
		return p
	}
	for name, tc := range map[string]struct {
		pod          *corev1.Pod
		cpu, memory  int64
		scored       int64 // CPU
		scoredMemory int64
	}{
		"they replace the sum of the containers": {pod(func(*corev1.Pod) {}), 500, 0, 500, 2 * defaultMemory},
		"containers count for resources without them": {pod(func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse("1Gi")
		}), 500, 1 << 30, 500, 1 << 30},
		"the overhead comes on top": {pod(func(p *corev1.Pod) { p.Spec.Overhead = cpu("50m") }), 550, 0, 550, 2 * defaultMemory},
		"a larger allocation counts until the node has resized the pod": {pod(func(p *corev1.Pod) {
			p.Status.Resources, p.Status.AllocatedResources = &corev1.ResourceRequirements{Requests: cpu("800m")}, cpu("700m")
		}), 800, 0, 800, 2 * defaultMemory},
		"a resize that cannot be carried out does not count": {pod(func(p *corev1.Pod) {
			p.Status.Resources, p.Status.AllocatedResources = &corev1.ResourceRequirements{Requests: cpu("300m")}, cpu("300m")
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible}}
		}), 300, 0, 300, 2 * defaultMemory},
	} {
		t.Run(name, func(t *testing.T) {
			p := NewPodInfo(tc.pod)
			if p.Requests.MilliCPU != tc.cpu || p.Requests.Memory != tc.memory {
				t.Errorf("the pod requests %+v", p.Requests)
			}
			if p.Scored.MilliCPU != tc.scored || p.Scored.Memory != tc.scoredMemory {
				t.Errorf("the pod scores with %+v", p.Scored)
			}
		})
	}
}
