package deployment

import (
	"context"
	"math"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// rolling takes one step of a rolling update: it scales the new set up, or else the old sets down.
func (r *rollout) rolling(ctx context.Context) (controller.Result, error) {
	if err := r.classify(ctx, true); err != nil {
		return controller.Result{}, err
	}
	scaled, err := r.scaleNew(ctx)
	if err != nil {
		return controller.Result{}, err
	}
	if !scaled {
		if scaled, err = r.scaleOldDown(ctx); err != nil {
			return controller.Result{}, err
		}
	}
	if !scaled && r.complete(&r.d.Status) {
		if err := r.cleanUp(ctx); err != nil {
			return controller.Result{}, err
		}
	}
	return r.syncRolloutStatus(ctx)
}

// recreate ends every old pod before it creates the first new one.
func (r *rollout) recreate(ctx context.Context) (controller.Result, error) {
	if err := r.classify(ctx, false); err != nil {
		return controller.Result{}, err
	}
	scaled := false
	for _, rs := range active(r.old) {
		if err := r.scale(ctx, rs, 0); err != nil {
			return controller.Result{}, err
		}
		scaled = true
	}
	if scaled || r.oldPodsLive() {
		return r.syncRolloutStatus(ctx)
	}
	if r.newSet == nil {
		if err := r.classify(ctx, true); err != nil {
			return controller.Result{}, err
		}
	}
	if _, err := r.scaleNew(ctx); err != nil {
		return controller.Result{}, err
	}
	if r.complete(&r.d.Status) {
		if err := r.cleanUp(ctx); err != nil {
			return controller.Result{}, err
		}
	}
	return r.syncRolloutStatus(ctx)
}

// oldPodsLive reports whether a pod of an old set has not ended yet.
func (r *rollout) oldPodsLive() bool {
	for _, rs := range r.old {
		for _, p := range controller.Controlled(r.pods, rs.UID) {
			if !controller.PodEnded(p) {
				return true
			}
		}
	}
	return false
}

// newReplicas returns the size that the new set may have now.
func (r *rollout) newReplicas(newSet *appsv1.ReplicaSet, all []*appsv1.ReplicaSet) int32 {
	if r.d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return r.replicas()
	}
	surge, _ := r.limits()
	have := replicasOf(newSet.Spec.Replicas)
	room := r.replicas() + surge - wanted(all)
	if room <= 0 {
		return have
	}
	return have + min(room, r.replicas()-have)
}

// scaleNew changes the new set towards its size.
func (r *rollout) scaleNew(ctx context.Context) (bool, error) {
	if r.newSet == nil {
		return false, nil
	}
	have := replicasOf(r.newSet.Spec.Replicas)
	want := r.replicas()
	if have < want {
		want = r.newReplicas(r.newSet, r.all)
	}
	if have == want {
		return false, nil
	}
	return true, r.scale(ctx, r.newSet, want)
}

// scaleOldDown removes replicas from the old sets: first unavailable ones, then as many as
// maxUnavailable allows. Unavailable replicas of the new set reduce that number.
func (r *rollout) scaleOldDown(ctx context.Context) (bool, error) {
	old := active(r.old)
	if len(old) == 0 || r.newSet == nil {
		return false, nil
	}
	_, unavailable := r.limits()
	least := r.replicas() - unavailable
	newUnavailable := replicasOf(r.newSet.Spec.Replicas) - r.newSet.Status.AvailableReplicas
	budget := wanted(r.all) - least - newUnavailable
	if budget <= 0 {
		return false, nil
	}
	slices.SortFunc(old, byAge)
	target := map[*appsv1.ReplicaSet]int32{}
	for _, rs := range old {
		size := replicasOf(rs.Spec.Replicas)
		broken := max(0, min(budget, size-rs.Status.AvailableReplicas))
		target[rs] = size - broken
		budget -= broken
	}
	spare := available(r.all) - least
	for _, rs := range old {
		if spare <= 0 {
			break
		}
		n := min(spare, target[rs])
		target[rs] -= n
		spare -= n
	}
	scaled := false
	for _, rs := range old {
		if target[rs] == replicasOf(rs.Spec.Replicas) {
			continue
		}
		if err := r.scale(ctx, rs, target[rs]); err != nil {
			return scaled, err
		}
		scaled = true
	}
	return scaled, nil
}

