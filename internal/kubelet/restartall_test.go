package kubelet

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// restartsAllOn42 makes the container restart all containers when it ends with exit code 42.
func restartsAllOn42(c *corev1.Container) {
	c.RestartPolicyRules = []corev1.ContainerRestartRule{{
		Action:    corev1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
	}}
}

func restartCounts(p *corev1.Pod) map[string]int32 {
	counts := map[string]int32{}
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, s := range list {
			counts[s.Name] = s.RestartCount
		}
	}
	return counts
}

func TestAnExitCodeRestartsAllContainersOfThePod(t *testing.T) {
	b := newBench(t, exits(map[string]int32{"first": 0}))
	always, never := corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever
	b.create(pod("one", func(p *corev1.Pod) {
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		p.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "image"}, {Name: "sidecar", Image: "image", RestartPolicy: &always}}
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "source", Image: "image", RestartPolicy: &never})
		restartsAllOn42(&p.Spec.Containers[1])
	}))
	for round := int32(0); round < 2; round++ {
		p := b.await("one", "ready", func(p *corev1.Pod) bool { return ready(p) && restartCounts(p)["source"] == round })
		if counts := restartCounts(p); counts["first"] != round || counts["sidecar"] != round || counts["main"] != round {
			t.Fatalf("restart counts in round %d: %v", round, counts)
		}
		if round == 1 {
			c := condition(p, corev1.AllContainersRestarting)
			if c == nil || c.Status != corev1.ConditionFalse || c.Message != "Container source exited with code 42, restarting all containers" {
				t.Errorf("condition: %+v", c)
			}
			for _, s := range append(p.Status.ContainerStatuses, p.Status.InitContainerStatuses...) {
				if s.LastTerminationState.Terminated == nil {
					t.Errorf("container %s has no last state", s.Name)
				}
			}
			if p.Status.Phase != corev1.PodRunning {
				t.Errorf("phase %s", p.Status.Phase)
			}
			break
		}
		b.cri.ExitName("source", 42)
	}
}
