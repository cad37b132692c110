package framework

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Handle is what the scheduler offers to its plugins. All methods are safe for concurrent use.
type Handle interface {
	// WaitingPod finds a pod that waits for its permission.
	WaitingPod(uid types.UID) (WaitingPod, bool)
	// WaitingPods returns the pods that wait for their permission, in no order.
	WaitingPods() []WaitingPod
	// Activate moves pods to the active queue before their backoff or the event that they wait for.
	// It ignores pods outside of the queue, and pods that a PreEnqueue plugin refuses.
	Activate(pods ...types.UID)
	// Wake retries the refused pods that a change may help.
	Wake(change Change)
}

// WaitingPod is a decided pod that at least one Permit plugin lets wait. It counts on its node.
type WaitingPod interface {
	Pod() *corev1.Pod
	Node() string
	// PendingPlugins returns the names of the plugins whose permission the pod lacks.
	PendingPlugins() []string
	// Allow gives the permission of a plugin. The last one ends the wait.
	Allow(plugin string)
	// Reject ends the wait: the pod gives up its node and returns to the queue.
	Reject(plugin, reason string)
}

// Change is one change of an object of the cluster. Old is nil for a new object, and New for a
// deleted one. Both are nil if only the kind of the change is known. Pods are *PodInfo, other kinds
// are their API types, such as *corev1.Node.
type Change struct {
	Events   Events
	Old, New any
}
