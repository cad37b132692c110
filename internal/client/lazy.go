package client

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Lazy is the View of a whole kind that is opened at the first use. The API server reads through
// it: kinds without users cost nothing. Safe for concurrent use.
type Lazy[T Object] struct {
	client Interface
	res    schema.GroupVersionResource
	open   func() (ViewOf[T], error)
	mu     sync.Mutex
	view   *ViewOf[T]
}

// NewLazy prepares a View that lives until ctx ends. index, if not nil, adds indexes when it is
// opened.
func NewLazy[T Object](ctx context.Context, c Interface, index func(ViewOf[T])) *Lazy[T] {
	return NewLazyOf(ctx, c, resourceOf[T](), index)
}

// NewLazyOf is NewLazy for a resource whose objects are Ts, such as a custom one.
func NewLazyOf[T Object](ctx context.Context, c Interface, res schema.GroupVersionResource, index func(ViewOf[T])) *Lazy[T] {
	return &Lazy[T]{client: c, res: res, open: func() (ViewOf[T], error) {
		shown, err := c.View(ctx, res, Scope{})
		view := ViewOf[T]{shown}
		if err == nil && index != nil {
			index(view)
		}
		return view, err
	}}
}

// View returns the View, and opens it at the first call.
func (l *Lazy[T]) View() (ViewOf[T], error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.view == nil {
		view, err := l.open()
		if err != nil {
			return view, err
		}
		l.view = &view
	}
	return *l.view, nil
}

// Find reads an object from the View. If the View does not show it, Find reads the newest state, so
// a "not found" is never stale.
func (l *Lazy[T]) Find(ctx context.Context, namespace, name string) (T, error) {
	view, err := l.View()
	if err != nil {
		var zero T
		return zero, err
	}
	if obj, ok := view.Get(namespace, name); ok {
		return obj, nil
	}
	obj, err := as[T](l.client.Get(ctx, l.res, namespace, name, metav1.GetOptions{}))
	if err != nil && !apierrors.IsNotFound(err) {
		return obj, apierrors.NewInternalError(err)
	}
	return obj, err
}
