package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/insight/because"
	"github.com/knarr-project/knarr/internal/scheduler/extender"
	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// boundNote is the text of the event of a binding: namespace, name and node.
const boundNote = "Successfully assigned %s/%s to %s"

var podResource = corev1.SchemeGroupVersion.WithResource("pods")

// cycle is the binding of a decided pod.
type cycle struct {
	p       *queued     // owned by the scheduler's goroutine, which updates its pod
	pod     *corev1.Pod // the pod as it was when decided
	node    string
	profile *framework.Profile
	state   framework.State
	skipped Names // plugins that have nothing to do for the pod
	// binder is the extender that binds the pod; nil leaves it to the Bind plugins.
	binder *extender.Extender
	// began is the start of the attempt; since is when the pod was first queued.
	began, since time.Time
	attempts     int
	flushed      bool // no event ended its last wait, but the time
	// reserved are the plugins whose Reserve was called. A failure calls their Unreserve.
	reserved []framework.ReservePlugin
}

// finish binds a decided pod. It calls Reserve and Permit before it returns, so before the next
// decision. The rest runs in another goroutine, as it may wait. A failure calls Unreserve.
func (s *Scheduler) finish(ctx context.Context, c *cycle) {
	watch := s.metrics.stopwatch(c.profile, time.Now())
	status := c.reserve(ctx, s.metrics)
	watch.lap("Reserve", outcomeOf(status))
	if !status.OK() {
		s.giveUp(ctx, c, status)
		return
	}
	s.carryOut(ctx, c)
}

// carryOut is finish after Reserve.
func (s *Scheduler) carryOut(ctx context.Context, c *cycle) {
	watch := s.metrics.stopwatch(c.profile, time.Now())
	waiting, status := s.permit(ctx, c)
	if len(c.profile.Permits) > 0 {
		watch.lap("Permit", outcomeOf(status))
	}
	if !status.OK() {
		s.giveUp(ctx, c, status)
		return
	}
	prepares := slices.ContainsFunc(c.profile.PreBinds, func(p framework.PreBindPlugin) bool {
		return !c.skipped.Has(p.Name()) && p.PreBindPreFlight(c.state, c.pod, c.node)
	})
	if waiting == nil && !prepares {
		s.write(ctx, func() {
			defer s.metrics.working("binding")()
			s.complete(ctx, c)
		})
		return
	}
	// A waiting pod does not occupy a binder; only its binding does.
	s.writing.Add(1)
	go func() {
		defer s.writing.Done()
		defer s.metrics.working("binding")()
		if status := s.prepare(ctx, c, waiting, prepares); !status.OK() {
			s.giveUp(ctx, c, status)
			return
		}
		if err := s.acquireBinder(ctx); err != nil {
			s.giveUp(ctx, c, framework.Fail(err))
			return
		}
		defer s.releaseBinder()
		s.complete(ctx, c)
	}()
}

// prepare waits for the permission of the pod, and then for volumes and devices.
func (s *Scheduler) prepare(ctx context.Context, c *cycle, waiting *waitingPod, prepares bool) *framework.Status {
	s.nominateWaiting(ctx, c)
	if waiting != nil {
		began := time.Now()
		status := s.waiting.wait(ctx, waiting)
		s.metrics.permitWaited(status, began)
		if !status.OK() {
			return status
		}
	}
	if !prepares {
		return nil
	}
	watch := s.metrics.stopwatch(c.profile, time.Now())
	status := c.preBind(ctx, s.metrics)
	watch.lap("PreBind", outcomeOf(status))
	return status
}

// complete writes the binding and tells the PostBind plugins.
func (s *Scheduler) complete(ctx context.Context, c *cycle) {
	watch := s.metrics.stopwatch(c.profile, time.Now())
	s.reports.settle(ctx, c.pod.UID)
	status := s.bindBy(ctx, c)
	watch.lap("Bind", outcomeOf(status))
	if !status.OK() {
		s.giveUp(ctx, c, status)
		return
	}
	defer c.state.End()
	s.metrics.bound(c)
	if len(c.profile.PostBinds) == 0 {
		return
	}
	for _, p := range c.profile.PostBinds {
		began := time.Now()
		p.PostBind(ctx, c.state, c.pod, c.node)
		s.metrics.ran(p, "PostBind", nil, began)
	}
	watch.lap("PostBind", statusSuccess)
}

