package worker

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/kubelet/images"
	"github.com/knarr-project/knarr/internal/kubelet/logs"
	"github.com/knarr-project/knarr/internal/kubelet/pleg"
	"github.com/knarr-project/knarr/internal/kubelet/probe"
	"github.com/knarr-project/knarr/internal/kubelet/spec"
	"github.com/knarr-project/knarr/internal/volume"
)

// reference refers to the pod, or to one of its containers.
func reference(pod *corev1.Pod, container, field string) *corev1.ObjectReference {
	r := &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
	}
	if container != "" {
		r.FieldPath = fmt.Sprintf("spec.%s{%s}", field, container)
	}
	return r
}

func (w *Worker) event(eventType, reason, action, note string, args ...any) {
	w.Events.Eventf(reference(w.eventPod(), "", ""), nil, eventType, reason, action, note, args...)
}

// eventPod is safe to call from actions: it does not touch the goroutine's fields.
func (w *Worker) eventPod() *corev1.Pod {
	w.viewMu.RLock()
	defer w.viewMu.RUnlock()
	return w.view.Pod
}

func (w *Worker) containerEvent(c *corev1.Container, eventType, reason, action, note string, args ...any) {
	pod := w.eventPod()
	field := "containers"
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == c.Name {
			field = "initContainers"
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == c.Name {
			field = "ephemeralContainers"
		}
	}
	w.Events.Eventf(reference(pod, c.Name, field), nil, eventType, reason, action, note, args...)
}

func (w *Worker) containerEvents(c *corev1.Container) images.Eventf {
	return func(eventType, reason, note string, args ...any) {
		w.containerEvent(c, eventType, reason, "Pulling", note, args...)
	}
}

// recordBackOffs records an event for each end of a container after which the restart has to wait.
func (w *Worker) recordBackOffs(next *plan) {
	each(w.pod, func(c *corev1.Container, _ containerKind) {
		if state, waits := next.waiting[c.Name]; waits && state.Reason == reasonCrashLoop && w.plan.waiting[c.Name] != state {
			w.containerEvent(c, corev1.EventTypeWarning, "BackOff", "Restarting", "Back-off restarting failed container %s in pod %s", c.Name, spec.FullName(w.pod))
		}
	})
}

// unhealthy records an event for a failed probe.
func (w *Worker) unhealthy(t probe.Target, kind probe.Kind, r probe.Result, output string) {
	switch r {
	case probe.Failure:
		w.containerEvent(t.Container, corev1.EventTypeWarning, "Unhealthy", "Probing", "%s probe failed: %s", kind, output)
	case probe.Warning:
		w.containerEvent(t.Container, corev1.EventTypeWarning, "ProbeWarning", "Probing", "%s probe warning: %s", kind, output)
	default:
		w.containerEvent(t.Container, corev1.EventTypeWarning, "Unhealthy", "Probing", "%s probe errored and resulted in %s state: %s", kind, r, output)
	}
}

// subPath returns a function that prepares sub paths for one container.
func (w *Worker) subPath(container string) func(context.Context, int, corev1.VolumeMount, volume.MountPoint, string) (string, error) {
	dir := w.dir()
	return func(ctx context.Context, index int, mount corev1.VolumeMount, from volume.MountPoint, subPath string) (string, error) {
		s, ok := w.Volumes.(SubPaths)
		if !ok {
			return "", fmt.Errorf("sub paths are not supported by this node's volumes")
		}
		return s.SubPath(ctx, dir, mount, container, index, from, subPath)
	}
}

// removeLogs removes a dead container's log, its rotated parts and its link.
func (w *Worker) removeLogs(pod *corev1.Pod, c *pleg.Container) {
	if c.LogPath == "" {
		return
	}
	parts, _ := logs.Parts(c.LogPath)
	for _, p := range append(parts, c.LogPath) {
		_ = os.Remove(p)
	}
	// Housekeeping tries again.
	_ = w.Logs.Unlink(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, c.Name(), c.Id)
}
