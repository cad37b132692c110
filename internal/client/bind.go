package client

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Binder is an Interface that can bind a pod and create the event about it in one commit
// (ADR 0105).
type Binder interface {
	// Bind creates the binding, and the event with it if nothing refuses the event. recorded is
	// false if the event was not created. Bind does not keep or change its arguments.
	Bind(ctx context.Context, binding *corev1.Binding, event *corev1.Event) (recorded bool, err error)
}

// Bind creates the binding of a pod. If c is a Binder, it also creates the event; a nil event is
// none. If recorded is false, the caller has to record the event in another way.
func Bind(ctx context.Context, c Interface, binding *corev1.Binding, event *corev1.Event) (recorded bool, err error) {
	if b, ok := c.(Binder); ok && event != nil {
		return b.Bind(ctx, binding, event)
	}
	_, err = c.CreateSub(ctx, corev1.SchemeGroupVersion.WithResource("pods"), binding.Namespace, binding.Name, "binding", binding, metav1.CreateOptions{})
	return false, err
}
