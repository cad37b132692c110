package statefulset

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// claimWait is the delay before a claim that is being deleted is checked again.
const claimWait = time.Second

// round is the work of one call on one set; set is a private copy.
type round struct {
	*statefulSets
	set             *appsv1.StatefulSet
	pods            []*corev1.Pod
	all             []*appsv1.ControllerRevision
	current, update *appsv1.ControllerRevision

	replicas  []*corev1.Pod // by ordinal minus start; nil if there is no pod
	condemned []*corev1.Pod // from the highest ordinal down

	mu   sync.Mutex // guards wait: Parallel replicas are handled concurrently
	wait time.Duration
}

func (r *round) start() int {
	if r.set.Spec.Ordinals == nil {
		return 0
	}
	return int(r.set.Spec.Ordinals.Start)
}

func (r *round) count() int {
	if r.set.Spec.Replicas == nil {
		return 1
	}
	return int(*r.set.Spec.Replicas)
}

// wanted reports whether the ordinal is one of the set's replicas.
func (r *round) wanted(ordinal int) bool {
	return ordinal >= r.start() && ordinal < r.start()+r.count()
}

func (r *round) ordered() bool {
	return r.set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement
}

// sort divides the pods into replicas and condemned ones.
func (r *round) sort() {
	r.replicas = make([]*corev1.Pod, r.count())
	r.condemned = nil
	for _, p := range r.pods {
		_, ordinal := splitName(p.Name)
		switch {
		case r.wanted(ordinal):
			r.replicas[ordinal-r.start()] = p
		case ordinal >= 0:
			r.condemned = append(r.condemned, p)
		}
	}
	slices.SortFunc(r.condemned, func(a, b *corev1.Pod) int {
		_, x := splitName(a.Name)
		_, y := splitName(b.Name)
		return y - x
	})
}

func (r *round) requeueIn(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d > 0 && (r.wait == 0 || d < r.wait) {
		r.wait = d
	}
}

func runningAndReady(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodRunning && controller.PodReady(p)
}

func healthy(p *corev1.Pod) bool { return runningAndReady(p) && p.DeletionTimestamp == nil }

func (r *round) available(p *corev1.Pod) bool {
	ok, wait := controller.PodAvailable(p, r.set.Spec.MinReadySeconds, r.now())
	r.requeueIn(wait)
	return ok && p.Status.Phase == corev1.PodRunning
}

// act takes the steps that are due: replicas first, then the condemned, then the update.
func (r *round) act(ctx context.Context) error {
	if r.set.DeletionTimestamp != nil {
		return nil
	}
	// Update the claims' owners first. They decide what happens when the set is deleted, in any
	// state of its pods.
	for _, p := range r.pods {
		_, ordinal := splitName(p.Name)
		if err := r.updateClaims(ctx, p, ordinal); err != nil {
			return err
		}
	}
	if stop, err := r.keepReplicas(ctx); stop || err != nil {
		return err
	}
	if stop, err := r.removeCondemned(ctx); stop || err != nil {
		return err
	}
	return r.rollingUpdate(ctx)
}

// keepReplicas creates missing replicas and waits, in order, for those that are not ready. stop
// means that the call ends.
func (r *round) keepReplicas(ctx context.Context) (stop bool, err error) {
	if !r.ordered() {
		_, err := controller.SlowStart(len(r.replicas), 1, func(i int) error {
			_, err := r.keepReplica(ctx, i)
			return err
		})
		return err != nil, err
	}
	for i := range r.replicas {
		if stop, err := r.keepReplica(ctx, i); stop || err != nil {
			return true, err
		}
	}
	return false, nil
}