// scale sets a set's size and sends an Event.
func (r *rollout) scale(ctx context.Context, rs *appsv1.ReplicaSet, size int32) error {
	from := replicasOf(rs.Spec.Replicas)
	changed := rs.DeepCopy()
	annotated := r.annotateSize(changed)
	if from == size && !annotated {
		return nil
	}
	changed.Spec.Replicas = &size
	updated, err := client.Update(ctx, r.env.Client, changed)
	if err != nil {
		return err
	}
	r.replace(updated)
	if from != size {
		direction := "up"
		if size < from {
			direction = "down"
		}
		r.env.Events.Eventf(r.d, rs, corev1.EventTypeNormal, "ScalingReplicaSet", "Scale", "Scaled %s replica set %s from %d to %d", direction, rs.Name, from, size)
	}
	return nil
}

// beingScaled reports whether the deployment's size changed since its sets were last sized.
func (r *rollout) beingScaled() bool {
	for _, rs := range active(r.all) {
		desired, err := strconv.Atoi(rs.Annotations[annotationDesired])
		if err == nil && int32(desired) != r.replicas() {
			return true
		}
	}
	return false
}

// scaleOnly sizes the sets without continuing the rollout: while paused, or if only the size
// changed.
func (r *rollout) scaleOnly(ctx context.Context) error {
	if err := r.classify(ctx, false); err != nil {
		return err
	}
	if err := r.distribute(ctx); err != nil {
		return err
	}
	if r.d.Spec.Paused {
		if err := r.cleanUp(ctx); err != nil {
			return err
		}
	}
	return r.syncStatus(ctx)
}

// distribute brings the sets to the deployment's size. A single active set gets all replicas, and
// so does the new set once it is saturated. During a rolling update each set grows in proportion to
// its size, which keeps the risk the same.
func (r *rollout) distribute(ctx context.Context) error {
	live := active(r.all)
	switch {
	case len(live) == 1:
		return r.scale(ctx, live[0], r.replicas())
	case len(live) == 0:
		latest := r.newSet
		if latest == nil && len(r.old) > 0 {
			latest = slices.MaxFunc(r.old, byAge)
		}
		if latest == nil {
			return nil
		}
		return r.scale(ctx, latest, r.replicas())
	case r.saturated():
		for _, rs := range active(r.old) {
			if err := r.scale(ctx, rs, 0); err != nil {
				return err
			}
		}
		return nil
	case r.d.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType:
		return r.distributeInProportion(ctx, live)
	}
	return nil
}

// saturated reports whether the new set has all replicas and all are available.
func (r *rollout) saturated() bool {
	if r.newSet == nil {
		return false
	}
	desired, err := strconv.Atoi(r.newSet.Annotations[annotationDesired])
	return err == nil && replicasOf(r.newSet.Spec.Replicas) == r.replicas() && int32(desired) == r.replicas() && r.newSet.Status.AvailableReplicas == r.replicas()
}

func (r *rollout) distributeInProportion(ctx context.Context, live []*appsv1.ReplicaSet) error {
	surge, _ := r.limits()
	allowed := int32(0)
	if r.replicas() > 0 {
		allowed = r.replicas() + surge
	}
	missing := allowed - wanted(live)
	// The largest set comes first. Of two sets of one size, the newer one grows first and the older
	// one shrinks first.
	slices.SortFunc(live, func(a, b *appsv1.ReplicaSet) int {
		if d := replicasOf(b.Spec.Replicas) - replicasOf(a.Spec.Replicas); d != 0 {
			return int(d)
		}
		if missing > 0 {
			return byAge(b, a)
		}
		return byAge(a, b)
	})
	sizes := make([]int32, len(live))
	given := int32(0)
	for i, rs := range live {
		sizes[i] = replicasOf(rs.Spec.Replicas)
		if missing == 0 {
			continue
		}
		share := r.share(rs, allowed)
		if missing > 0 {
			share = min(share, missing-given)
		} else {
			share = max(share, missing-given)
		}
		sizes[i] += share
		given += share
	}
	if len(live) > 0 {
		sizes[0] = max(0, sizes[0]+missing-given) // the rest from rounding
	}
	for i, rs := range live {
		if err := r.scale(ctx, rs, sizes[i]); err != nil {
			return err
		}
	}
	return nil
}

// share returns the number of replicas a set gains (or loses, below zero) if all sets together get
// allowed.
func (r *rollout) share(rs *appsv1.ReplicaSet, allowed int32) int32 {
	have := replicasOf(rs.Spec.Replicas)
	if allowed == 0 {
		return -have
	}
	before := r.d.Status.Replicas
	if n, err := strconv.Atoi(rs.Annotations[annotationMax]); err == nil && n > 0 {
		before = int32(n)
	}
	if before == 0 {
		return 0
	}
	return int32(math.Round(float64(have)*float64(allowed)/float64(before))) - have
}
