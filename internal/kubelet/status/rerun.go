package status

import (
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ReasonContainerExited is the reason of the condition AllContainersRestarting (KEP-5532).
const ReasonContainerExited = "ContainerExited"

// Rerun reports whether a restart of all containers removed this container, so that it must run
// again whatever its restart policy says. before is the pod's published status. The runtime must
// not have the container any more.
//
// The condition AllContainersRestarting is true until the containers are removed. Its last
// transition is the time of the removal; a container that ended until then is due again.
func Rerun(before *corev1.PodStatus, name string) bool {
	var restart *corev1.PodCondition
	for i := range before.Conditions {
		if before.Conditions[i].Type == corev1.AllContainersRestarting {
			restart = &before.Conditions[i]
		}
	}
	if restart == nil {
		return false
	}
	for _, list := range [][]corev1.ContainerStatus{before.InitContainerStatuses, before.ContainerStatuses} {
		st := old(list, name)
		if st == nil {
			continue
		}
		end := st.State.Terminated
		if end == nil && st.State.Waiting != nil {
			end = st.LastTerminationState.Terminated
		}
		return end != nil && (restart.Status == corev1.ConditionTrue || !end.FinishedAt.After(restart.LastTransitionTime.Time))
	}
	return false
}

// restartCondition returns the condition AllContainersRestarting, or nil if the pod's containers
// were never restarted together.
func (in *Input) restartCondition() *corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.AllContainersRestarting, Status: corev1.ConditionTrue, Reason: ReasonContainerExited, Message: in.RestartingAll}
	if in.RestartingAll != "" {
		return &c
	}
	for i := range in.Old.Conditions {
		if o := in.Old.Conditions[i]; o.Type == corev1.AllContainersRestarting {
			c.Status, c.Message = corev1.ConditionFalse, o.Message
			return &c
		}
	}
	return nil
}

// reruns reports whether a regular container has still to run after a restart of all containers.
func (in *Input) reruns() bool {
	for i := range in.Pod.Spec.Containers {
		name := in.Pod.Spec.Containers[i].Name
		l := in.Observed.Latest(name)
		if (l == nil || l.State == runtimeapi.ContainerState_CONTAINER_CREATED) && Rerun(in.Old, name) {
			return true
		}
	}
	return false
}
