package worker

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// resizeState is where an in-place resize of the pod is.
type resizeState struct {
	pending    *corev1.PodCondition
	inProgress *corev1.PodCondition
}

func (w *Worker) specChanged(*corev1.Pod) {}

func (w *Worker) resizeStep(context.Context, *plan) {}

func (w *Worker) resizeConditions() []corev1.PodCondition {
	var out []corev1.PodCondition
	if w.resize.pending != nil {
		out = append(out, *w.resize.pending)
	}
	if w.resize.inProgress != nil {
		out = append(out, *w.resize.inProgress)
	}
	return out
}
