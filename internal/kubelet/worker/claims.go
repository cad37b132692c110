package worker

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// devicesReady gives the pod its devices. running means that the pod had containers before, so that
// it is not refused for a device that is gone meanwhile.
func (w *Worker) devicesReady(ctx context.Context, pod *corev1.Pod, running bool) bool {
	if err := w.Devices.Allocate(ctx, pod); err != nil && ctx.Err() == nil {
		if !running {
			w.refuse(err)
			return false
		}
		w.log.Warn("cannot allocate devices of a pod that runs; its containers do not start again without them", "error", err)
	}
	err := w.Devices.Prepare(ctx, pod)
	if err != nil && ctx.Err() == nil {
		w.event(corev1.EventTypeWarning, "FailedPrepareDynamicResources", "Preparing", "Failed to prepare dynamic resources: %v", err)
	}
	return err == nil
}

// refuse ends a pod that cannot get its devices.
func (w *Worker) refuse(err error) {
	const reason = "UnexpectedAdmissionError"
	message := fmt.Sprintf("Allocate failed due to %v, which is unexpected", err)
	w.event(corev1.EventTypeWarning, reason, "Admitting", "%s", message)
	w.Fail(Failure{Cause: "Admission", Reason: reason, Message: "Pod was rejected: " + message})
}
