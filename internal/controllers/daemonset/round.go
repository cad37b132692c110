package daemonset

import (
	"cmp"
	"context"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// round is the work of one call on one set.
type round struct {
	*daemonSets
	ds     *appsv1.DaemonSet
	hash   string
	onNode map[string][]*corev1.Pod
	wait   time.Duration // time until the next step is due; 0 means never
}

// sort groups the pods by node, the oldest first.
func (r *round) sort(pods []*corev1.Pod) {
	r.onNode = map[string][]*corev1.Pod{}
	for _, p := range pods {
		node := nodeOf(p)
		r.onNode[node] = append(r.onNode[node], p)
	}
	for _, pods := range r.onNode {
		slices.SortFunc(pods, func(a, b *corev1.Pod) int {
			if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
				return c
			}
			return cmp.Compare(a.Name, b.Name)
		})
	}
}

func (r *round) requeueIn(d time.Duration) {
	if d > 0 && (r.wait == 0 || d < r.wait) {
		r.wait = d
	}
}

// limits returns maxSurge and maxUnavailable as numbers of pods, both rounded up, of the nodes that
// should run one.
func (r *round) limits() (surge, unavailable int) {
	desired := 0
	for _, node := range r.nodes.List("", nil) {
		if run, _ := fits(r.ds, node); run {
			desired++
		}
	}
	scaled := func(v *intstr.IntOrString) int {
		if v == nil {
			return 0
		}
		n, err := intstr.GetScaledValueFromIntOrPercent(v, desired, true)
		if err != nil {
			return 0
		}
		return n
	}
	u := r.ds.Spec.UpdateStrategy.RollingUpdate
	if r.ds.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType || u == nil {
		return 0, 0
	}
	surge, unavailable = scaled(u.MaxSurge), scaled(u.MaxUnavailable)
	if desired > 0 && surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return surge, unavailable
}

func (r *round) allowsSurge() bool {
	surge, _ := r.limits()
	return surge > 0
}

func (r *round) isNew(p *corev1.Pod) bool { return p.Labels[hashLabel] == r.hash }

func (r *round) available(p *corev1.Pod) bool {
	ok, wait := controller.PodAvailable(p, r.ds.Spec.MinReadySeconds, r.now())
	r.requeueIn(wait)
	return ok
}

// manage creates and deletes pods until every fitting node has one pod and no other node has any.
func (r *round) manage(ctx context.Context) error {
	var create []string
	var remove []*corev1.Pod
	surge := r.allowsSurge()
	existing := map[string]bool{}
	for _, node := range r.nodes.List("", nil) {
		existing[node.Name] = true
		run, stay := fits(r.ds, node)
		pods := r.onNode[node.Name]
		switch {
		case run && len(pods) == 0:
			create = append(create, node.Name)
		case stay:
			gone, need := r.excessPods(node.Name, pods, surge)
			remove = append(remove, gone...)
			if need && run {
				create = append(create, node.Name)
			}
		default:
			for _, p := range pods {
				if p.DeletionTimestamp == nil {
					remove = append(remove, p)
				}
			}
		}
	}
	for node, pods := range r.onNode {
		if existing[node] {
			continue
		}
		// Pinned to a node that is gone, so they are never bound; the pod GC deletes bound ones.
		for _, p := range pods {
			if p.Spec.NodeName == "" && p.DeletionTimestamp == nil {
				remove = append(remove, p)
			}
		}
	}
	return r.apply(ctx, create, remove)
}

// excessPods chooses which of a node's pods to delete, and whether the node needs another pod.
func (r *round) excessPods(node string, pods []*corev1.Pod, surge bool) (remove []*corev1.Pod, need bool) {
	var running []*corev1.Pod
	gone := 0
	for _, p := range pods {
		switch {
		case p.DeletionTimestamp != nil:
			gone++
		case p.Status.Phase == corev1.PodFailed:
			if wait := r.failedPause(node); wait > 0 {
				r.requeueIn(wait)
				continue
			}
			r.env.Events.Eventf(r.ds, p, corev1.EventTypeWarning, "FailedDaemonPod", "Delete", "Found failed daemon pod %s/%s on node %s, will try to kill it", p.Namespace, p.Name, node)
			remove = append(remove, p)
		case p.Status.Phase == corev1.PodSucceeded:
			r.env.Events.Eventf(r.ds, p, corev1.EventTypeNormal, "SucceededDaemonPod", "Delete", "Found succeeded daemon pod %s/%s on node %s, will try to delete it", p.Namespace, p.Name, node)
			remove = append(remove, p)
		default:
			running = append(running, p)
		}
	}
	if !surge {
		if len(running) > 1 {
			remove = append(remove, running[1:]...)
		}
		return remove, false
	}
	// During a surge, a pod that is being deleted does not delay its successor, and the oldest old
	// pod may stay beside the oldest new one until that is available.
	if gone == len(pods) {
		return remove, true
	}
	var oldest, newest *corev1.Pod
	for _, p := range running {
		if r.isNew(p) {
			if newest == nil {
				newest = p
			} else {
				remove = append(remove, p)
			}
		} else if oldest == nil {
			oldest = p
		} else {
			remove = append(remove, p)
		}
	}
	if oldest != nil && newest != nil && r.available(newest) {
		remove = append(remove, oldest)
	}
	return remove, false
}

