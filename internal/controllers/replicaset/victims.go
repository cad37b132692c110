package replicaset

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/controller"
)

// victims chooses the pods to delete if there are too many, in the order of the API reference
// (controller.kubernetes.io/pod-deletion-cost).
func (s *sets[T]) victims(rs *appsv1.ReplicaSet, active []*corev1.Pod, count int) []*corev1.Pod {
	if count >= len(active) {
		return active
	}
	crowd := s.podsPerNode(rs)
	now := s.now()
	sorted := slices.Clone(active)
	slices.SortStableFunc(sorted, func(a, b *corev1.Pod) int {
		return compare(a, b, crowd[a.Spec.NodeName], crowd[b.Spec.NodeName], now)
	})
	return sorted[:count]
}

// podsPerNode returns the number of active pods by node, of this set and of the other sets of its
// Deployment.
func (s *sets[T]) podsPerNode(rs *appsv1.ReplicaSet) map[string]int {
	related := controller.Controlled(s.pods, rs.UID)
	if ref := metav1.GetControllerOfNoCopy(rs); ref != nil {
		related = nil
		for _, sibling := range controller.Controlled(s.sets, ref.UID) {
			related = append(related, controller.Controlled(s.pods, sibling.GetUID())...)
		}
	}
	crowd := map[string]int{}
	for _, p := range related {
		if controller.PodActive(p) {
			crowd[p.Spec.NodeName]++
		}
	}
	return crowd
}

// compare is below zero if a is to be deleted before b. In this order, the victim is not bound, not
// running, not ready, cheaper, on the more crowded node, ready for a shorter time, restarted more
// often, younger. Times are compared by order of magnitude, so that the victim is not always the
// youngest.
func compare(a, b *corev1.Pod, crowdA, crowdB int, now time.Time) int {
	phase := map[corev1.PodPhase]int{corev1.PodPending: 0, "": 0, corev1.PodUnknown: 1, corev1.PodRunning: 2}
	if (a.Spec.NodeName == "") != (b.Spec.NodeName == "") {
		return falseFirst(a.Spec.NodeName != "", b.Spec.NodeName != "")
	}
	if c := cmp.Compare(phase[a.Status.Phase], phase[b.Status.Phase]); c != 0 {
		return c
	}
	if c := falseFirst(controller.PodReady(a), controller.PodReady(b)); c != 0 {
		return c
	}
	if c := cmp.Compare(deletionCost(a), deletionCost(b)); c != 0 {
		return c
	}
	if c := cmp.Compare(crowdB, crowdA); c != 0 {
		return c
	}
	if controller.PodReady(a) && controller.PodReady(b) {
		if c := youngerFirst(readySince(a), readySince(b), now, a, b); c != 0 {
			return c
		}
	}
	if c := cmp.Compare(restarts(b), restarts(a)); c != 0 {
		return c
	}
	return youngerFirst(a.CreationTimestamp, b.CreationTimestamp, now, a, b)
}

func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// youngerFirst compares ages by their logarithm. Within one magnitude the UID decides, which is as
// good as random.
func youngerFirst(a, b metav1.Time, now time.Time, podA, podB *corev1.Pod) int {
	if a.Equal(&b) {
		return 0
	}
	if a.IsZero() || b.IsZero() {
		return falseFirst(!a.IsZero(), !b.IsZero())
	}
	if c := cmp.Compare(magnitude(now.Sub(a.Time)), magnitude(now.Sub(b.Time))); c != 0 {
		return c
	}
	return cmp.Compare(podA.UID, podB.UID)
}

func magnitude(age time.Duration) int64 {
	if age <= 0 {
		return -1
	}
	return int64(math.Log2(float64(age.Nanoseconds())))
}

func readySince(p *corev1.Pod) metav1.Time {
	if c := controller.PodCondition(p, corev1.PodReady); c != nil && c.Status == corev1.ConditionTrue {
		return c.LastTransitionTime
	}
	return metav1.Time{}
}

func deletionCost(p *corev1.Pod) int64 {
	cost, err := strconv.ParseInt(p.Annotations[corev1.PodDeletionCost], 10, 32)
	if err != nil {
		return 0 // absent, or invalid and refused by validation
	}
	return cost
}

func restarts(p *corev1.Pod) int32 {
	most := int32(0)
	for _, s := range p.Status.ContainerStatuses {
		most = max(most, s.RestartCount)
	}
	return most
}

func sameStatus(rs *appsv1.ReplicaSet, status appsv1.ReplicaSetStatus) bool {
	return equality.Semantic.DeepEqual(rs.Status, status)
}
