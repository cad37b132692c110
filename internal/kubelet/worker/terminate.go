package worker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/failpoint"
	"github.com/knarr-project/knarr/internal/insight/because"
	"github.com/knarr-project/knarr/internal/insight/spans"
	"github.com/knarr-project/knarr/internal/kubelet/pleg"
	"github.com/knarr-project/knarr/internal/kubelet/spec"
)

// minimumGrace is the minimum time that a container gets after its preStop hook.
const minimumGrace = 2 * time.Second

// ending is the state of a pod's termination.
type ending struct {
	since    time.Time
	deadline time.Time
	// limit is a deadline that was set while the pod was ending; zero means none.
	limit time.Time
	// turns delay the stop signal of a sidecar until the containers that depend on it have ended.
	turns map[string]chan struct{}
}

// grace is the grace period of the pod's containers, in seconds.
func (w *Worker) grace() int64 {
	g := int64(30)
	if s := w.pod.Spec.TerminationGracePeriodSeconds; s != nil {
		g = *s
	}
	if d := w.pod.DeletionGracePeriodSeconds; d != nil && w.pod.DeletionTimestamp != nil {
		g = *d
	}
	if w.removed && w.pod.DeletionTimestamp == nil {
		g = min(g, 30)
	}
	if w.failure != nil && w.failure.Grace != nil {
		g = min(g, *w.failure.Grace)
	}
	return max(g, 1)
}

// containerDeadline is the deadline for a container that is stopped while its pod keeps running.
func (w *Worker) containerDeadline(override *int64) time.Time {
	g := int64(30)
	if s := w.pod.Spec.TerminationGracePeriodSeconds; s != nil {
		g = *s
	}
	if override != nil {
		g = *override
	}
	return w.Now().Add(time.Duration(g) * time.Second)
}

// terminate is the step of a pod that must end. It stops all containers, the sidecars last.
func (w *Worker) terminate(ctx context.Context) time.Time {
	now := w.Now()
	if w.ending.since.IsZero() {
		w.ending = ending{since: now, turns: map[string]chan struct{}{}}
		w.problems = map[string]problem{}
		w.probes.StopAliveness()
		for key, t := range w.tasks {
			if isStart(key) {
				t.cancel()
			}
		}
	}
	d := w.ending.since.Add(time.Duration(w.grace()) * time.Second)
	if !w.ending.limit.IsZero() && w.ending.limit.Before(d) {
		d = w.ending.limit
	}
	if w.ending.deadline.IsZero() || d.Before(w.ending.deadline) {
		shortened := !w.ending.deadline.IsZero()
		w.ending.deadline = d
		if shortened {
			w.shortenStops(ctx)
		}
	}
	for id, c := range w.observed.Containers {
		if !c.Running() {
			w.probes.Stop(id)
		}
		if c.Running() || c.State == runtimeapi.ContainerState_CONTAINER_UNKNOWN {
			w.stop(ctx, c, "Stopping container "+c.Name(), nil, w.ending.deadline, w.turn(c))
		}
	}
	w.releaseSidecars()
	if w.observed.AnyRunning() || w.busyStarting() || w.anyTask("kill:") {
		return time.Time{}
	}
	w.stage = Terminated
	return time.Time{}
}

// isStart reports whether the end of the pod cancels the action. It does not cancel making a
// sandbox or a container: the runtime completes it, and then it is stopped.
func isStart(key string) bool {
	return key == "prepare" || len(key) > 6 && key[:6] == "image:"
}

func (w *Worker) busyStarting() bool {
	return w.anyTask("container:") || w.anyTask("image:") || w.tasks["sandbox"] != nil || w.tasks["prepare"] != nil || w.tasks["collect"] != nil
}

func (w *Worker) anyTask(prefix string) bool {
	for key := range w.tasks {
		if len(key) >= len(prefix) && key[:len(prefix)] == prefix {
			return true
		}
	}
	return false
}

// turn returns a channel that is closed when the container may get its stop signal; nil means at
// once. Only sidecars wait: for the regular containers and for later sidecars.
func (w *Worker) turn(c *pleg.Container) chan struct{} {
	container := w.container(c.Name())
	if container == nil || !spec.IsSidecar(container) || !w.isInit(c.Name()) {
		return nil
	}
	if w.ending.turns[c.Id] == nil {
		w.ending.turns[c.Id] = make(chan struct{})
	}
	return w.ending.turns[c.Id]
}

