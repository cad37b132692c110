package usage

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

// Usage is what a node and its pods have used in a window of time. Read-only.
type Usage struct {
	At     time.Time
	Window time.Duration
	// Node is nil if the kubelet has not measured it.
	Node corev1.ResourceList
	// Pods have an entry for each of their running containers.
	Pods map[types.NamespacedName][]Container
}

// Container is what one container of a pod has used.
type Container struct {
	Name  string
	Usage corev1.ResourceList
}

// usageBetween returns the usage between two readings of a node.
func usageBetween(old, now *Reading) *Usage {
	u := &Usage{At: now.node.at, Window: now.node.at.Sub(old.node.at), Pods: make(map[types.NamespacedName][]Container)}
	u.Node, _ = used(&old.node, &now.node)
	partly := map[types.NamespacedName]bool{}
	for name, c := range now.containers {
		if c.cpu == 0 && c.memory == 0 {
			continue // it has ended
		}
		usage, ok := used(old.containers[name], c)
		if !ok {
			partly[name.pod] = true
		}
		u.Pods[name.pod] = append(u.Pods[name.pod], Container{name.name, usage})
	}
	for pod := range partly {
		delete(u.Pods, pod) // an autoscaler must not see less than the pod uses
	}
	for _, list := range u.Pods {
		slices.SortFunc(list, func(a, b Container) int { return cmp.Compare(a.Name, b.Name) })
	}
	return u
}

// used returns CPU and memory of a node or container; ok is false if one of them is unknown.
func used(old, now *counters) (list corev1.ResourceList, ok bool) {
	cores, known := rate(old, now)
	if !known || !plausible(cores*1e9) || !plausible(now.memory) {
		return nil, false
	}
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewScaledQuantity(int64(cores*1e9), resource.Nano),
		corev1.ResourceMemory: *resource.NewQuantity(int64(now.memory), resource.BinarySI),
	}, true
}

// maxAmount is more than any node has of billionths of cores, or of bytes.
const maxAmount = 1 << 53

// plausible reports whether a kubelet's number can be an amount.
func plausible(amount float64) bool { return amount >= 0 && amount < maxAmount }

// rate returns the used cores: between the readings, or on average since the start of a container
// that (re)started after the older one.
func rate(old, now *counters) (cores float64, known bool) {
	if old != nil && now.cpu >= old.cpu && now.at.After(old.at) && !old.at.IsZero() {
		return (now.cpu - old.cpu) / now.at.Sub(old.at).Seconds(), true
	}
	if now.started.IsZero() || !now.at.After(now.started) {
		return 0, false
	}
	return now.cpu / now.at.Sub(now.started).Seconds(), true
}
