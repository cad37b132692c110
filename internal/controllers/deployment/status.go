package deployment

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// Reasons of the conditions Progressing and Available.
const (
	reasonNewSet      = "NewReplicaSetCreated"
	reasonFoundSet    = "FoundNewReplicaSet"
	reasonCreateError = "ReplicaSetCreateError"
	reasonUpdated     = "ReplicaSetUpdated"
	reasonAvailable   = "NewReplicaSetAvailable"
	reasonDeadline    = "ProgressDeadlineExceeded"
	reasonPaused      = "DeploymentPaused"
	reasonResumed     = "DeploymentResumed"
	reasonMinimum     = "MinimumReplicasAvailable"
	reasonTooFew      = "MinimumReplicasUnavailable"
)

func (r *rollout) condition(t appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string) appsv1.DeploymentCondition {
	now := metav1.NewTime(r.now())
	return appsv1.DeploymentCondition{Type: t, Status: status, LastUpdateTime: now, LastTransitionTime: now, Reason: reason, Message: message}
}

func condition(s *appsv1.DeploymentStatus, t appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == t {
			return &s.Conditions[i]
		}
	}
	return nil
}

// setCondition replaces the condition of the type, unless status and reason stay the same: the
// update time tells when the condition changed.
func setCondition(s *appsv1.DeploymentStatus, c appsv1.DeploymentCondition) {
	if have := condition(s, c.Type); have != nil {
		if have.Status == c.Status && have.Reason == c.Reason {
			return
		}
		if have.Status == c.Status {
			c.LastTransitionTime = have.LastTransitionTime
		}
	}
	removeCondition(s, c.Type)
	s.Conditions = append(s.Conditions, c)
}

func removeCondition(s *appsv1.DeploymentStatus, t appsv1.DeploymentConditionType) {
	s.Conditions = slices.DeleteFunc(slices.Clone(s.Conditions), func(c appsv1.DeploymentCondition) bool { return c.Type == t })
}

// recordPaused records in Progressing that the deployment was paused or resumed. The time of a
// pause does not count towards the deadline.
func (r *rollout) recordPaused(ctx context.Context) error {
	if !r.hasDeadline() {
		return nil
	}
	have := condition(&r.d.Status, appsv1.DeploymentProgressing)
	if have != nil && have.Reason == reasonDeadline {
		return nil
	}
	noted := have != nil && have.Reason == reasonPaused
	switch {
	case r.d.Spec.Paused && !noted:
		setCondition(&r.d.Status, r.condition(appsv1.DeploymentProgressing, corev1.ConditionUnknown, reasonPaused, "Deployment is paused"))
	case !r.d.Spec.Paused && noted:
		setCondition(&r.d.Status, r.condition(appsv1.DeploymentProgressing, corev1.ConditionUnknown, reasonResumed, "Deployment is resumed"))
	default:
		return nil
	}
	updated, err := client.UpdateStatus(ctx, r.env.Client, r.d)
	if err != nil {
		return err
	}
	r.d = updated.DeepCopy()
	return nil
}

// calculate sums up the sets' status.
func (r *rollout) calculate() appsv1.DeploymentStatus {
	status := appsv1.DeploymentStatus{
		ObservedGeneration: r.d.Generation,
		CollisionCount:     r.d.Status.CollisionCount,
		Conditions:         slices.Clone(r.d.Status.Conditions),
	}
	terminating, known := int32(0), false
	for _, rs := range r.all {
		status.Replicas += rs.Status.Replicas
		status.ReadyReplicas += rs.Status.ReadyReplicas
		status.AvailableReplicas += rs.Status.AvailableReplicas
		if rs.Status.TerminatingReplicas != nil {
			terminating, known = terminating+*rs.Status.TerminatingReplicas, true
		}
	}
	if known || len(r.all) == 0 {
		status.TerminatingReplicas = &terminating
	}
	status.UnavailableReplicas = max(0, wanted(r.all)-status.AvailableReplicas)
	if r.newSet != nil {
		status.UpdatedReplicas = r.newSet.Status.Replicas
	}
	_, unavailable := r.limits()
	if status.AvailableReplicas >= r.replicas()-unavailable {
		setCondition(&status, r.condition(appsv1.DeploymentAvailable, corev1.ConditionTrue, reasonMinimum, "Deployment has minimum availability."))
	} else {
		setCondition(&status, r.condition(appsv1.DeploymentAvailable, corev1.ConditionFalse, reasonTooFew, "Deployment does not have minimum availability."))
	}
	return status
}

// syncStatus writes the counts and does not change Progressing.
func (r *rollout) syncStatus(ctx context.Context) error {
	return r.write(ctx, r.calculate())
}

