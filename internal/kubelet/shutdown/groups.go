package shutdown

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// systemCritical is the priority of the class system-cluster-critical, the lowest critical one.
const systemCritical = 2_000_000_000

// Group is a range of priorities: from Priority up to the next group's. The lowest group also has
// the pods below it.
type Group struct {
	Priority int32
	// Period is the time in which the group's pods end.
	Period time.Duration
}

// Groups returns the groups that the settings ask for, in the order in which they end. None means
// that pods are not ended.
func Groups(c *kubeletconfig.KubeletConfiguration) []Group {
	var out []Group
	for _, e := range c.ShutdownGracePeriodByPodPriority {
		out = append(out, Group{e.Priority, time.Duration(e.ShutdownGracePeriodSeconds) * time.Second})
	}
	if total, critical := c.ShutdownGracePeriod.Duration, c.ShutdownGracePeriodCriticalPods.Duration; total > 0 && len(out) == 0 {
		out = []Group{{0, total - critical}, {systemCritical, critical}}
	}
	slices.SortFunc(out, func(a, b Group) int { return cmp.Compare(a.Priority, b.Priority) })
	return out
}

// total is the time that all groups together may take.
func total(groups []Group) (sum time.Duration) {
	for _, g := range groups {
		sum += g.Period
	}
	return sum
}

// split assigns the pods to the groups.
func split(groups []Group, pods []*corev1.Pod) [][]*corev1.Pod {
	out := make([][]*corev1.Pod, len(groups))
	for _, pod := range pods {
		priority := int32(0)
		if pod.Spec.Priority != nil {
			priority = *pod.Spec.Priority
		}
		i := 0
		for i+1 < len(groups) && groups[i+1].Priority <= priority {
			i++
		}
		out[i] = append(out[i], pod)
	}
	return out
}

// grace is the grace period of a pod in whole seconds: its own, at most the group's.
func grace(g Group, pod *corev1.Pod) int64 {
	most := int64(g.Period / time.Second)
	if own := pod.Spec.TerminationGracePeriodSeconds; own != nil {
		return min(*own, most)
	}
	return most
}
