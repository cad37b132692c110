package worker

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/kubelet/pleg"
)

// startError is the reason that containerd gives a container that it could not start.
const startError = "StartError"

// adoptStarts finds containers whose start ended with the node agent that asked for it: the runtime
// gives up a start when its caller is gone. Such an end says nothing about the container, and must
// not fail a pod that never restarts. A start that failed by itself fails again.
func (w *Worker) adoptStarts() {
	for id, c := range w.observed.Containers {
		if c.Exited() && c.Reason == startError && !w.reported(id) {
			w.observed.Remove(id, w.Now())
			w.interrupted = append(w.interrupted, c)
		}
	}
}

// reported reports whether the API's status has the end of a container.
func (w *Worker) reported(id string) bool {
	for _, list := range [][]corev1.ContainerStatus{w.old.InitContainerStatuses, w.old.ContainerStatuses, w.old.EphemeralContainerStatuses} {
		for i := range list {
			for _, state := range []corev1.ContainerState{list[i].State, list[i].LastTerminationState} {
				if state.Terminated != nil && strings.HasSuffix(state.Terminated.ContainerID, "://"+id) {
					return true
				}
			}
		}
	}
	return false
}

// removeInterrupted removes the containers that adoptStarts found. Until then, their successors do
// not start.
func (w *Worker) removeInterrupted(ctx context.Context) {
	found := w.interrupted
	w.interrupted = nil
	for _, c := range found {
		w.log.Info("the start of a container was interrupted; starting it again", "container", c.Name(), "id", c.Id)
		w.run(ctx, "container:"+c.Name(), func(ctx context.Context) func() {
			w.removeContainer(ctx, c)
			return nil
		})
	}
}

// removeContainer removes a container from the runtime, and tries again until that works.
func (w *Worker) removeContainer(ctx context.Context, c *pleg.Container) {
	for ctx.Err() == nil {
		err := w.Runtime.RemoveContainer(ctx, c.Id)
		if err == nil || notFound(err) {
			return
		}
		w.log.Warn("cannot remove a container whose start was interrupted; trying again", "container", c.Name(), "id", c.Id, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}