func (r *rollout) write(ctx context.Context, status appsv1.DeploymentStatus) error {
	if equality.Semantic.DeepEqual(r.d.Status, status) {
		return nil
	}
	r.d.Status = status
	_, err := client.UpdateStatus(ctx, r.env.Client, r.d)
	return err
}

// complete reports whether all replicas are of the new template and available, and the status is
// about the current spec.
func (r *rollout) complete(s *appsv1.DeploymentStatus) bool {
	return s.UpdatedReplicas == r.replicas() && s.Replicas == r.replicas() && s.AvailableReplicas == r.replicas() && s.ObservedGeneration >= r.d.Generation
}

// progressing reports whether the new status is better than the previous one.
func (r *rollout) progressing(s *appsv1.DeploymentStatus) bool {
	was := r.d.Status
	return s.UpdatedReplicas > was.UpdatedReplicas || s.Replicas-s.UpdatedReplicas < was.Replicas-was.UpdatedReplicas ||
		s.ReadyReplicas > was.ReadyReplicas || s.AvailableReplicas > was.AvailableReplicas
}

// syncRolloutStatus writes the counts and the state of the rollout, and requeues at the deadline.
func (r *rollout) syncRolloutStatus(ctx context.Context) (controller.Result, error) {
	status := r.calculate()
	if !r.hasDeadline() {
		removeCondition(&status, appsv1.DeploymentProgressing)
	} else {
		r.judge(&status)
	}
	if failure := r.failure(); failure != nil {
		setCondition(&status, *failure)
	} else {
		removeCondition(&status, appsv1.DeploymentReplicaFailure)
	}
	if err := r.write(ctx, status); err != nil {
		return controller.Result{}, err
	}
	return controller.Result{After: r.untilDeadline(&status)}, nil
}

// judge sets the condition Progressing.
func (r *rollout) judge(status *appsv1.DeploymentStatus) {
	have := condition(&r.d.Status, appsv1.DeploymentProgressing)
	if have != nil && have.Reason == reasonAvailable && status.Replicas == status.UpdatedReplicas {
		// The rollout was complete, and the template has not changed since. The loss of a pod is no
		// rollout.
		return
	}
	name := fmt.Sprintf("Deployment %q", r.d.Name)
	if r.newSet != nil {
		name = fmt.Sprintf("ReplicaSet %q", r.newSet.Name)
	}
	switch {
	case r.complete(status):
		setCondition(status, r.condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonAvailable, name+" has successfully progressed."))
	case r.progressing(status):
		c := r.condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonUpdated, name+" is progressing.")
		if have != nil {
			if have.Status == c.Status {
				c.LastTransitionTime = have.LastTransitionTime
			}
			// Each progress restarts the deadline.
			removeCondition(status, appsv1.DeploymentProgressing)
		}
		setCondition(status, c)
	case r.late(status):
		setCondition(status, r.condition(appsv1.DeploymentProgressing, corev1.ConditionFalse, reasonDeadline, name+" has timed out progressing."))
	}
}

func (r *rollout) deadline() time.Duration {
	return time.Duration(*r.d.Spec.ProgressDeadlineSeconds) * time.Second
}

// late reports whether nothing has progressed for progressDeadlineSeconds.
func (r *rollout) late(status *appsv1.DeploymentStatus) bool {
	c := condition(status, appsv1.DeploymentProgressing)
	if c == nil || c.Reason == reasonAvailable {
		return false
	}
	return c.Reason == reasonDeadline || r.now().After(c.LastUpdateTime.Add(r.deadline()))
}

// untilDeadline returns the time until the rollout may be late; 0 if it cannot be.
func (r *rollout) untilDeadline(status *appsv1.DeploymentStatus) time.Duration {
	if !r.hasDeadline() || r.complete(status) {
		return 0
	}
	c := condition(status, appsv1.DeploymentProgressing)
	if c == nil || c.Reason == reasonAvailable || c.Reason == reasonDeadline {
		return 0
	}
	return max(c.LastUpdateTime.Add(r.deadline()).Sub(r.now()), 0) + time.Second
}

// failure returns the condition ReplicaFailure of the sets, the new set's first.
func (r *rollout) failure() *appsv1.DeploymentCondition {
	sets := r.old
	if r.newSet != nil {
		sets = append([]*appsv1.ReplicaSet{r.newSet}, r.old...)
	}
	for _, rs := range sets {
		for _, c := range rs.Status.Conditions {
			if c.Type == appsv1.ReplicaSetReplicaFailure {
				return &appsv1.DeploymentCondition{Type: appsv1.DeploymentReplicaFailure, Status: c.Status, Reason: c.Reason, Message: c.Message,
					LastTransitionTime: c.LastTransitionTime, LastUpdateTime: c.LastTransitionTime}
			}
		}
	}
	return nil
}
