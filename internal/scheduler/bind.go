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
	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

var podResource = corev1.SchemeGroupVersion.WithResource("pods")

// cycle is a decided pod on its way to its node.
type cycle struct {
	p       *queued     // of the scheduler's goroutine: updates of the pod change it
	pod     *corev1.Pod // as it was decided
	node    string
	profile *framework.Profile
	state   framework.State
	skipped sets.Set[string] // plugins that have nothing to do for the pod
	// began is when the attempt did, since when the pod was first queued.
	began, since time.Time
	attempts     int
	// reserved are the plugins whose Reserve was called, for taking it back.
	reserved []framework.ReservePlugin
}

// finish does what follows a decision: Reserve at once, before the next decision; PreBind, which may wait, and the binding
// beside it. What was reserved is given back when something fails.
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
	// A pod that waits for its volumes or devices does not take the place of one of the binders; only its binding does.
	s.writing.Add(1)
	go func() {
		defer s.writing.Done()
		s.expect(ctx, c)
		watch := s.metrics.stopwatch(c.profile, time.Now())
		err := c.preBind(ctx)
		watch.lap("PreBind", outcomeOf(err))
		if err != nil {
			fail(err)
			return
		}
		if err := s.takeBinder(ctx); err != nil {
			fail(err)
			return
		}
		defer s.giveBinder()
		bind()
	}()
}

// expect writes where the pod will go once what it waits for is there (KEP-5278): others, autoscalers first of all, are not to take the node for
// unused, and after a restart the pod is tried there first. It goes on without it.
func (s *Scheduler) expect(ctx context.Context, c *cycle) {
	if c.pod.Status.NominatedNodeName == c.node {
		return
	}
	if err := s.patchStatus(ctx, c.pod, map[string]any{"nominatedNodeName": c.node}); err != nil && ctx.Err() == nil {
		s.log.Warn("writing where a pod is expected", "pod", c.pod.Namespace+"/"+c.pod.Name, "error", err)
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
	err := untilAnswered(ctx, func() error {
		_, err := s.client.CreateSub(ctx, podResource, pod.Namespace, pod.Name, "binding", binding, metav1.CreateOptions{})
		if !apierrors.IsConflict(err) {
			return err
		}
		now, lookErr := client.Get[*corev1.Pod](ctx, s.client, pod.Namespace, pod.Name)
		switch {
		case unanswered(lookErr):
			return lookErr
		case lookErr == nil && now.UID == pod.UID && now.Spec.NodeName == node:
			return nil // by an attempt whose answer was lost
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("bind %s/%s to %s: %w", pod.Namespace, pod.Name, node, err)
	}
	s.events.Eventf(pod, nil, corev1.EventTypeNormal, "Scheduled", "Binding", "Successfully assigned %s/%s to %s", pod.Namespace, pod.Name, node)
	return nil
}

// nomination is what becomes of the pod's nominatedNodeName: nil leaves it, "" takes it away.
type nomination *string

// report writes the PodScheduled condition and an event.
func (s *Scheduler) report(ctx context.Context, pod *corev1.Pod, reason, message string, nominated nomination) {
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
			s.log.Warn("writing why a pod is unschedulable", "pod", pod.Namespace+"/"+pod.Name, "error", err)
		}
	})
}

// patchStatus merges into the status of exactly this pod; a pod that is gone is no error.
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

// evict makes the victims leave: each gets a condition that says why, then is deleted with its own grace period.
func (s *Scheduler) evict(ctx context.Context, preemptor *corev1.Pod, v *victims) {
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
			s.log.Warn("marking a preempted pod", "pod", pod.Namespace+"/"+pod.Name, "error", err)
			continue
		}
		uid := pod.UID
		err := client.Delete[*corev1.Pod](ctx, s.client, pod.Namespace, pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			s.log.Warn("deleting a preempted pod", "pod", pod.Namespace+"/"+pod.Name, "error", err)
			continue
		}
		s.events.Eventf(pod, preemptor, corev1.EventTypeNormal, "Preempted", "Preempting", "Preempted by pod %s on node %s", preemptor.UID, v.node)
	}
}