// keepReplica handles one replica. stop means that the later replicas, in order, have to wait.
func (r *round) keepReplica(ctx context.Context, i int) (stop bool, err error) {
	ordinal := r.start() + i
	p := r.replicas[i]
	switch {
	case p == nil:
		if r.staleClaim(ordinal) {
			r.requeueIn(claimWait)
			return true, nil
		}
		return true, r.create(ctx, i, ordinal)
	case controller.PodEnded(p):
		if p.DeletionTimestamp == nil {
			reason, what := "RecreatingFailedPod", "failed"
			if p.Status.Phase == corev1.PodSucceeded {
				reason, what = "RecreatingTerminatedPod", "terminated"
			}
			r.env.Events.Eventf(r.set, p, corev1.EventTypeWarning, reason, "Recreate", "StatefulSet %s/%s is recreating %s Pod %s", r.set.Namespace, r.set.Name, what, p.Name)
			return true, r.delete(ctx, p)
		}
		return true, nil
	case p.DeletionTimestamp != nil:
		return true, nil
	case p.Status.Phase == corev1.PodPending || p.Status.Phase == "":
		if err := r.ensureClaims(ctx, p, ordinal); err != nil {
			return true, err
		}
		if err := r.keepIdentity(ctx, i, ordinal); err != nil {
			return true, err
		}
		return true, nil
	}
	if err := r.keepIdentity(ctx, i, ordinal); err != nil {
		return true, err
	}
	return !runningAndReady(p) || !r.available(p), nil
}

// keepIdentity restores labels that were removed.
func (r *round) keepIdentity(ctx context.Context, i, ordinal int) error {
	p := r.replicas[i].DeepCopy()
	if !identify(r.set, p, ordinal) {
		return nil
	}
	updated, err := client.Update(ctx, r.env.Client, p)
	if err == nil {
		r.replicas[i] = updated
	}
	return err
}

// create creates the claims of an ordinal, then its pod.
func (r *round) create(ctx context.Context, i, ordinal int) error {
	revision := r.update
	if r.current.Name != r.update.Name && r.staysCurrent(ordinal) {
		revision = r.current
	}
	p, err := podFor(r.set, revision, ordinal)
	if err == nil {
		err = r.ensureClaims(ctx, p, ordinal)
	}
	var created *corev1.Pod
	if err == nil {
		created, err = client.Create(ctx, r.env.Client, p)
	}
	switch {
	case apierrors.IsAlreadyExists(err):
		return fmt.Errorf("create pod %s: %w", p.Name, err)
	case err != nil:
		if !controller.NamespaceTerminating(err) {
			r.env.Events.Eventf(r.set, nil, corev1.EventTypeWarning, "FailedCreate", "Create", "Create Pod %s in StatefulSet %s failed error: %s", podName(r.set, ordinal), r.set.Name, err)
		}
		return err
	}
	r.env.Events.Eventf(r.set, created, corev1.EventTypeNormal, "SuccessfulCreate", "Create", "Create Pod %s in StatefulSet %s successful", created.Name, r.set.Name)
	r.replicas[i] = created
	return nil
}

// staysCurrent reports whether the ordinal's pod stays at the current revision: it is below the
// partition, or the rollout has not reached it.
func (r *round) staysCurrent(ordinal int) bool {
	if r.set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
		return false
	}
	if u := r.set.Spec.UpdateStrategy.RollingUpdate; u != nil && u.Partition != nil {
		return ordinal < r.start()+int(*u.Partition)
	}
	return ordinal < r.start()+int(r.set.Status.CurrentReplicas)
}

