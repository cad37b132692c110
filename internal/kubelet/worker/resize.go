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

// In-place resize of containers (KEP-1287) and of whole pods (KEP-5419). The API's version of the
// pod has the desired resources. w.pod is that version with the allocated resources: those that the
// node has granted. w.resources has the actual resources of running containers, and
// resize.applied those of the pod's cgroup.
//
// The kernel wants a parent's limits not to be lower than its children's. So a resize goes in this
// order: the pod's cgroup gets the larger of its old and new limits, the containers get their new
// ones, containers that must restart do so, and the pod's cgroup gets its new limits.

// deferredRetry is the interval between tries of a resize for which the node lacks room.
const deferredRetry = 3 * time.Second

// resizeState is the state of a pod's in-place resize.
type resizeState struct {
	// desired is the API's version of the pod while it requests resources that are not allocated;
	// nil if nothing is pending.
	desired    *corev1.Pod
	pending    *corev1.PodCondition
	inProgress *corev1.PodCondition
	// applied is the pod whose resources the pod's cgroup has; nil before it exists.
	applied *corev1.Pod
	// widened means that the pod's cgroup has room for the allocated resources.
	widened bool
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
		w.resize.desired, w.resize.pending, w.resize.widened = nil, nil, false
		delete(w.podProblem, "resize")
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

// change is a running container whose resources differ from the allocated ones.
type change struct {
	c         *pleg.Container
	container *corev1.Container
	have      corev1.ResourceRequirements // effective resources
}

// resizeStep brings running containers and the pod's cgroup to the allocated resources.
func (w *Worker) resizeStep(ctx context.Context, p *plan) {
	if w.resize.desired != nil && w.resize.pending != nil && w.resize.pending.Reason == corev1.PodReasonDeferred {
		w.allocate() // another pod may have ended meanwhile
		if w.resize.pending != nil {
			p.lookAt(w.Now().Add(deferredRetry))
		}
	}
	if !w.prepared || w.tasks["resize"] != nil || !w.due("resize", p) {
		return
	}
	updates, restarts := w.resizeChanges()
	if len(updates)+len(restarts) == 0 {
		if w.anyTask("kill:") || w.anyTask("container:") || len(p.start) > 0 {
			return
		}
		if sameResources(w.resize.applied, w.pod) {
			w.resizeDone()
			return
		}
	}
	if w.resize.inProgress == nil {
		w.resize.inProgress = w.condition(corev1.PodResizeInProgress, "", "")
	}
	pod, applied, machine := w.pod, w.resize.applied, w.Host.Machine()
	w.run(ctx, "resize", func(taskCtx context.Context) func() {
		done, err := w.actuate(taskCtx, pod, applied, machine, updates, len(restarts) == 0)
		return func() { w.actuated(ctx, pod, done, restarts, err) }
	})
}

// resizeChanges lists the containers to update in place and those to restart.
func (w *Worker) resizeChanges() (updates, restarts []change) {
	each(w.pod, func(c *corev1.Container, kind containerKind) {
		l := w.observed.Latest(c.Name)
		if kind == ephemeralContainer || !l.Running() || w.resources[l.Id] == nil || w.tasks["kill:"+l.Id] != nil || w.tasks["container:"+c.Name] != nil {
			return
		}
		have := w.effective[l.Id]
		want := *c
		want.Resources = spec.EffectiveResources(w.pod, c)
		if equality.Semantic.DeepEqual(have, want.Resources) && equality.Semantic.DeepEqual(*w.resources[l.Id], c.Resources) {
			return
		}
		copied := *c
		ch := change{l, &copied, have}
		if restartsOn(&want, &have) {
			restarts = append(restarts, ch)
		} else {
			updates = append(updates, ch)
		}
	})
	return updates, restarts
}

// mustWiden reports whether the pod's cgroup lacks room for the allocated resources, so that no
// container may start.
func (w *Worker) mustWiden() bool {
	return w.resize.applied != nil && !w.resize.widened && !sameResources(w.resize.applied, w.pod)
}

// actuate updates the pod's cgroup and containers. With last, the pod's cgroup gets its final
// limits. It returns the updated containers.
func (w *Worker) actuate(ctx context.Context, pod, applied *corev1.Pod, machine spec.Machine, updates []change, last bool) (done []change, err error) {
	if err := w.Cgroups.Widen(pod, applied); err != nil {
		return nil, err
	}
	for _, ch := range updates {
		if err := w.updateContainer(ctx, pod, ch, machine); err != nil {
			return done, err
		}
		done = append(done, ch)
	}
	if !last || sameResources(pod, applied) {
		return done, nil
	}
	if limit := podMemoryLimit(pod); limit > 0 && (podMemoryLimit(applied) == 0 || limit < podMemoryLimit(applied)) {
		if usage, err := w.Cgroups.MemoryUsage(pod); err == nil && usage > limit {
			return done, belowUsage("pod", limit, usage)
		}
	}
	_, err = w.Cgroups.Ensure(pod)
	return done, err
}

func podMemoryLimit(pod *corev1.Pod) int64 {
	if pod.Spec.Resources == nil {
		return 0
	}
	return pod.Spec.Resources.Limits.Memory().Value()
}

func belowUsage(what string, limit, usage int64) error {
	return fmt.Errorf("cannot decrease memory limits: %s: memory limit (%d) below current usage (%d)", what, limit, usage)
}

func (w *Worker) updateContainer(ctx context.Context, pod *corev1.Pod, ch change, machine spec.Machine) error {
	r := spec.Resources(pod, ch.container, machine)
	w.Placement.Pin(pod, ch.container.Name, r)
	before := ch.have.Limits.Memory().Value()
	if r.MemoryLimitInBytes > 0 && (before == 0 || r.MemoryLimitInBytes < before) {
		if stats, err := w.Runtime.ContainerStats(ctx, ch.c.Id); err == nil {
			if usage := int64(stats.GetMemory().GetUsageBytes().GetValue()); usage > r.MemoryLimitInBytes {
				return belowUsage("container "+ch.container.Name, r.MemoryLimitInBytes, usage)
			}
		}
	}
	if r.MemoryLimitInBytes == 0 && !machine.CgroupV2 {
		r.MemoryLimitInBytes = -1
	}
	return w.Runtime.UpdateContainerResources(ctx, ch.c.Id, &runtimeapi.ContainerResources{Linux: r})
}

// actuated records the end of actuate, and restarts the containers that need it.
func (w *Worker) actuated(ctx context.Context, pod *corev1.Pod, done, restarts []change, err error) {
	for _, ch := range done {
		w.resized(pod, ch.c.Id, ch.container)
	}
	if err != nil {
		w.resize.inProgress = w.condition(corev1.PodResizeInProgress, corev1.PodReasonError, err.Error())
		w.event(corev1.EventTypeWarning, "ResizeError", "Resizing", "%v", err)
		w.retry("resize")
		return
	}
	delete(w.podProblem, "resize")
	if w.resize.inProgress != nil {
		w.resize.inProgress = w.condition(corev1.PodResizeInProgress, "", "")
	}
	if sameResources(pod, w.pod) {
		w.resize.widened = true
	}
	if len(restarts) == 0 {
		w.resize.applied = pod
		return
	}
	for _, ch := range restarts {
		w.stop(ctx, ch.c, fmt.Sprintf("Container %s resize requires restart", ch.container.Name), nil, w.containerDeadline(nil), nil)
	}
}

func (w *Worker) resizeDone() {
	if w.resize.inProgress != nil {
		w.resize.inProgress = nil
		w.event(corev1.EventTypeNormal, "ResizeCompleted", "Resizing", "Pod resize completed")
	}
}

func (w *Worker) resized(pod *corev1.Pod, id string, c *corev1.Container) {
	w.resources[id] = c.Resources.DeepCopy()
	w.effective[id] = spec.EffectiveResources(pod, c)
}

// podResources are the resources of the pod's cgroup; nil if they are not known.
func (r *resizeState) podResources() *corev1.ResourceRequirements {
	if r.applied == nil {
		return nil
	}
	return r.applied.Spec.Resources
}

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

// adoptResources sets the resources of a pod that already runs. The API's status has the allocated
// and actual ones of an earlier process; what it does not have comes from the spec.
func (w *Worker) adoptResources() {
	if !w.observed.AnyRunning() {
		return
	}
	before := withStatus(w.pod, &w.old)
	for id, c := range w.observed.Containers {
		if container := spec.FindContainer(before, c.Name()); container != nil && c.Running() {
			w.resized(before, id, container)
		}
	}
	if !sameResources(before, w.pod) {
		w.resize.applied = before
		desired := w.pod
		w.pod = withResources(desired, before)
		w.post(func() {
			if w.Admitted != nil {
				w.Admitted(w.pod)
			}
			if w.resize.desired == nil && w.stage == Syncing {
				w.resize.desired = desired
				w.allocate()
			}
		})
	}
}

// withStatus returns the pod with the resources of its status.
func withStatus(pod *corev1.Pod, s *corev1.PodStatus) *corev1.Pod {
	out := pod.DeepCopy()
	set := func(list []corev1.Container, statuses []corev1.ContainerStatus) {
		for i := range list {
			for j := range statuses {
				if st := &statuses[j]; st.Name == list[i].Name && st.Resources != nil {
					list[i].Resources.Requests, list[i].Resources.Limits = st.Resources.Requests.DeepCopy(), st.Resources.Limits.DeepCopy()
				}
			}
		}
	}
	set(out.Spec.Containers, s.ContainerStatuses)
	set(out.Spec.InitContainers, s.InitContainerStatuses)
	if out.Spec.Resources != nil && s.Resources != nil {
		out.Spec.Resources.Requests, out.Spec.Resources.Limits = s.Resources.Requests.DeepCopy(), s.Resources.Limits.DeepCopy()
	}
	return out
}
