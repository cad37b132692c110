package plugins

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// schedulingGates keeps pods with scheduling gates out of the active queue (KEP-3521).
type schedulingGates struct{ plugin }

func (schedulingGates) PreEnqueue(_ context.Context, pod *corev1.Pod) *framework.Status {
	if len(pod.Spec.SchedulingGates) == 0 {
		return nil
	}
	names := make([]string, len(pod.Spec.SchedulingGates))
	for i, g := range pod.Spec.SchedulingGates {
		names[i] = g.Name
	}
	return framework.RefuseAlways(fmt.Sprintf("waiting for scheduling gates: %v", names))
}

func (schedulingGates) RequeueOn() framework.Events { return framework.SelfChanged }

// prioritySort puts pods of higher priority first, and older ones first among equals.
type prioritySort struct{ plugin }

func (prioritySort) Less(a, b *framework.QueuedPod) bool {
	if pa, pb := priority(a.Pod.Pod), priority(b.Pod.Pod); pa != pb {
		return pa > pb
	}
	return a.Since.Before(b.Since)
}

func priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority != nil {
		return *pod.Spec.Priority
	}
	return 0
}
