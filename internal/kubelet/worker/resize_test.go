package worker

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func requirements(cpuRequest, cpuLimit, memory string) corev1.ResourceRequirements {
	r := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	for _, set := range []struct {
		list  corev1.ResourceList
		name  corev1.ResourceName
		value string
	}{{r.Requests, corev1.ResourceCPU, cpuRequest}, {r.Limits, corev1.ResourceCPU, cpuLimit}, {r.Requests, corev1.ResourceMemory, memory}} {
		if set.value != "" {
			set.list[set.name] = resource.MustParse(set.value)
		}
	}
	return r
}

func TestAResizeRestartsTheContainerWhereItsPolicySaysSo(t *testing.T) {
	restart := func(name corev1.ResourceName) corev1.ContainerResizePolicy {
		return corev1.ContainerResizePolicy{ResourceName: name, RestartPolicy: corev1.RestartContainer}
	}
	keep := corev1.ContainerResizePolicy{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.NotRequired}
	have := requirements("1", "2", "1Gi")
	for name, tc := range map[string]struct {
		want     corev1.ResourceRequirements
		policies []corev1.ContainerResizePolicy
		restarts bool
	}{
		"no policy does not restart":                       {requirements("2", "3", "2Gi"), nil, false},
		"NotRequired does not restart":                     {requirements("2", "3", "1Gi"), []corev1.ContainerResizePolicy{keep}, false},
		"a changed request restarts":                       {requirements("2", "2", "1Gi"), []corev1.ContainerResizePolicy{restart("cpu")}, true},
		"a changed limit restarts":                         {requirements("1", "3", "1Gi"), []corev1.ContainerResizePolicy{restart("cpu")}, true},
		"a removed limit restarts":                         {requirements("1", "", "1Gi"), []corev1.ContainerResizePolicy{restart("cpu")}, true},
		"a change of another resource does not restart":    {requirements("1", "2", "2Gi"), []corev1.ContainerResizePolicy{restart("cpu")}, false},
		"the same amount in another unit does not restart": {requirements("1000m", "2", "1024Mi"), []corev1.ContainerResizePolicy{restart("cpu"), restart("memory")}, false},
		"any of several policies restarts":                 {requirements("2", "2", "2Gi"), []corev1.ContainerResizePolicy{keep, restart("memory")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := &corev1.Container{Resources: tc.want, ResizePolicy: tc.policies}
			if got := restartsOn(c, &have); got != tc.restarts {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestAPodKeepsItsAllocatedResourcesUntilAResizeIsGranted(t *testing.T) {
	pod := func(memory string) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "init", Resources: requirements("", "", memory)}},
			Containers:     []corev1.Container{{Name: "main", Image: memory, Resources: requirements("", "", memory)}},
		}}
	}
	before, after := pod("1Gi"), pod("2Gi")
	if sameResources(before, after) {
		t.Error("pods with different resources count as the same")
	}
	kept := withResources(after, before)
	if !sameResources(before, kept) {
		t.Errorf("the pod did not keep its resources: %v", kept.Spec)
	}
	if kept.Spec.Containers[0].Image != "2Gi" {
		t.Error("the pod lost the rest of its new spec")
	}
	if sameResources(after, before) || after.Spec.Containers[0].Resources.Requests.Memory().String() != "2Gi" {
		t.Error("the desired pod was changed")
	}
}