func (w *Worker) releaseSidecars() {
	running := map[string]bool{}
	for _, c := range w.observed.Containers {
		if c.Running() {
			running[c.Name()] = true
		}
	}
	blocked := false
	for i := range w.pod.Spec.Containers {
		blocked = blocked || running[w.pod.Spec.Containers[i].Name]
	}
	for i := len(w.pod.Spec.InitContainers) - 1; i >= 0; i-- {
		name := w.pod.Spec.InitContainers[i].Name
		if !running[name] {
			continue
		}
		if !blocked {
			for _, c := range w.observed.Attempts(name) {
				if t := w.ending.turns[c.Id]; t != nil {
					closeOnce(t)
				}
			}
		}
		blocked = true
	}
}

func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// shortenStops restarts the stops in flight with the earlier deadline.
func (w *Worker) shortenStops(ctx context.Context) {
	for id, c := range w.observed.Containers {
		if t := w.tasks["kill:"+id]; t != nil && c.Running() {
			t.cancel()
			delete(w.tasks, "kill:"+id)
			w.stopNow(ctx, c, w.ending.deadline, w.turn(c))
		}
	}
}

// stop runs a container's preStop hook and then stops the container, so that it has ended by the
// deadline.
func (w *Worker) stop(ctx context.Context, c *pleg.Container, message string, override *int64, deadline time.Time, turn chan struct{}) {
	key := "kill:" + c.Id
	if w.tasks[key] != nil {
		return
	}
	container := w.container(c.Name())
	ips := w.observed.Sandbox().IPs()
	if w.pod.Spec.HostNetwork {
		ips = w.Host.IPs()
	}
	pod := w.pod
	began := w.Now()
	w.run(ctx, key, func(ctx context.Context) func() {
		if container != nil {
			w.containerEvent(container, corev1.EventTypeNormal, "Killing", "Stopping", "%s", message)
		}
		// Without a grace period the hook does not run.
		if container != nil && container.Lifecycle != nil && container.Lifecycle.PreStop != nil && deadline.After(w.Now()) {
			hookCtx, cancel := context.WithDeadline(ctx, deadline)
			err := w.hook(hookCtx, pod, container, c.Id, container.Lifecycle.PreStop, ips)
			cancel()
			if err != nil && ctx.Err() == nil {
				w.containerEvent(container, corev1.EventTypeWarning, "FailedPreStopHook", "Stopping", "PreStopHook failed")
				w.log.Info("preStop hook failed", "container", container.Name, "error", err)
			}
		}
		return w.signal(ctx, pod, c, began, deadline, turn)
	})
}

// stopNow is stop without the hook, which has already run.
func (w *Worker) stopNow(ctx context.Context, c *pleg.Container, deadline time.Time, turn chan struct{}) {
	pod, began := w.pod, w.Now()
	w.run(ctx, "kill:"+c.Id, func(ctx context.Context) func() { return w.signal(ctx, pod, c, began, deadline, turn) })
}

