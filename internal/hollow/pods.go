package hollow

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// waiting returns the pods without an address when the node's range becomes known.
func (n *node) waiting(e client.TypedEvent[*corev1.Node]) []controller.Key {
	if e.Object.Spec.PodCIDR == "" || e.Type == client.Modified && e.Old.Spec.PodCIDR != "" {
		return nil
	}
	var keys []controller.Key
	for _, pod := range n.pods.List("", nil) {
		if pod.Status.PodIP == "" {
			keys = append(keys, controller.KeyOf(pod))
		}
	}
	return keys
}

// reconcile moves a pod one step on.
func (n *node) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	pod, ok := n.pods.Get(key.Namespace, key.Name)
	if !ok {
		n.forget()
		return controller.Result{}, nil
	}
	if pod.DeletionTimestamp != nil {
		return controller.Result{}, n.terminate(ctx, pod)
	}
	address, ok := n.address(pod)
	if !ok {
		return controller.Result{}, nil // the node's own event brings us back
	}
	var fate Fate
	if n.Fate != nil {
		fate = n.Fate(pod.DeepCopy())
	}
	status, next := Decide(pod, Place{HostIP: n.Address, PodIP: address}, fate, n.Clock.Now())
	if err := n.write(ctx, pod, &status); err != nil {
		return controller.Result{}, err
	}
	return controller.Result{After: next}, nil
}

// terminate ends a deleted pod's containers and then removes the object, as a kubelet does.
func (n *node) terminate(ctx context.Context, pod *corev1.Pod) error {
	status := Terminated(pod, n.Clock.Now())
	if err := n.write(ctx, pod, &status); err != nil {
		return err
	}
	var now int64
	err := client.Delete[*corev1.Pod](ctx, n.Client, pod.Namespace, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
	// The pod is already deleted, or replaced by another one.
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func (n *node) write(ctx context.Context, pod *corev1.Pod, status *corev1.PodStatus) error {
	if equality.Semantic.DeepEqual(&pod.Status, status) {
		return nil
	}
	changed := pod.DeepCopy()
	changed.Status = *status
	if _, err := client.UpdateStatus(ctx, n.Client, changed); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// address returns the pod's address: the one in its status, or a free one of the node's range. ok
// is false if there is no range.
func (n *node) address(pod *corev1.Pod) (address string, ok bool) {
	if pod.Spec.HostNetwork {
		return n.Address, true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if had, err := netip.ParseAddr(pod.Status.PodIP); err == nil {
		n.addresses[pod.UID] = had
	}
	if a, ok := n.addresses[pod.UID]; ok {
		return a.String(), true
	}
	within := n.PodRange
	if own, ok := n.nodes.Get("", n.Node.Name); ok && own.Spec.PodCIDR != "" {
		if p, err := netip.ParsePrefix(own.Spec.PodCIDR); err == nil {
			within = p
		}
	}
	if !within.IsValid() {
		return "", false
	}
	taken := map[netip.Addr]bool{}
	for _, other := range n.pods.List("", nil) {
		if a, err := netip.ParseAddr(other.Status.PodIP); err == nil {
			taken[a] = true
		}
	}
	for _, a := range n.addresses {
		taken[a] = true
	}
	// A bridge has the first address.
	for a := within.Masked().Addr().Next().Next(); within.Contains(a); a = a.Next() {
		if !taken[a] {
			n.addresses[pod.UID] = a
			return a.String(), true
		}
	}
	n.Log.Warn("a hollow node has no free address", "node", n.Node.Name, "range", within, "pod", fmt.Sprint(controller.KeyOf(pod)))
	return "", false
}

// forget frees the addresses of removed pods.
func (n *node) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	there := map[string]bool{}
	for _, pod := range n.pods.List("", nil) {
		there[string(pod.UID)] = true
	}
	for uid := range n.addresses {
		if !there[string(uid)] {
			delete(n.addresses, uid)
		}
	}
}
