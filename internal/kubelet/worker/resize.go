package worker

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/knarr-project/knarr/internal/kubelet/pleg"
	"github.com/knarr-project/knarr/internal/kubelet/spec"
)

// In-place resize (KEP-1287). The API's version of the pod has the desired resources. w.pod is that
// version with the allocated resources: those that the node has granted. w.resources has the actual
// resources of running containers.

// deferredRetry is the interval between tries of a resize for which the node lacks room.
const deferredRetry = 3 * time.Second

// resizeState is the state of a pod's in-place resize.
type resizeState struct {
	// desired is the API's version of the pod while it requests resources that are not allocated;
	// nil if nothing is pending.
	desired    *corev1.Pod
	pending    *corev1.PodCondition
	inProgress *corev1.PodCondition
	// reported is the generation for which an event was recorded.
	reported int64
}

// specChanged handles a newer version of the pod: the node allocates the new resources, or the pod
// keeps its old ones.
func (w *Worker) specChanged(before *corev1.Pod) {
	if sameResources(before, w.pod) {
		w.resize.desired, w.resize.pending = nil, nil
		return
	}
	if w.stage > Syncing {
		return
	}
	w.resize.desired = w.pod
	w.pod = withResources(w.pod, before)
	w.allocate()
}

// allocate asks the node for the desired resources.
func (w *Worker) allocate() {
	if w.resize.desired == nil {
		return
	}
	want := w.resize.desired
	reason, message := "", ""
	if w.Fits != nil {
		reason, message = w.Fits(want)
	}
	if reason == "" {
		w.pod = want
		w.resize.desired, w.resize.pending = nil, nil
		if w.Admitted != nil {
			w.Admitted(want)
		}
		w.resize.inProgress = w.condition(corev1.PodResizeInProgress, "", "")
		return
	}
	w.resize.pending = w.condition(corev1.PodResizePending, reason, message)
	if w.resize.reported != want.Generation {
		w.resize.reported = want.Generation
		w.event(corev1.EventTypeWarning, "Resize"+reason, "Resizing", "%s", message)
	}
}

func (w *Worker) condition(t corev1.PodConditionType, reason, message string) *corev1.PodCondition {
	return &corev1.PodCondition{Type: t, Status: corev1.ConditionTrue, Reason: reason, Message: message}
}

// withResources returns pod with the resources of from.
func withResources(pod, from *corev1.Pod) *corev1.Pod {
	out := pod.DeepCopy()
	set := func(list []corev1.Container, have []corev1.Container) {
		for i := range list {
			for j := range have {
				if list[i].Name == have[j].Name {
					list[i].Resources = *have[j].Resources.DeepCopy()
				}
			}
		}
	}
	set(out.Spec.Containers, from.Spec.Containers)
	set(out.Spec.InitContainers, from.Spec.InitContainers)
	out.Spec.Resources = from.Spec.Resources.DeepCopy()
	return out
}

func sameResources(a, b *corev1.Pod) bool {
	same := func(x, y []corev1.Container) bool {
		for i := range x {
			if i < len(y) && !equality.Semantic.DeepEqual(x[i].Resources, y[i].Resources) {
				return false
			}
		}
		return true
	}
	return same(a.Spec.Containers, b.Spec.Containers) && same(a.Spec.InitContainers, b.Spec.InitContainers) &&
		equality.Semantic.DeepEqual(a.Spec.Resources, b.Spec.Resources)
}