func (w *Worker) signal(ctx context.Context, pod *corev1.Pod, c *pleg.Container, began, deadline time.Time, turn chan struct{}) func() {
	if turn != nil {
		timer := time.NewTimer(deadline.Sub(w.Now()))
		defer timer.Stop()
		select {
		case <-turn:
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
	}
	failpoint.Here("container-stop")
	left := max(deadline.Sub(w.Now()).Round(time.Second), minimumGrace)
	err := w.Runtime.StopContainer(ctx, c.Id, int64(left/time.Second))
	if ctx.Err() != nil {
		return nil
	}
	w.note(pod, spans.Stop, c.Name(), "", began, err)
	if err != nil {
		w.log.Warn("cannot stop a container", "container", c.Name(), "id", c.Id, "error", err)
		select { // the next step tries again
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	w.inspect(ctx, c.Id, c.SandboxID)
	return nil
}

// release is the step of a pod of which nothing runs. It removes the sandbox, the volumes and the
// cgroup.
func (w *Worker) release(ctx context.Context) time.Time {
	var p plan
	if w.tasks["release"] != nil || !w.due("release", &p) {
		return p.look
	}
	var sandboxes []string
	for id := range w.observed.Sandboxes {
		sandboxes = append(sandboxes, id)
	}
	pod, uid, dir := w.pod, w.pod.UID, w.dir()
	w.run(ctx, "release", func(ctx context.Context) func() {
		failpoint.Here("containers-stopped")
		unmounted := make(chan error, 1)
		releasing, began := w.Now(), time.Now()
		go func() {
			err := w.Volumes.Unmount(ctx, uid, dir)
			w.Metrics.Volumes(UnmountVolumes, pod, time.Since(began), err)
			unmounted <- err
		}()
		var errs []error
		for _, id := range sandboxes {
			if err := w.Runtime.StopPodSandbox(ctx, id); err != nil && !notFound(err) {
				errs = append(errs, err)
			}
		}
		errs = append(errs, <-unmounted, w.Devices.Release(ctx, pod))
		err := errors.Join(errs...)
		w.note(pod, spans.Release, "", "", releasing, err)
		if err != nil {
			if ctx.Err() == nil {
				w.log.Warn("cannot release all that the pod holds; trying again", "error", err)
			}
			return func() { w.retry("release") }
		}
		failpoint.Here("sandbox-stopped")
		if err := w.Cgroups.Remove(uid); err != nil {
			w.log.Warn("cannot remove the pod's cgroup", "error", err)
		}
		w.Users.Release(uid)
		return func() {
			for _, id := range sandboxes {
				w.observed.SandboxStopped(id)
			}
			w.stage = Released
		}
	})
	return time.Time{}
}

// forget is the step of a pod that holds nothing on the node. If the pod is to be deleted, it
// confirms this to the API and removes the rest from the runtime.
func (w *Worker) forget(ctx context.Context) time.Time {
	var p plan
	if w.pod.DeletionTimestamp != nil && !w.removed && !w.deleted && !w.static {
		if w.tasks["delete"] == nil && w.due("delete", &p) {
			w.confirm(ctx)
		}
		return p.look
	}
	if (w.removed || w.deleted) && w.tasks["remove"] == nil && w.due("remove", &p) {
		w.remove(ctx)
	}
	return p.look
}

// confirm writes the pod's last status and deletes it from the API.
func (w *Worker) confirm(ctx context.Context) {
	pod, last := w.pod, w.generate()
	w.run(ctx, "delete", func(ctx context.Context) func() {
		failpoint.Here("pod-delete")
		err := w.Status.Write(ctx, pod, last)
		if err == nil {
			zero := int64(0)
			err = client.Delete[*corev1.Pod](because.WithObjects(ctx, pod), w.Client, pod.Namespace, pod.Name, metav1.DeleteOptions{
				GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &pod.UID},
			})
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
				err = nil // it is gone, or another pod has its name
			}
		}
		if err != nil {
			if ctx.Err() == nil {
				w.log.Warn("cannot confirm the pod's deletion; trying again", "error", err)
			}
			return func() { w.retry("delete") }
		}
		return func() { w.deleted = true }
	})
}

// remove removes dead containers, sandboxes, logs and the pod's folder.
func (w *Worker) remove(ctx context.Context) {
	var sandboxes, containers []string
	for id := range w.observed.Sandboxes {
		sandboxes = append(sandboxes, id)
	}
	for id := range w.observed.Containers {
		containers = append(containers, id)
	}
	dir, pod := w.dir(), w.pod
	w.run(ctx, "remove", func(ctx context.Context) func() {
		failpoint.Here("pod-deleted")
		var errs []error
		for _, id := range containers {
			if err := w.Runtime.RemoveContainer(ctx, id); err != nil && !notFound(err) {
				errs = append(errs, err)
			}
		}
		for _, id := range sandboxes {
			if err := w.Runtime.RemovePodSandbox(ctx, id); err != nil && !notFound(err) {
				errs = append(errs, err)
			}
		}
		failpoint.Here("sandbox-removed")
		// The pod's folder shows that the logs are ours, so they go first.
		if err := w.Logs.Remove(pod); err != nil {
			errs = append(errs, err)
		} else {
			errs = append(errs, removePodDir(dir))
		}
		if err := errors.Join(errs...); err != nil {
			if ctx.Err() == nil {
				w.log.Warn("cannot remove all of the pod; trying again", "error", err)
			}
			return func() { w.retry("remove") }
		}
		return func() { w.stage = Gone }
	})
}

// removePodDir removes the pod's folder, but nothing that is still mounted below its volumes.
func removePodDir(dir string) error {
	for _, sub := range []string{"containers", "etc-hosts", "volumes", "volume-subpaths", "volumeDevices", "plugins"} {
		path := filepath.Join(dir, sub)
		if sub != "containers" && sub != "etc-hosts" {
			if err := removeEmpty(path); err != nil {
				return err
			}
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	err := os.Remove(dir)
	if os.IsNotExist(err) {
		return nil
	}
	return err
}

// removeEmpty removes a tree of empty folders.
func removeEmpty(path string) error {
	entries, err := os.ReadDir(path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeEmpty(filepath.Join(path, e.Name())); err != nil {
				return err
			}
		}
	}
	return os.Remove(path)
}
