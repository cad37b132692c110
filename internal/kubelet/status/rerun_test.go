package status

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/knarr-project/knarr/internal/kubelet/pleg"
)

// The pod must not fail while the containers of a restart exist but do not run yet.
func TestAPodWhoseContainersAreMadeAgainDoesNotFail(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, FinishedAt: metav1.NewTime(now)}}
	pod := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever}}
	old := &corev1.PodStatus{
		Phase:      corev1.PodPending,
		Conditions: []corev1.PodCondition{{Type: corev1.AllContainersRestarting, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(now)}},
	}
	for _, name := range []string{"a", "b"} {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name})
		old.ContainerStatuses = append(old.ContainerStatuses, corev1.ContainerStatus{
			Name: name, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}, LastTerminationState: ended})
	}
	for _, c := range []struct {
		name string
		a, b *runtimeapi.ContainerState
		want corev1.PodPhase
	}{
		{"none is made", nil, nil, corev1.PodPending},
		{"one is made", state(runtimeapi.ContainerState_CONTAINER_CREATED), nil, corev1.PodPending},
		{"both are made", state(runtimeapi.ContainerState_CONTAINER_CREATED), state(runtimeapi.ContainerState_CONTAINER_CREATED), corev1.PodPending},
		{"both have failed", state(runtimeapi.ContainerState_CONTAINER_EXITED), state(runtimeapi.ContainerState_CONTAINER_EXITED), corev1.PodFailed},
	} {
		in := &Input{Pod: pod, Old: old, Observed: pleg.NewObserved(), Now: now}
		for name, s := range map[string]*runtimeapi.ContainerState{"a": c.a, "b": c.b} {
			if s != nil {
				in.Observed.MergeContainer(&runtimeapi.ContainerStatus{Id: name, Metadata: &runtimeapi.ContainerMetadata{Name: name}, State: *s, CreatedAt: now.UnixNano()}, "sandbox", now)
			}
		}
		if got := in.phase(old.DeepCopy()); got != c.want {
			t.Errorf("%s: the pod is %s, want %s", c.name, got, c.want)
		}
	}
}

func state(s runtimeapi.ContainerState) *runtimeapi.ContainerState { return &s }
