package worker

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/knarr-project/knarr/internal/kubelet/pleg"
	"github.com/knarr-project/knarr/internal/kubelet/spec"
)

// Restart of all containers (KEP-5532). A container that ends with an exit code of a rule with the
// action RestartAllContainers begins it. First all containers but ephemeral ones are stopped, in no
// order and without grace, and removed from the runtime. Meanwhile the condition
// AllContainersRestarting is true. Then the pod starts as a new one, in the same sandbox with the
// same volumes. A restart of the node agent continues by the condition.

// restartAll is the state of such a restart; message is "" if there is none.
type restartAll struct {
	// message is for the condition.
	message string
	// after is the end of the back-off.
	after time.Time
}

// adoptRestart continues a restart that an earlier process began.
func (w *Worker) adoptRestart() {
	for i := range w.old.Conditions {
		if c := &w.old.Conditions[i]; c.Type == corev1.AllContainersRestarting && c.Status == corev1.ConditionTrue {
			w.restartAll.message = c.Message
			if c.Message == "" {
				w.restartAll.message = "A container exited, restarting all containers"
			}
		}
	}
}

// restartAllStep begins and advances a restart of all containers. While it is busy, nothing starts.
func (w *Worker) restartAllStep(ctx context.Context) (look time.Time, busy bool) {
	if w.restartAll.message == "" && !w.beginRestartAll() {
		return time.Time{}, false
	}
	containers := w.restartable()
	stopping := false
	for _, c := range containers {
		if !c.Exited() {
			stopping = true
			w.kill(ctx, c)
		}
	}
	switch {
	case stopping || w.anyTask("container:") || w.anyTask("kill:") || w.tasks["restartall"] != nil:
		return time.Time{}, true
	case !w.endsPublished(containers):
		return w.Now().Add(time.Millisecond), true // this step publishes them
	case w.Now().Before(w.restartAll.after):
		return w.restartAll.after, true
	}
	var p plan
	if !w.due("restartall", &p) {
		return p.look, true
	}
	if len(containers) == 0 {
		w.restartAll = restartAll{}
		return w.Now().Add(time.Millisecond), true // the condition first
	}
	w.removeAll(ctx, containers)
	return time.Time{}, true
}

// beginRestartAll looks for a container whose end restarts all containers.
func (w *Worker) beginRestartAll() bool {
	sandbox := w.observed.Sandbox()
	each(w.pod, func(c *corev1.Container, kind containerKind) {
		l := w.observed.Latest(c.Name)
		if kind == ephemeralContainer || w.restartAll.message != "" || !l.Exited() || !spec.RestartsAll(c, l.ExitCode) || !sandbox.Ready() {
			return
		}
		crash := w.crashes[c.Name]
		w.restartAll = restartAll{
			message: fmt.Sprintf("Container %s exited with code %d, restarting all containers", c.Name, l.ExitCode),
			after:   l.FinishedTime().Add(crash.wait),
		}
		w.crashes[c.Name] = crash.next(w.Now(), l.FinishedTime(), cmp.Or(w.CrashMax, crashBackoffMax))
		w.log.Info("restarting all containers", "container", c.Name, "exitCode", l.ExitCode)
	})
	return w.restartAll.message != ""
}

// restartable lists the runtime's init containers and regular containers of the pod.
func (w *Worker) restartable() []*pleg.Container {
	var out []*pleg.Container
	each(w.pod, func(c *corev1.Container, kind containerKind) {
		if kind != ephemeralContainer {
			out = append(out, w.observed.Attempts(c.Name)...)
		}
	})
	return out
}

// kill ends a container at once, without its preStop hook.
func (w *Worker) kill(ctx context.Context, c *pleg.Container) {
	key := "kill:" + c.Id
	if w.tasks[key] != nil || w.tasks["container:"+c.Name()] != nil {
		return
	}
	w.probes.Stop(c.Id)
	container := w.container(c.Name())
	w.run(ctx, key, func(ctx context.Context) func() {
		if container != nil && c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			w.containerEvent(container, corev1.EventTypeNormal, "Killing", "Stopping", "Container %s will be restarted with all containers of the pod", container.Name)
		}
		err := w.Runtime.StopContainer(ctx, c.Id, 0)
		if err != nil && ctx.Err() == nil {
			w.log.Warn("cannot stop a container", "container", c.Name(), "id", c.Id, "error", err)
			select { // the next step tries again
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
		w.inspect(ctx, c.Id, c.SandboxID)
		if c.State == runtimeapi.ContainerState_CONTAINER_CREATED && err == nil {
			// A container that never ran has no end; it only has to go.
			if err := w.Runtime.RemoveContainer(ctx, c.Id); err == nil {
				return func() { w.observed.Remove(c.Id, w.Now()) }
			}
		}
		return nil
	})
}

// endsPublished reports whether the published status has the end of each name's newest container.
// After the removal, nothing else has it.
func (w *Worker) endsPublished(containers []*pleg.Container) bool {
	ends := map[string]bool{}
	for _, list := range [][]corev1.ContainerStatus{w.old.InitContainerStatuses, w.old.ContainerStatuses} {
		for i := range list {
			if list[i].State.Terminated != nil || list[i].LastTerminationState.Terminated != nil {
				ends[list[i].ContainerID] = true
			}
		}
	}
	for _, c := range containers {
		if w.observed.Latest(c.Name()).Id == c.Id && !ends[w.RuntimeName+"://"+c.Id] {
			return false
		}
	}
	return true
}

// removeAll removes the ended containers from the runtime.
func (w *Worker) removeAll(ctx context.Context, containers []*pleg.Container) {
	pod := w.pod
	w.run(ctx, "restartall", func(ctx context.Context) func() {
		var gone []string
		for _, c := range containers {
			if err := w.Runtime.RemoveContainer(ctx, c.Id); err != nil && !notFound(err) {
				w.log.Warn("cannot remove a container before its restart", "container", c.Name(), "error", err)
				break
			}
			w.removeLogs(pod, c)
			gone = append(gone, c.Id)
		}
		return func() {
			for _, id := range gone {
				w.observed.Remove(id, w.Now())
				delete(w.messages, id)
				delete(w.resources, id)
				delete(w.effective, id)
			}
			for name := range w.problems {
				if !strings.HasPrefix(w.problems[name].reason, "Image") {
					delete(w.problems, name)
				}
			}
			if len(gone) < len(containers) {
				w.retry("restartall")
				return
			}
			delete(w.podProblem, "restartall")
		}
	})
}
