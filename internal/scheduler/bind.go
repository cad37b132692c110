package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/insight/because"
	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

var podResource = corev1.SchemeGroupVersion.WithResource("pods")

// cycle is the binding of a decided pod.
type cycle struct {
	p       *queued     // owned by the scheduler's goroutine, which updates its pod
	pod     *corev1.Pod // the pod as it was when decided
	node    string
	profile *framework.Profile
	state   framework.State
	skipped sets.Set[string] // plugins that have nothing to do for the pod
	// began is the start of the attempt; since is when the pod was first queued.
	began, since time.Time
	attempts     int
	// reserved are the plugins whose Reserve was called. A failure calls their Unreserve.
	reserved []framework.ReservePlugin
}

// finish binds a decided pod. It calls Reserve before it returns, so before the next decision.
// PreBind, which may wait, and the binding run in another goroutine. A failure calls Unreserve.
func (s *Scheduler) finish(ctx context.Context, c *cycle) {
	fail := func(err error) {
		s.metrics.attempted(c.pod, resultError, c.began)
		for _, p := range slices.Backward(c.reserved) {
			p.Unreserve(ctx, c.state, c.pod, c.node)
		}
		s.post(func(now time.Time) { s.unassume(ctx, c.p, err, now) })
	}
	watch := s.metrics.stopwatch(c.profile, time.Now())
	err := c.reserve(ctx)
	watch.lap("Reserve", outcomeOf(err))
	if err != nil {
		fail(err)
		return
	}
	bind := func() {
		watch := s.metrics.stopwatch(c.profile, time.Now())
		err := s.bind(ctx, c.pod, c.node)
		watch.lap("Bind", outcomeOf(err))
		if err != nil {
			fail(err)
			return
		}
		s.metrics.bound(c)
	}
	waits := slices.ContainsFunc(c.profile.PreBinds, func(p framework.PreBindPlugin) bool {
		return !c.skipped.Has(p.Name()) && p.PreBindPreFlight(c.state, c.pod, c.node)
	})
	if !waits {
		s.write(ctx, bind)
		return
	}
	// A pod that waits for volumes or devices does not occupy a binder; only its binding does.
	s.writing.Add(1)
	go func() {
		defer s.writing.Done()
		s.nominateWaiting(ctx, c)
		watch := s.metrics.stopwatch(c.profile, time.Now())
		err := c.preBind(ctx)
		watch.lap("PreBind", outcomeOf(err))
		if err != nil {
			fail(err)
			return
		}
		if err := s.acquireBinder(ctx); err != nil {
			fail(err)
			return
		}
		defer s.releaseBinder()
		bind()
	}()
}

// nominateWaiting writes the node's name to the pod's status while the pod waits for volumes or
// devices (KEP-5278). Autoscalers then see that the node is needed, and after a restart the pod is
// tried there first. A failure does not stop the binding.
func (s *Scheduler) nominateWaiting(ctx context.Context, c *cycle) {
	if c.pod.Status.NominatedNodeName == c.node {
		return
	}
	if err := s.patchStatus(because.WithObjects(ctx, c.pod), c.pod, map[string]any{"nominatedNodeName": c.node}); err != nil && ctx.Err() == nil {
		s.log.Warn("cannot write the nominated node of a waiting pod", "pod", c.pod.Namespace+"/"+c.pod.Name, "error", err)
	}
}

func (c *cycle) reserve(ctx context.Context) error {
	for _, p := range c.profile.Reserves {
		if c.skipped.Has(p.Name()) {
			continue
		}
		c.reserved = append(c.reserved, p)
		if status := p.Reserve(ctx, c.state, c.pod, c.node); !status.OK() {
			return fmt.Errorf("running Reserve plugin %q: %s", p.Name(), strings.Join(status.Reasons, ", "))
		}
	}
	return nil
}

func (c *cycle) preBind(ctx context.Context) error {
	for _, p := range c.profile.PreBinds {
		if c.skipped.Has(p.Name()) {
			continue
		}
		if status := p.PreBind(ctx, c.state, c.pod, c.node); !status.OK() {
			return fmt.Errorf("running PreBind plugin %q: %s", p.Name(), strings.Join(status.Reasons, ", "))
		}
	}
	return nil
}

// bind writes the binding.
func (s *Scheduler) bind(ctx context.Context, pod *corev1.Pod, node string) error {
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}
	err := retryUntilAnswered(ctx, func() error {
		_, err := s.client.CreateSub(because.WithObjects(ctx, pod), podResource, pod.Namespace, pod.Name, "binding", binding, metav1.CreateOptions{})
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
	s.events.Eventf(pod, nil, corev1.EventTypeNormal, "Scheduled", "Binding", "Successfully assigned %s/%s to %s", pod.Namespace, pod.Name, node)
	return nil
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
		if old.Status == condition.Status && old.Reason == reason && old.Message == message && (nominated == nil || *nominated == pod.Status.NominatedNodeName) {
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
	s.write(ctx, func() {
		if err := s.patchStatus(ctx, pod, status); err != nil {
			s.log.Warn("cannot write the condition of an unschedulable pod", "pod", pod.Namespace+"/"+pod.Name, "error", err)
		}
	})
}

// patchStatus merges into the status of the pod with this UID. A deleted pod is no error.
func (s *Scheduler) patchStatus(ctx context.Context, pod *corev1.Pod, status map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return err
	}
	_, err = client.Patch[*corev1.Pod](ctx, s.client, pod.Namespace, pod.Name, types.StrategicMergePatchType, patch, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// evict deletes the victims with their own grace periods. Each first gets a condition that says
// why.
func (s *Scheduler) evict(ctx context.Context, preemptor *corev1.Pod, v *victims) {
	ctx = because.WithObjects(ctx, preemptor)
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
			continue
		}
		uid := pod.UID
		err := client.Delete[*corev1.Pod](ctx, s.client, pod.Namespace, pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			s.log.Warn("cannot delete a preempted pod", "pod", pod.Namespace+"/"+pod.Name, "error", err)
			continue
		}
		s.events.Eventf(pod, preemptor, corev1.EventTypeNormal, "Preempted", "Preempting", "Preempted by pod %s on node %s", preemptor.UID, v.node)
	}
}
