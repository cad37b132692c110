package local

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/apiserver/verb"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/client"
)

var (
	podResource   = corev1.SchemeGroupVersion.WithResource("pods")
	eventResource = corev1.SchemeGroupVersion.WithResource("events")
)

var _ client.Binder = (*routedClient)(nil)

// Bind implements client.Binder. Both requests are authorized, admitted and recorded each on its
// own.
func (c *routedClient) Bind(ctx context.Context, binding *corev1.Binding, event *corev1.Event) (recorded bool, err error) {
	if ctx, _, err = c.writer(ctx, podResource); err != nil {
		return false, err
	}
	ctx, rec, err := c.record(ctx, "create", podResource, binding.Namespace, binding.Name, []string{"binding"}, binding)
	if err != nil {
		return false, err
	}
	aside, asideRec, refusal := c.record(ctx, "create", eventResource, event.Namespace, "", nil, event)
	var with *verb.Beside
	if refusal == nil {
		with, refusal = c.prepareBeside(aside, eventResource, event)
	}
	answer, recorded, err := c.bindWith(ctx, binding, with)
	recordResult(rec, answer, err)
	switch {
	case err != nil:
		recordResult(asideRec, nil, err)
	case recorded:
		recordResult(asideRec, with.Object, nil)
	case refusal != nil:
		recordResult(asideRec, nil, wire.AsStatusError(refusal))
	default:
		recordResult(asideRec, nil, wire.AsStatusError(verb.ErrLeftOut))
	}
	return recorded, err
}

// prepareBeside prepares the create of an object for a commit with another write.
func (c *localClient) prepareBeside(ctx context.Context, res schema.GroupVersionResource, obj client.Object) (*verb.Beside, error) {
	op, obj, err := start(ctx, c, res, obj, nil)
	if err != nil {
		return nil, err
	}
	return op.PrepareBeside(ctx, obj)
}

// bindWith posts a binding, and commits the object beside it with the pod; it may be nil.
func (c *localClient) bindWith(ctx context.Context, binding *corev1.Binding, with *verb.Beside) (answer runtime.Object, recorded bool, err error) {
	op, binding, err := start(ctx, c, podResource, binding, []string{"binding"})
	if err != nil {
		return nil, false, err
	}
	answer, recorded, err = op.BindWith(ctx, binding, with)
	return answer, recorded, wire.AsStatusError(err)
}

// start starts the operation that creates an object, and returns its copy of the object.
func start[T client.Object](ctx context.Context, c *localClient, res schema.GroupVersionResource, obj T, subresource []string) (*verb.Operation, T, error) {
	name := ""
	if len(subresource) > 0 {
		name = obj.GetName()
	}
	op, err := c.operation(ctx, "create", res, obj.GetNamespace(), name, subresource)
	if err != nil {
		return nil, obj, err
	}
	op.SetOptions(&metav1.CreateOptions{}, nil, "")
	copied, err := op.CopyOf(obj)
	if err != nil {
		return nil, obj, err
	}
	return op, copied.(T), nil
}
