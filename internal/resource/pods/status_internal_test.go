package pods

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/resourcetest"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func TestStatusesOfManyContainersAreNotComparedEachWithEach(t *testing.T) {
	containers := resourcetest.Numbered(func(i int) corev1.Container { return corev1.Container{Name: resourcetest.Text(i)} })
	statuses := resourcetest.Numbered(func(i int) corev1.ContainerStatus {
		s := corev1.ContainerStatus{Name: resourcetest.Text(i), AllocatedResourcesStatus: []corev1.ResourceStatus{{Name: "claim:b"}}}
		return s
	})
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: containers}, Status: corev1.PodStatus{ContainerStatuses: statuses}}
	p.Spec.Containers[resourcetest.LongList-1].Resources.Claims = []corev1.ResourceClaim{{Name: "b"}}
	// Only the last status has the claim.
	if errs := validateContainerStatuses(p, field.NewPath("status")); len(errs) != resourcetest.LongList-1 {
		t.Errorf("%d errors of statuses, want %d", len(errs), resourcetest.LongList-1)
	}
	many := corev1.ResourceRequirements{Claims: resourcetest.Numbered(func(i int) corev1.ResourceClaim {
		return corev1.ResourceClaim{Name: resourcetest.Text(i), Request: "r"}
	})}
	devices := resourcetest.Numbered(func(i int) corev1.ResourceStatus {
		return corev1.ResourceStatus{Name: corev1.ResourceName("claim:" + resourcetest.Text(i) + []string{"", "/r", "/s"}[i%3])}
	})
	if errs := validateDeviceHealth(devices, &many, field.NewPath("x")); len(errs) != resourcetest.LongList/3 {
		t.Errorf("%d errors of devices, want %d", len(errs), resourcetest.LongList/3)
	}
	ended := resourcetest.Numbered(func(i int) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: resourcetest.Text(i), State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}}
	})
	never := &corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever}
	if errs := validateTransitions(statuses[1:], ended, never, containers, field.NewPath("x")); len(errs) != validate.MaxRepeated {
		t.Errorf("%d errors of %d", len(errs), resourcetest.LongList-1)
	}
	if errs := validateTransitions(ended, ended, never, containers, field.NewPath("x")); len(errs) != 0 {
		t.Error(errs)
	}
	together := never.DeepCopy()
	together.InitContainers = []corev1.Container{{RestartPolicyRules: []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestartAllContainers}}}}
	if errs := validateTransitions(statuses[1:], ended, together, containers, field.NewPath("x")); len(errs) != 0 {
		t.Error("containers of a pod that restarts them together may not begin again:", errs)
	}
	// All have the same name: every pair of an old and a new status is an illegal transition.
	for i := range ended {
		ended[i].Name, statuses[i].Name = "a", "a"
	}
	if errs := validateTransitions(statuses, ended, never, containers, field.NewPath("x")); len(errs) != validate.MaxRepeated {
		t.Errorf("%d errors of %d times %d", len(errs), resourcetest.LongList, resourcetest.LongList)
	}
}

func TestOnlyPodsWithoutANodeGetANominatedNode(t *testing.T) {
	s := Strategy()
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
		{"a pod on the nominated node", pod("a", ""), pod("a", "a"), true},
		{"a bound pod that was nominated before", pod("a", "b"), pod("a", "b"), false},
		{"a removed nomination", pod("a", "b"), pod("a", ""), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if errs := s.ValidateStatus(c.new, c.old); (len(errs) > 0) != c.refused {
				t.Errorf("%v", errs)
			}
		})
	}
}

func TestAGatedPodHasItsConditionFromItsCreation(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: "a/b"}}}}
	pod.CreationTimestamp = resourcetest.Now
	Strategy().PrepareCreate(pod)
	if c := pod.Status.Conditions; len(c) != 1 || c[0].LastTransitionTime != resourcetest.Now {
		t.Errorf("conditions: %+v", c)
	}
}
