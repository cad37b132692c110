package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/insight/because"
	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// groupCycle decides about all waiting pods of a PodGroup together. A decision counts the earlier
// ones as placed. If enough pods fit, they are bound; otherwise all decisions are undone.
type groupCycle struct {
	s       *Scheduler
	name    types.NamespacedName
	gang    *schedulingv1alpha2.GangSchedulingPolicy // nil: each pod counts for itself
	profile *framework.Profile
	began   time.Time

	fit     []*cycle
	refused []member
	// victims are the pods to evict; the pods in preempting fit without them.
	victims    []*victims
	preempting []member
}

// member is a pod of the group with its decision.
type member struct {
	p        *queued
	decision Decision
	snapshot *framework.Snapshot
	node     string // where preemption makes room
}

// errGroup is the reason for a group that has too few pods with nodes, in upstream's words.
const errGroup = "pod group is unschedulable"

// scheduleGroup tries all waiting pods of the group of a pod.
func (s *Scheduler) scheduleGroup(ctx context.Context, name types.NamespacedName, first *queued, began time.Time) {
	g := &groupCycle{s: s, name: name, profile: s.profiles[first.info.Pod.Spec.SchedulerName], began: began}
	if object, ok := s.groups.objects.Get(name.Namespace, name.Name); ok && s.gangs(g.profile) {
		g.gang = object.Spec.SchedulingPolicy.Gang
	}
	defer g.endRefused()
	pods := s.takeGroup(name, first, began)
	if err := oneScheduler(pods); err != nil {
		g.fail(ctx, pods, err)
		return
	}
	for i, p := range pods {
		if err := g.try(ctx, p); err != nil {
			g.undo(ctx)
			g.fail(ctx, slices.Concat(g.tried(), pods[i:]), fmt.Errorf("failed to schedule other pod from a pod group: %w", err))
			return
		}
	}
	s.metrics.groupDecisionTimes.WithLabelValues().Observe(time.Since(began).Seconds())
	if g.gang == nil || g.enough(0) {
		g.bind(ctx)
		return
	}
	makesRoom, err := g.preempt(ctx)
	g.undo(ctx)
	switch {
	case err != nil:
		g.fail(ctx, g.tried(), err)
	case makesRoom:
		g.evict(ctx)
	default:
		g.refuse(ctx)
	}
}

// gangs reports whether the profile binds gangs all or nothing.
func (s *Scheduler) gangs(profile *framework.Profile) bool {
	return slices.ContainsFunc(profile.Permits, func(p framework.PermitPlugin) bool { return p.Name() == framework.GangScheduling })
}

// takeGroup takes the group's pods out of the queue, in the order of the queue.
func (s *Scheduler) takeGroup(name types.NamespacedName, first *queued, now time.Time) []*queued {
	pods := []*queued{first}
	for uid := range s.groups.members[name] {
		if p, ok := s.queue.take(uid, now); ok {
			pods = append(pods, p)
		}
	}
	slices.SortFunc(pods, func(a, b *queued) int {
		switch {
		case byPriority(a, b):
			return -1
		case byPriority(b, a):
			return 1
		}
		return 0
	})
	return pods
}

func oneScheduler(pods []*queued) error {
	for _, p := range pods {
		if a, b := pods[0].info.Pod.Spec.SchedulerName, p.info.Pod.Spec.SchedulerName; a != b {
			return fmt.Errorf("all pods in a single pod group should have the same .spec.schedulerName set, got: %q and %q", a, b)
		}
	}
	return nil
}

// try decides about a pod, and places it if it fits. An error is the failure of a plugin.
func (g *groupCycle) try(ctx context.Context, p *queued) error {
	snapshot, d := g.s.decide(ctx, p, g.profile, g.s.metrics.stopwatch(g.profile, time.Now()))
	if d.Err != nil {
		d.State.End()
		return d.Err
	}
	if d.Node == "" {
		g.refused = append(g.refused, member{p: p, decision: d, snapshot: snapshot})
		return nil
	}
	c := g.s.cycleOf(p, g.profile, &d, g.began)
	g.s.cluster.assume(p.info, d.Node)
	g.fit = append(g.fit, c)
	if status := c.reserve(ctx, g.s.metrics); !status.OK() {
		return fmt.Errorf("reserve node %s: %s", d.Node, reasonsOf(status))
	}
	return nil
}

// enough reports whether so many more pods make the gang schedulable.
func (g *groupCycle) enough(more int) bool {
	return g.s.placedMembers(g.name)+more >= int(g.gang.MinCount)
}