// bindBy lets the first Bind plugin that does not skip write the binding.
func (s *Scheduler) bindBy(ctx context.Context, c *cycle) *framework.Status {
	if c.binder != nil {
		if err := c.binder.Bind(ctx, c.pod, c.node); err != nil {
			return framework.Fail(err)
		}
		s.announce(c.pod, c.node)
		return nil
	}
	binds := c.profile.Binds
	if len(binds) == 0 {
		binds = []framework.BindPlugin{&defaultBinder{s}}
	}
	for _, p := range binds {
		began := time.Now()
		status := p.Bind(ctx, c.state, c.pod, c.node)
		s.metrics.ran(p, "Bind", status, began)
		switch {
		case status.Skipped():
			continue
		case !status.OK():
			return namedStatus("Bind", p, status)
		}
		if _, own := p.(*defaultBinder); !own {
			s.announce(c.pod, c.node)
		}
		return nil
	}
	return framework.Fail(errors.New("all Bind plugins skipped the pod"))
}

// giveUp undoes Reserve and returns the pod to the queue.
func (s *Scheduler) giveUp(ctx context.Context, c *cycle, status *framework.Status) {
	result := resultError
	if status.Rejected() {
		result = resultUnschedulable
	}
	s.metrics.attempted(c.pod, result, c.began)
	for _, p := range slices.Backward(c.reserved) {
		p.Unreserve(ctx, c.state, c.pod, c.node)
	}
	c.state.End()
	s.post(func(now time.Time) { s.unassume(ctx, c, status, now) })
}

// nominateWaiting writes the node's name to the pod's status while the pod waits for volumes or
// devices (KEP-5278). Autoscalers then see that the node is needed, and after a restart the pod is
// tried there first. A failure does not stop the binding.
func (s *Scheduler) nominateWaiting(ctx context.Context, c *cycle) {
	if c.pod.Status.NominatedNodeName == c.node {
		return
	}
	s.reports.settle(ctx, c.pod.UID)
	if err := s.patchStatus(because.WithObjects(ctx, c.pod), c.pod, map[string]any{"nominatedNodeName": c.node}); err != nil && ctx.Err() == nil {
		s.log.Warn("cannot write the nominated node of a waiting pod", "pod", c.pod.Namespace+"/"+c.pod.Name, "error", err)
	}
}

func (c *cycle) reserve(ctx context.Context, m *Metrics) *framework.Status {
	for _, p := range c.profile.Reserves {
		if c.skipped.Has(p.Name()) {
			continue
		}
		c.reserved = append(c.reserved, p)
		began := time.Now()
		status := p.Reserve(ctx, c.state, c.pod, c.node)
		m.ran(p, "Reserve", status, began)
		if !status.OK() {
			return namedStatus("Reserve", p, status)
		}
	}
	return nil
}

func (c *cycle) preBind(ctx context.Context, m *Metrics) *framework.Status {
	for _, p := range c.profile.PreBinds {
		if c.skipped.Has(p.Name()) {
			continue
		}
		began := time.Now()
		status := p.PreBind(ctx, c.state, c.pod, c.node)
		m.ran(p, "PreBind", status, began)
		if !status.OK() {
			return namedStatus("PreBind", p, status)
		}
	}
	return nil
}

// namedStatus adds the plugin to its refusal or failure.
func namedStatus(point string, p framework.Plugin, status *framework.Status) *framework.Status {
	if status.Rejected() {
		status.Plugin = p.Name()
		return status
	}
	return framework.Fail(fmt.Errorf("running %s plugin %q: %s", point, p.Name(), reasonsOf(status)))
}

