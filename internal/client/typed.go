package client

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/api"
)

// Object is an API object with metadata.
type Object interface {
	metav1.Object
	runtime.Object
}

// resourceOf returns the resource of a Go type: *corev1.Pod → v1 pods.
func resourceOf[T Object]() schema.GroupVersionResource {
	var zero T
	return api.ResourceOf(zero)
}

// Get reads the newest state of an object: client.Get[*corev1.Pod](ctx, c, ns, name).
func Get[T Object](ctx context.Context, c Interface, namespace, name string) (T, error) {
	return as[T](c.Get(ctx, resourceOf[T](), namespace, name, metav1.GetOptions{}))
}

// Create creates obj in its namespace.
func Create[T Object](ctx context.Context, c Interface, obj T) (T, error) {
	return as[T](c.Create(ctx, resourceOf[T](), obj.GetNamespace(), obj, metav1.CreateOptions{}))
}

// Update replaces obj if its resourceVersion is still current.
func Update[T Object](ctx context.Context, c Interface, obj T) (T, error) {
	return as[T](c.Update(ctx, resourceOf[T](), obj, metav1.UpdateOptions{}))
}

// UpdateStatus replaces obj's status if its resourceVersion is still current.
func UpdateStatus[T Object](ctx context.Context, c Interface, obj T) (T, error) {
	return as[T](c.Update(ctx, resourceOf[T](), obj, metav1.UpdateOptions{}, "status"))
}

// Patch patches the named object.
func Patch[T Object](ctx context.Context, c Interface, namespace, name string, pt types.PatchType, data []byte, subresource ...string) (T, error) {
	return as[T](c.Patch(ctx, resourceOf[T](), namespace, name, pt, data, metav1.PatchOptions{}, subresource...))
}

// Delete deletes the named object.
func Delete[T Object](ctx context.Context, c Interface, namespace, name string, opts metav1.DeleteOptions) error {
	return c.Delete(ctx, resourceOf[T](), namespace, name, opts)
}

func as[T Object](obj runtime.Object, err error) (T, error) {
	var zero T
	if err != nil {
		return zero, err
	}
	t, ok := obj.(T)
	if !ok {
		return zero, fmt.Errorf("the API answered with a %T where a %T was expected", obj, zero)
	}
	return t, nil
}

// ViewOf is a View whose objects are Ts.
type ViewOf[T Object] struct{ View }

// TypedEvent is an Event with objects of type T; Old is the zero T for Added.
type TypedEvent[T Object] struct {
	Type   EventType
	Old    T
	Object T
	// Revision is Event.Revision.
	Revision int64
}

// Open opens the View of a Go type: client.Open[*corev1.Pod](ctx, c, client.Scope{}).
func Open[T Object](ctx context.Context, c Interface, scope Scope) (ViewOf[T], error) {
	v, err := c.View(ctx, resourceOf[T](), scope)
	return ViewOf[T]{v}, err
}

// Get returns the object, and whether it exists.
func (v ViewOf[T]) Get(namespace, name string) (T, bool) {
	obj, ok := v.View.Get(namespace, name)
	if !ok {
		var zero T
		return zero, false
	}
	return obj.(T), true
}

// List lists by namespace ("" means all) and selector (nil matches all), in key order.
func (v ViewOf[T]) List(namespace string, selector labels.Selector) []T {
	return typed[T](v.View.List(namespace, selector))
}

// AddIndex is View.AddIndex with a typed function.
func (v ViewOf[T]) AddIndex(name string, values func(T) []string) {
	v.View.AddIndex(name, func(o runtime.Object) []string { return values(o.(T)) })
}

// ByIndex lists the objects with the index value.
func (v ViewOf[T]) ByIndex(name, value string) []T {
	return typed[T](v.View.ByIndex(name, value))
}

// Subscribe is View.Subscribe with typed events.
func (v ViewOf[T]) Subscribe(ctx context.Context, fn func(TypedEvent[T])) (synced, done <-chan struct{}) {
	return v.View.Subscribe(ctx, func(e Event) {
		t := TypedEvent[T]{Type: e.Type, Object: e.Object.(T), Revision: e.Revision}
		if e.Old != nil {
			t.Old = e.Old.(T)
		}
		fn(t)
	})
}

func typed[T Object](objs []runtime.Object) []T {
	out := make([]T, len(objs))
	for i, o := range objs {
		out[i] = o.(T)
	}
	return out
}