// failedPause returns the delay before a failed pod on the node is replaced. It doubles with each
// failure.
func (r *round) failedPause(node string) time.Duration {
	id := string(r.ds.UID) + "/" + r.hash + "/" + node
	now := r.failed.Clock.Now()
	if r.failed.IsInBackOffSinceUpdate(id, now) {
		return r.failed.Get(id)
	}
	r.failed.Next(id, now)
	return 0
}

// apply deletes and creates pods.
func (r *round) apply(ctx context.Context, create []string, remove []*corev1.Pod) error {
	remove = remove[:min(len(remove), burst)]
	create = create[:min(len(create), burst)]
	if err := controller.All(len(remove), func(i int) error { return r.control.Delete(ctx, r.ds, remove[i]) }); err != nil {
		return err
	}
	_, err := controller.SlowStart(len(create), 1, func(i int) error {
		_, err := r.control.Create(ctx, r.ds, podFor(r.ds, create[i], r.hash))
		return err
	})
	return err
}

// rollingUpdate replaces old pods by new ones within maxUnavailable or maxSurge.
func (r *round) rollingUpdate(ctx context.Context) error {
	surge, unavailable := r.limits()
	if surge > 0 {
		return r.surge(ctx, surge)
	}
	var broken, candidates []*corev1.Pod
	down := 0
	for _, node := range r.nodes.List("", nil) {
		run, _ := fits(r.ds, node)
		oldPod, newPod, ok := r.pair(r.onNode[node.Name])
		if !ok || (oldPod == nil && newPod == nil) || (oldPod != nil && newPod != nil) {
			if run || len(r.onNode[node.Name]) > 0 {
				down++ // manage replaces these
			}
			continue
		}
		switch {
		case newPod != nil:
			if !r.available(newPod) {
				down++
			}
		case !r.available(oldPod):
			broken = append(broken, oldPod)
			down++
		default:
			candidates = append(candidates, oldPod)
		}
	}
	budget := max(0, unavailable-down)
	candidates = candidates[:min(budget, len(candidates))]
	return r.apply(ctx, nil, append(broken, candidates...))
}

// surge creates new pods beside old ones. An old pod is deleted once its successor is available, or
// at once if the old pod is unavailable.
func (r *round) surge(ctx context.Context, limit int) error {
	var remove []*corev1.Pod
	var free, candidates []string
	surging := 0
	for _, node := range r.nodes.List("", nil) {
		if run, _ := fits(r.ds, node); !run {
			continue
		}
		oldPod, newPod, ok := r.pair(r.onNode[node.Name])
		if !ok {
			surging++
			continue
		}
		switch {
		case oldPod == nil:
		case newPod == nil:
			if !r.available(oldPod) {
				free = append(free, node.Name) // the old pod is unavailable anyway
			} else {
				candidates = append(candidates, node.Name)
			}
		case r.available(newPod):
			remove = append(remove, oldPod)
		default:
			if !r.available(oldPod) {
				remove = append(remove, oldPod)
			}
			surging++
		}
	}
	budget := max(0, limit-surging)
	create := append(free, candidates[:min(budget, len(candidates))]...)
	return r.apply(ctx, create, remove)
}

// pair returns a node's old and new pod; ok is false if there is more than one of either.
func (r *round) pair(pods []*corev1.Pod) (oldPod, newPod *corev1.Pod, ok bool) {
	for _, p := range pods {
		if p.DeletionTimestamp != nil || controller.PodEnded(p) {
			continue
		}
		if r.isNew(p) {
			if newPod != nil {
				return nil, nil, false
			}
			newPod = p
		} else {
			if oldPod != nil {
				return nil, nil, false
			}
			oldPod = p
		}
	}
	return oldPod, newPod, true
}

// writeStatus counts nodes by the oldest pod on each.
func (r *round) writeStatus(ctx context.Context) error {
	status := appsv1.DaemonSetStatus{
		ObservedGeneration: r.ds.Generation,
		CollisionCount:     r.ds.Status.CollisionCount,
		Conditions:         r.ds.Status.Conditions,
	}
	for _, node := range r.nodes.List("", nil) {
		run, _ := fits(r.ds, node)
		pods := r.onNode[node.Name]
		if !run {
			if len(pods) > 0 {
				status.NumberMisscheduled++
			}
			continue
		}
		status.DesiredNumberScheduled++
		if len(pods) == 0 {
			continue
		}
		status.CurrentNumberScheduled++
		p := pods[0]
		// A pod that is being deleted does not count if another one is there.
		for _, other := range pods {
			if other.DeletionTimestamp == nil && (p.DeletionTimestamp != nil || (controller.PodReady(other) && !controller.PodReady(p))) {
				p = other
			}
		}
		if controller.PodReady(p) {
			status.NumberReady++
			if r.available(p) {
				status.NumberAvailable++
			}
		}
		if r.isNew(p) {
			status.UpdatedNumberScheduled++
		}
	}
	status.NumberUnavailable = status.DesiredNumberScheduled - status.NumberAvailable
	if equality.Semantic.DeepEqual(r.ds.Status, status) {
		return nil
	}
	ds := r.ds.DeepCopy()
	ds.Status = status
	if fresh, ok := r.sets.Get(ds.Namespace, ds.Name); ok && fresh.UID == ds.UID && fresh.Status.CollisionCount != nil {
		ds.Status.CollisionCount = fresh.Status.CollisionCount
		ds.ResourceVersion = fresh.ResourceVersion
	}
	_, err := client.UpdateStatus(ctx, r.env.Client, ds)
	return err
}
