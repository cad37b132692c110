package check

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
)

// cluster is a client.Interface whose objects are those of the files. Admission reads it. It cannot
// be written.
type cluster struct {
	objects map[schema.GroupResource][]runtime.Object
}

var (
	_ client.Interface = (*cluster)(nil)
	_ client.View      = view{}
)

var errReadOnly = errors.New("a check writes nothing")

func (c *cluster) add(gr schema.GroupResource, obj runtime.Object) {
	c.objects[gr] = append(c.objects[gr], obj)
}

func (c *cluster) find(gr schema.GroupResource, namespace, name string) (runtime.Object, bool) {
	for _, obj := range c.objects[gr] {
		if m, err := meta.Accessor(obj); err == nil && m.GetName() == name && m.GetNamespace() == namespace {
			return obj, true
		}
	}
	return nil, false
}

// Get implements client.Interface.
func (c *cluster) Get(_ context.Context, res schema.GroupVersionResource, namespace, name string, _ metav1.GetOptions, _ ...string) (runtime.Object, error) {
	if obj, ok := c.find(res.GroupResource(), namespace, name); ok {
		return obj.DeepCopyObject(), nil
	}
	return nil, apierrors.NewNotFound(res.GroupResource(), name)
}

// View implements client.Interface.
func (c *cluster) View(_ context.Context, res schema.GroupVersionResource, _ client.Scope) (client.View, error) {
	return view{c, res.GroupResource()}, nil
}

// List implements client.Interface.
func (c *cluster) List(context.Context, schema.GroupVersionResource, string, metav1.ListOptions) (runtime.Object, error) {
	return nil, errReadOnly
}

// Create implements client.Interface.
func (c *cluster) Create(context.Context, schema.GroupVersionResource, string, runtime.Object, metav1.CreateOptions, ...string) (runtime.Object, error) {
	return nil, errReadOnly
}

// CreateSub implements client.Interface.
func (c *cluster) CreateSub(context.Context, schema.GroupVersionResource, string, string, string, runtime.Object, metav1.CreateOptions) (runtime.Object, error) {
	return nil, errReadOnly
}

// Update implements client.Interface.
func (c *cluster) Update(context.Context, schema.GroupVersionResource, runtime.Object, metav1.UpdateOptions, ...string) (runtime.Object, error) {
	return nil, errReadOnly
}

// Patch implements client.Interface.
func (c *cluster) Patch(context.Context, schema.GroupVersionResource, string, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (runtime.Object, error) {
	return nil, errReadOnly
}

// Delete implements client.Interface.
func (c *cluster) Delete(context.Context, schema.GroupVersionResource, string, string, metav1.DeleteOptions) error {
	return errReadOnly
}

// DeleteCollection implements client.Interface.
func (c *cluster) DeleteCollection(context.Context, schema.GroupVersionResource, string, metav1.DeleteOptions, metav1.ListOptions) error {
	return errReadOnly
}

// Discovery implements client.Interface.
func (c *cluster) Discovery(context.Context) ([]*metav1.APIResourceList, error) {
	return nil, errReadOnly
}

// view shows the objects of one resource.
type view struct {
	*cluster
	gr schema.GroupResource
}

// Get implements client.View.
func (v view) Get(namespace, name string) (runtime.Object, bool) {
	return v.find(v.gr, namespace, name)
}

// List implements client.View. Objects are in the order of the files.
func (v view) List(namespace string, selector labels.Selector) (list []runtime.Object) {
	for _, obj := range v.objects[v.gr] {
		m, err := meta.Accessor(obj)
		if err == nil && (namespace == "" || m.GetNamespace() == namespace) && (selector == nil || selector.Matches(labels.Set(m.GetLabels()))) {
			list = append(list, obj)
		}
	}
	return list
}

// AddIndex implements client.View. A check looks nothing up by index.
func (v view) AddIndex(string, func(runtime.Object) []string) {}

// ByIndex implements client.View.
func (v view) ByIndex(name, _ string) []runtime.Object {
	panic("check: a view has no index " + name)
}

// Revision implements client.View.
func (v view) Revision() int64 { return 1 }

// WaitFor implements client.View.
func (v view) WaitFor(context.Context, int64) error { return nil }

// Subscribe implements client.View. Files do not change.
func (v view) Subscribe(_ context.Context, fn func(client.Event)) (synced, done <-chan struct{}) {
	for _, obj := range v.objects[v.gr] {
		fn(client.Event{Type: client.Added, Object: obj})
	}
	ended := make(chan struct{})
	close(ended)
	return ended, ended
}
