package resource

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestANodeIsNominatedForPodsThatHaveNone(t *testing.T) {
	s := podStrategy()
	pod := func(node, nominated string) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{NominatedNodeName: nominated}}
	}
	for _, c := range []struct {
		name     string
		old, new *corev1.Pod
		refused  bool
	}{
		{"a pod without a node", pod("", ""), pod("", "a"), false},
		{"a pod with a node", pod("a", ""), pod("a", "b"), true},
		{"a pod with that very node", pod("a", ""), pod("a", "a"), true},
		{"a pod that was nominated before it had its node", pod("a", "b"), pod("a", "b"), false},
		{"a pod whose nomination ends", pod("a", "b"), pod("a", ""), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if errs := s.ValidateStatus(c.new, c.old); (len(errs) > 0) != c.refused {
				t.Errorf("%v", errs)
			}
		})
	}
}

func TestAGatedPodHasBeenGatedSinceItIsThere(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: "a/b"}}}}
	pod.CreationTimestamp = now
	podStrategy().PrepareCreate(pod)
	if c := pod.Status.Conditions; len(c) != 1 || c[0].LastTransitionTime != now {
		t.Errorf("conditions: %+v", c)
	}
}