// resizeStep updates running containers to their allocated resources.
func (w *Worker) resizeStep(ctx context.Context, p *plan) {
	if w.resize.desired != nil && w.resize.pending != nil && w.resize.pending.Reason == corev1.PodReasonDeferred {
		w.allocate() // another pod may have ended meanwhile
		if w.resize.pending != nil {
			p.lookAt(w.Now().Add(deferredRetry))
		}
	}
	if w.tasks["resize"] != nil || !w.due("resize", p) {
		return
	}
	type change struct {
		c         *pleg.Container
		container *corev1.Container
	}
	var changes []change
	each(w.pod, func(c *corev1.Container, kind containerKind) {
		l := w.observed.Latest(c.Name)
		have := (*corev1.ResourceRequirements)(nil)
		if l.Running() {
			have = w.resources[l.Id]
		}
		if kind == ephemeralContainer || have == nil || equality.Semantic.DeepEqual(*have, c.Resources) || w.tasks["kill:"+l.Id] != nil {
			return
		}
		if restartsOn(c, have) {
			w.stop(ctx, l, fmt.Sprintf("Container %s resize requires restart", c.Name), nil, w.containerDeadline(nil), nil)
			w.resized(l.Id, c)
			return
		}
		copied := *c
		changes = append(changes, change{l, &copied})
	})
	if len(changes) == 0 {
		if !w.anyTask("kill:") && !w.anyTask("container:") && w.resize.inProgress != nil && len(p.start) == 0 {
			w.resize.inProgress = nil
			w.event(corev1.EventTypeNormal, "ResizeCompleted", "Resizing", "Pod resize completed")
		}
		return
	}
	if w.resize.inProgress == nil {
		w.resize.inProgress = w.condition(corev1.PodResizeInProgress, "", "")
	}
	pod, machine := w.pod, w.Host.Machine()
	w.run(ctx, "resize", func(ctx context.Context) func() {
		// A parent's limit must not be lower than its children's. So the parent grows first and
		// shrinks last.
		_, first := w.Cgroups.Ensure(pod)
		var done []change
		var err error
		for _, ch := range changes {
			r := spec.Resources(pod, ch.container, machine)
			if r.MemoryLimitInBytes == 0 && !machine.CgroupV2 {
				r.MemoryLimitInBytes = -1
			}
			if err = w.Runtime.UpdateContainerResources(ctx, ch.c.Id, &runtimeapi.ContainerResources{Linux: r}); err != nil {
				break
			}
			done = append(done, ch)
		}
		if err == nil && first != nil {
			_, err = w.Cgroups.Ensure(pod)
		}
		return func() {
			for _, ch := range done {
				w.resized(ch.c.Id, ch.container)
			}
			if err != nil {
				w.resize.inProgress = w.condition(corev1.PodResizeInProgress, corev1.PodReasonError, err.Error())
				w.event(corev1.EventTypeWarning, "ResizeError", "Resizing", "%v", err)
				w.retry("resize")
				return
			}
			delete(w.podProblem, "resize")
		}
	})
}

func (w *Worker) resized(id string, c *corev1.Container) { w.resources[id] = c.Resources.DeepCopy() }

// restartsOn reports whether a change of resources needs a restart, by the container's
// resizePolicy.
func restartsOn(c *corev1.Container, have *corev1.ResourceRequirements) bool {
	for _, p := range c.ResizePolicy {
		if p.RestartPolicy != corev1.RestartContainer {
			continue
		}
		old, new := have.Requests[p.ResourceName], c.Resources.Requests[p.ResourceName]
		oldLimit, newLimit := have.Limits[p.ResourceName], c.Resources.Limits[p.ResourceName]
		if old.Cmp(new) != 0 || oldLimit.Cmp(newLimit) != 0 {
			return true
		}
	}
	return false
}

func (w *Worker) resizeConditions() []corev1.PodCondition {
	var out []corev1.PodCondition
	for _, c := range []*corev1.PodCondition{w.resize.pending, w.resize.inProgress} {
		if c != nil {
			out = append(out, *c)
		}
	}
	return out
}

// adoptResources sets the actual resources of containers that already run: from the API's status,
// or else from the spec.
func (w *Worker) adoptResources() {
	for id, c := range w.observed.Containers {
		container := w.container(c.Name())
		if container == nil || !c.Running() {
			continue
		}
		w.resources[id] = container.Resources.DeepCopy()
		for _, list := range [][]corev1.ContainerStatus{w.old.InitContainerStatuses, w.old.ContainerStatuses} {
			for i := range list {
				if list[i].ContainerID == w.RuntimeName+"://"+id && list[i].Resources != nil {
					w.resources[id] = list[i].Resources.DeepCopy()
					w.resources[id].Claims = container.Resources.Claims
				}
			}
		}
	}
}