// bind writes the binding.
func (s *Scheduler) bind(ctx context.Context, pod *corev1.Pod, node string) error {
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}
	event := client.EventFor(s.events, pod, nil, corev1.EventTypeNormal, "Scheduled", "Binding", boundNote, pod.Namespace, pod.Name, node)
	recorded := false
	err := retryUntilAnswered(ctx, func() (err error) {
		recorded, err = client.Bind(because.WithObjects(ctx, pod), s.client, binding, event)
		if !apierrors.IsConflict(err) {
			return err
		}
		now, lookErr := client.Get[*corev1.Pod](ctx, s.client, pod.Namespace, pod.Name)
		switch {
		case outcomeUnknown(lookErr):
			return lookErr
		case lookErr == nil && now.UID == pod.UID && now.Spec.NodeName == node:
			return nil // an earlier attempt, whose answer was lost, has bound it
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("bind %s/%s to %s: %w", pod.Namespace, pod.Name, node, err)
	}
	if !recorded {
		s.announce(pod, node)
	}
	return nil
}

// announce records the event of a bound pod.
func (s *Scheduler) announce(pod *corev1.Pod, node string) {
	s.events.Eventf(pod, nil, corev1.EventTypeNormal, "Scheduled", "Binding", boundNote, pod.Namespace, pod.Name, node)
}

// nomination is the new nominatedNodeName of a pod: nil keeps the old one, "" removes it.
type nomination *string

// report writes the condition PodScheduled and an event.
func (s *Scheduler) report(ctx context.Context, pod *corev1.Pod, reason, message string, nominated nomination) {
	ctx = because.WithObjects(ctx, pod)
	s.events.Eventf(pod, nil, corev1.EventTypeWarning, "FailedScheduling", "Scheduling", "%s", message)
	condition := corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason, Message: message,
		LastTransitionTime: metav1.Now(), ObservedGeneration: pod.Generation,
	}
	for _, old := range pod.Status.Conditions {
		if old.Type != corev1.PodScheduled {
			continue
		}
		if old.Status == condition.Status {
			condition.LastTransitionTime = old.LastTransitionTime
		}
		if old.Status == condition.Status && old.Reason == reason && old.Message == message && (nominated == nil || *nominated == pod.Status.NominatedNodeName) && !s.reports.pending(pod.UID) {
			return
		}
	}
	status := map[string]any{"conditions": []corev1.PodCondition{condition}}
	switch {
	case nominated == nil:
	case *nominated != "":
		status["nominatedNodeName"] = *nominated
	case pod.Status.NominatedNodeName != "":
		status["nominatedNodeName"] = nil
	}
	s.writeStatus(ctx, pod, status)
}

// patchStatus merges into the status of the pod with this UID. A deleted pod is no error.
func (s *Scheduler) patchStatus(ctx context.Context, pod *corev1.Pod, status map[string]any) error {
	return patchPodStatus(ctx, s.client, pod, status)
}

func patchPodStatus(ctx context.Context, c client.Interface, pod *corev1.Pod, status map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return err
	}
	_, err = client.Patch[*corev1.Pod](ctx, c, pod.Namespace, pod.Name, types.StrategicMergePatchType, patch, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// evict deletes the victims with their own grace periods. Each first gets a condition that says
// why.
func (s *Scheduler) evict(ctx context.Context, preemptor *corev1.Pod, v *victims) {
	ctx = because.WithObjects(ctx, preemptor)
	began, complete := time.Now(), true
	defer func() { s.metrics.evicted(complete, began) }()
	for _, pod := range v.pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		condition := corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler,
			Message:            fmt.Sprintf("%s: preempting to accommodate a higher priority pod", preemptor.Spec.SchedulerName),
			LastTransitionTime: metav1.Now(), ObservedGeneration: pod.Generation,
		}
		if err := s.patchStatus(ctx, pod, map[string]any{"conditions": []corev1.PodCondition{condition}}); err != nil {
			s.log.Warn("cannot write the condition of a preempted pod", "pod", pod.Namespace+"/"+pod.Name, "error", err)
			complete = false
			continue
		}
		uid := pod.UID
		err := client.Delete[*corev1.Pod](ctx, s.client, pod.Namespace, pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			s.log.Warn("cannot delete a preempted pod", "pod", pod.Namespace+"/"+pod.Name, "error", err)
			complete = false
			continue
		}
		s.events.Eventf(pod, preemptor, corev1.EventTypeNormal, "Preempted", "Preempting", "Preempted by pod %s on node %s", preemptor.UID, v.node)
	}
}
