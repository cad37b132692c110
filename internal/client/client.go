// Package client is what components use to read and write the cluster: the same interface in
// process (function calls through the API server's pipeline, under an identity of its own) and over HTTPS.
//
// Reads come from Views: live pictures of a kind that are shared, indexed and never stale with
// respect to the component's own writes (read-your-writes): when a write returns, every View opened
// through the same Interface that covers the object already shows it. Controllers therefore need no
// "expectations". Objects from a View are shared and read-only: DeepCopy before changing one.
package client

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Interface is a component's access to the API, under one identity. Errors are
// k8s.io/apimachinery/pkg/api/errors StatusErrors, in process and remote alike.
type Interface interface {
	// Get reads the newest committed state.
	Get(ctx context.Context, res schema.GroupVersionResource, namespace, name string, opts metav1.GetOptions, subresource ...string) (runtime.Object, error)
	// List returns the kind's list object (for example *corev1.PodList).
	List(ctx context.Context, res schema.GroupVersionResource, namespace string, opts metav1.ListOptions) (runtime.Object, error)
	Create(ctx context.Context, res schema.GroupVersionResource, namespace string, obj runtime.Object, opts metav1.CreateOptions, subresource ...string) (runtime.Object, error)
	// CreateSub posts obj to the subresource of the named object (binding, eviction, token).
	CreateSub(ctx context.Context, res schema.GroupVersionResource, namespace, name, subresource string, obj runtime.Object, opts metav1.CreateOptions) (runtime.Object, error)
	Update(ctx context.Context, res schema.GroupVersionResource, obj runtime.Object, opts metav1.UpdateOptions, subresource ...string) (runtime.Object, error)
	Patch(ctx context.Context, res schema.GroupVersionResource, namespace, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresource ...string) (runtime.Object, error)
	Delete(ctx context.Context, res schema.GroupVersionResource, namespace, name string, opts metav1.DeleteOptions) error
	DeleteCollection(ctx context.Context, res schema.GroupVersionResource, namespace string, opts metav1.DeleteOptions, list metav1.ListOptions) error

	// View opens (or shares) a live picture of one kind. It returns once the picture is complete.
	View(ctx context.Context, res schema.GroupVersionResource, scope Scope) (View, error)

	// Discovery lists what the server serves, custom resources included: one list per group version. Where servers of some groups do not answer, it gives
	// those of the others with the error.
	Discovery(ctx context.Context) ([]*metav1.APIResourceList, error)
}

// Scope restricts a View; the zero Scope is everything.
type Scope struct {
	Namespace     string
	LabelSelector string
	FieldSelector string
	// MetadataOnly makes the objects *metav1.PartialObjectMetadata, which need not tell of their fields' owners (managedFields).
	MetadataOnly bool
}

// EventType says what a View saw.
type EventType string

const (
	Added    EventType = "Added"
	Modified EventType = "Modified"
	Deleted  EventType = "Deleted"
)

// Event is one change in a View. Old is nil for Added; for Deleted, Object is the last known state.
type Event struct {
	Type   EventType
	Old    runtime.Object
	Object runtime.Object
}

// View is a live picture of one kind in one scope. Safe for concurrent use.
type View interface {
	Get(namespace, name string) (runtime.Object, bool)
	// List returns objects in key order; namespace "" means all, a nil selector matches everything.
	List(namespace string, selector labels.Selector) []runtime.Object
	// AddIndex names a function from an object to index values. Adding the same name twice keeps the first.
	AddIndex(name string, values func(runtime.Object) []string)
	ByIndex(name, value string) []runtime.Object
	// Revision is the store revision that the picture has reached.
	Revision() int64
	// WaitFor blocks until the picture has reached the revision.
	WaitFor(ctx context.Context, revision int64) error
	// Subscribe calls fn for every object there is (as Added) and then for every change, in order, on one
	// goroutine of its own until ctx ends. The picture already shows the change when fn is called.
	// It returns a channel that is closed after the initial Added calls, and a channel that is closed when the goroutine has ended.
	Subscribe(ctx context.Context, fn func(Event)) (synced, done <-chan struct{})
}