// preempt looks for room for the refused pods by preemption, until enough of the group fit. It
// changes nothing in the cluster. An error is the failure of an extender.
func (g *groupCycle) preempt(ctx context.Context) (bool, error) {
	if g.gang == nil || !g.enough(len(g.refused)) {
		return false, nil
	}
	var putBack []func()
	defer func() {
		for _, m := range g.preempting {
			g.s.cluster.removePod(m.p.info.Pod.UID)
		}
		for _, back := range putBack {
			back()
		}
	}()
	for _, m := range g.refused {
		// Earlier victims may have made room for this pod too.
		snapshot, d := g.s.decide(ctx, m.p, g.profile, g.s.metrics.stopwatch(g.profile, time.Now()))
		d.State.End()
		if m.node = d.Node; m.node == "" {
			v, err := g.victimsFor(ctx, m.p.info, snapshot, &d)
			if err != nil {
				return false, err
			}
			if v == nil {
				continue
			}
			for _, pod := range v.pods {
				putBack = append(putBack, g.s.cluster.lift(pod))
			}
			g.victims = append(g.victims, v)
			m.node = v.node
		}
		g.s.cluster.assume(m.p.info, m.node)
		g.preempting = append(g.preempting, m)
		if g.enough(0) {
			return true, nil
		}
	}
	return false, nil
}

// victimsFor returns the pods to evict for a pod; nil if no eviction helps, or the profile does not
// preempt. An error is the failure of an extender.
func (g *groupCycle) victimsFor(ctx context.Context, pod *framework.PodInfo, snapshot *framework.Snapshot, d *Decision) (*victims, error) {
	for _, p := range g.profile.PostFilters {
		preemption, ok := p.(*defaultPreemption)
		refusals := d.refusalOfEach(snapshot)
		if !ok || mayNotPreempt(snapshot, pod.Pod, refusals) != "" {
			continue
		}
		most := preemption.candidates(snapshot.Nodes.Len())
		candidates, _ := g.s.candidatesFor(snapshot, pod, g.profile, most, refusals)
		candidates, err := g.s.askAboutVictims(ctx, pod, snapshot, candidates)
		return leastHarm(candidates), err
	}
	return nil, nil
}

// undo takes all pods off their nodes.
func (g *groupCycle) undo(ctx context.Context) {
	for _, c := range slices.Backward(g.fit) {
		for _, p := range slices.Backward(c.reserved) {
			p.Unreserve(ctx, c.state, c.pod, c.node)
		}
		c.state.End()
		g.s.cluster.removePod(c.p.info.Pod.UID)
	}
}

// endRefused ends the cycles of the refused pods. Cycles of pods that fit end when the pods are
// bound or taken off their nodes.
func (g *groupCycle) endRefused() {
	for _, m := range g.refused {
		m.decision.State.End()
	}
}

// tried returns the pods that have been decided.
func (g *groupCycle) tried() []*queued {
	var out []*queued
	for _, c := range g.fit {
		out = append(out, c.p)
	}
	for _, m := range g.refused {
		out = append(out, m.p)
	}
	return out
}

// bind binds the pods that fit. Those that do not are tried again later, and may preempt others.
func (g *groupCycle) bind(ctx context.Context) {
	for _, m := range g.refused {
		g.s.refuse(ctx, m.p, g.profile, m.snapshot, &m.decision, g.s.metrics.stopwatch(g.profile, time.Now()), g.began)
	}
	for _, c := range g.fit {
		g.s.forgetNomination(c.p.info.Pod.UID)
		g.s.carryOut(ctx, c)
	}
	if len(g.fit) == 0 {
		g.s.metrics.groupAttempted(g.profile, resultUnschedulable, g.began)
		g.report(ctx, metav1.ConditionFalse, schedulingv1alpha2.PodGroupReasonUnschedulable, errGroup)
		return
	}
	g.s.metrics.groupAttempted(g.profile, resultScheduled, g.began)
	g.report(ctx, metav1.ConditionTrue, "Scheduled", "")
}