func (r *round) delete(ctx context.Context, p *corev1.Pod) error {
	err := client.Delete[*corev1.Pod](ctx, r.env.Client, p.Namespace, p.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		r.env.Events.Eventf(r.set, p, corev1.EventTypeWarning, "FailedDelete", "Delete", "Delete Pod %s in StatefulSet %s failed error: %s", p.Name, r.set.Name, err)
		return fmt.Errorf("delete pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	r.env.Events.Eventf(r.set, p, corev1.EventTypeNormal, "SuccessfulDelete", "Delete", "Delete Pod %s in StatefulSet %s successful", p.Name, r.set.Name)
	return nil
}

// removeCondemned deletes the pods outside the wanted ordinals, the highest first. In order, each
// waits until all below it are healthy, unless it is itself the unhealthy one.
func (r *round) removeCondemned(ctx context.Context) (stop bool, err error) {
	unhealthy := r.firstUnhealthy()
	for _, p := range r.condemned {
		if p.DeletionTimestamp != nil {
			if r.ordered() {
				return true, nil
			}
			continue
		}
		if r.ordered() && !runningAndReady(p) && unhealthy != nil && p != unhealthy {
			return true, nil
		}
		if err := r.delete(ctx, p); err != nil {
			return true, err
		}
		if r.ordered() {
			return true, nil
		}
	}
	return false, nil
}

// firstUnhealthy returns the unhealthy pod of the lowest ordinal.
func (r *round) firstUnhealthy() *corev1.Pod {
	var unhealthy *corev1.Pod
	lowest := 0
	for _, p := range append(slices.Clone(r.replicas), r.condemned...) {
		if p == nil || healthy(p) {
			continue
		}
		if _, ordinal := splitName(p.Name); unhealthy == nil || ordinal < lowest {
			unhealthy, lowest = p, ordinal
		}
	}
	return unhealthy
}

// rollingUpdate deletes the pod of the highest ordinal that is not of the update revision; the next
// call creates it in the new revision. It deletes one pod at a time, and only while all above it
// are healthy.
func (r *round) rollingUpdate(ctx context.Context) error {
	if r.set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
		return nil
	}
	partition := 0
	if u := r.set.Spec.UpdateStrategy.RollingUpdate; u != nil && u.Partition != nil {
		partition = int(*u.Partition)
	}
	for i := len(r.replicas) - 1; i >= partition; i-- {
		p := r.replicas[i]
		if p == nil {
			return nil
		}
		if p.Labels[appsv1.StatefulSetRevisionLabel] != r.update.Name && p.DeletionTimestamp == nil {
			if err := r.delete(ctx, p); err != nil {
				return err
			}
			return nil
		}
		if !healthy(p) || !r.available(p) {
			return nil
		}
	}
	return nil
}

// writeStatus counts the pods after act: the View contains its changes.
func (r *round) writeStatus(ctx context.Context) error {
	status := appsv1.StatefulSetStatus{
		ObservedGeneration: r.set.Generation,
		CurrentRevision:    r.current.Name,
		UpdateRevision:     r.update.Name,
		CollisionCount:     cmp.Or(r.set.Status.CollisionCount, new(int32)),
		Conditions:         r.set.Status.Conditions,
	}
	ready := int32(0)
	for _, p := range controller.Controlled(r.statefulSets.pods, r.set.UID) {
		if parent, ordinal := splitName(p.Name); parent != r.set.Name || ordinal < 0 {
			continue
		}
		status.Replicas++
		if runningAndReady(p) {
			status.ReadyReplicas++
			if p.DeletionTimestamp == nil {
				ready++
			}
			if r.available(p) {
				status.AvailableReplicas++
			}
		}
		if p.DeletionTimestamp != nil {
			continue
		}
		revision := p.Labels[appsv1.StatefulSetRevisionLabel]
		if revision == r.current.Name {
			status.CurrentReplicas++
		}
		if revision == r.update.Name {
			status.UpdatedReplicas++
		}
	}
	// The rollout is complete when all replicas are ready and of the update revision.
	if r.set.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType &&
		status.UpdatedReplicas == int32(r.count()) && status.Replicas == status.UpdatedReplicas && ready == status.Replicas {
		status.CurrentReplicas = status.UpdatedReplicas
		status.CurrentRevision = status.UpdateRevision
	}
	if equality.Semantic.DeepEqual(r.set.Status, status) {
		return nil
	}
	r.set.Status = status
	_, err := client.UpdateStatus(ctx, r.env.Client, r.set)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("status of stateful set %s/%s: %w", r.set.Namespace, r.set.Name, err)
	}
	return nil
}