// evict evicts the victims, and lets all pods of the group wait for their nodes.
func (g *groupCycle) evict(ctx context.Context) {
	const message = errGroup + ", pod group is waiting for preemption to complete"
	wait := func(p *queued, node string) {
		g.s.nominate(p.info, node)
		g.requeue(ctx, p, message, &node)
	}
	for _, c := range g.fit {
		wait(c.p, c.node)
	}
	by := g.preempting[0].p.info.Pod
	for _, m := range g.preempting {
		wait(m.p, m.node)
	}
	for _, m := range g.refused {
		if !slices.ContainsFunc(g.preempting, func(o member) bool { return o.p == m.p }) {
			g.requeue(ctx, m.p, m.decision.Message(), nil)
		}
	}
	for _, v := range g.victims {
		g.s.metrics.preemptions.Inc()
		g.s.metrics.victims.Observe(float64(len(v.pods)))
		g.s.write(ctx, func() { g.s.evict(ctx, by, v) })
	}
	g.s.metrics.groupAttempted(g.profile, resultWaitsForVictims, g.began)
	g.report(ctx, metav1.ConditionFalse, schedulingv1alpha2.PodGroupReasonUnschedulable, message)
}

// refuse returns all pods to the queue.
func (g *groupCycle) refuse(ctx context.Context) {
	for _, c := range g.fit {
		g.requeue(ctx, c.p, missingMembers, nil)
	}
	for _, m := range g.refused {
		g.requeue(ctx, m.p, m.decision.Message(), nil)
	}
	g.s.metrics.groupAttempted(g.profile, resultUnschedulable, g.began)
	g.report(ctx, metav1.ConditionFalse, schedulingv1alpha2.PodGroupReasonUnschedulable, errGroup)
}

// requeue returns a pod to the queue until an event may help one pod of the group.
func (g *groupCycle) requeue(ctx context.Context, p *queued, message string, nominated nomination) {
	by := sets.New[string](framework.GangScheduling)
	for i := range g.refused {
		by = by.Union(g.refused[i].decision.RefusedBy())
	}
	p.refused = sets.List(by)
	g.s.metrics.attempted(p.info.Pod, resultUnschedulable, g.began)
	g.s.queue.refused(p, g.s.requeues[g.profile.SchedulerName].wants(p.refused)|framework.NodeAdded, time.Now())
	g.s.report(ctx, p.info.Pod, corev1.PodReasonUnschedulable, message, nominated)
}

// fail returns pods to the queue after an error.
func (g *groupCycle) fail(ctx context.Context, pods []*queued, err error) {
	done := sets.New[types.UID]()
	for _, p := range pods {
		if done.Has(p.info.Pod.UID) {
			continue
		}
		done.Insert(p.info.Pod.UID)
		g.s.metrics.attempted(p.info.Pod, resultError, g.began)
		g.s.queue.failed(p, time.Now())
		g.s.report(ctx, p.info.Pod, corev1.PodReasonSchedulerError, err.Error(), nil)
	}
	g.s.metrics.groupAttempted(g.profile, resultError, g.began)
	g.report(ctx, metav1.ConditionFalse, schedulingv1alpha2.PodGroupReasonSchedulerError, err.Error())
}

// report writes the group's condition. A scheduled group stays scheduled.
func (g *groupCycle) report(ctx context.Context, is metav1.ConditionStatus, reason, message string) {
	s := g.s
	object, ok := s.groups.objects.Get(g.name.Namespace, g.name.Name)
	if !ok {
		return
	}
	scheduled := s.groups.scheduled[object.UID] || apimeta.IsStatusConditionTrue(object.Status.Conditions, schedulingv1alpha2.PodGroupScheduled)
	if scheduled && is != metav1.ConditionTrue {
		return
	}
	if is == metav1.ConditionTrue {
		s.groups.scheduled[object.UID] = true // before the View shows it
	}
	conditions := slices.Clone(object.Status.Conditions)
	changed := apimeta.SetStatusCondition(&conditions, metav1.Condition{
		Type: schedulingv1alpha2.PodGroupScheduled, Status: is, Reason: reason, Message: message, ObservedGeneration: object.Generation,
	})
	if !changed && !s.reports.pending(object.UID) {
		return
	}
	condition := apimeta.FindStatusCondition(conditions, schedulingv1alpha2.PodGroupScheduled)
	s.put(because.WithObjects(ctx, object), object.UID, map[string]any{"conditions": []metav1.Condition{*condition}}, func(ctx context.Context, status map[string]any) {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": object.UID}, "status": status})
		if err == nil {
			_, err = client.Patch[*schedulingv1alpha2.PodGroup](ctx, s.client, object.Namespace, object.Name, types.StrategicMergePatchType, patch, "status")
		}
		if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			s.log.Warn("cannot write the condition of a pod group", "podGroup", object.Namespace+"/"+object.Name, "error", err)
		}
	})
}
