// Package client is how components read and write the cluster. The same interface works in process
// (as function calls through the API server's pipeline, under an identity of its own) and over
// HTTPS.
//
// Components read from Views: live pictures of a kind, shared and indexed. A View is never stale
// with respect to the component's own writes (read-your-writes). When a write returns, every View
// that was opened through the same Interface and covers the object shows the write. Controllers
// therefore need no "expectations". Objects from a View are shared and read-only: DeepCopy them
// before a change.
package client

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Interface is a component's access to the API under one identity. Errors are StatusErrors of
// k8s.io/apimachinery/pkg/api/errors, in process and over HTTPS. Package clienttest has a suite for
// all implementations.
type Interface interface {
	// Get reads the newest committed state.
	Get(ctx context.Context, res schema.GroupVersionResource, namespace, name string, opts metav1.GetOptions, subresource ...string) (runtime.Object, error)
	// List returns the kind's list object (for example *corev1.PodList).
	List(ctx context.Context, res schema.GroupVersionResource, namespace string, opts metav1.ListOptions) (runtime.Object, error)
	Create(ctx context.Context, res schema.GroupVersionResource, namespace string, obj runtime.Object, opts metav1.CreateOptions, subresource ...string) (runtime.Object, error)
	// CreateSub posts obj to a subresource of the named object, such as binding, eviction or token.
	CreateSub(ctx context.Context, res schema.GroupVersionResource, namespace, name, subresource string, obj runtime.Object, opts metav1.CreateOptions) (runtime.Object, error)
	Update(ctx context.Context, res schema.GroupVersionResource, obj runtime.Object, opts metav1.UpdateOptions, subresource ...string) (runtime.Object, error)
	Patch(ctx context.Context, res schema.GroupVersionResource, namespace, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresource ...string) (runtime.Object, error)
	Delete(ctx context.Context, res schema.GroupVersionResource, namespace, name string, opts metav1.DeleteOptions) error
	DeleteCollection(ctx context.Context, res schema.GroupVersionResource, namespace string, opts metav1.DeleteOptions, list metav1.ListOptions) error

	// View opens a live picture of one kind, or shares an open one. It returns when the picture is
	// complete.
	View(ctx context.Context, res schema.GroupVersionResource, scope Scope) (View, error)

	// Discovery lists the served resources, custom resources included: one list for each group
	// version. If the servers of some groups do not answer, it returns the other lists with an
	// error.
	Discovery(ctx context.Context) ([]*metav1.APIResourceList, error)
}

// Scope restricts a View; the zero Scope covers all objects.
type Scope struct {
	Namespace     string
	LabelSelector string
	FieldSelector string
	// MetadataOnly makes the objects *metav1.PartialObjectMetadata. Their managedFields may be
	// missing.
	MetadataOnly bool
}

// EventType is the type of a change in a View.
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
	// Revision is the store's revision of the change, that of a deletion too; 0 if it is unknown.
	Revision int64
}

// SharedIndex begins the names of indexes that several Views have. Each write of a kind updates all
// its indexes, so equal ones should be one.
const SharedIndex = "shared "

// View is a live picture of one kind in one scope. Safe for concurrent use.
type View interface {
	Get(namespace, name string) (runtime.Object, bool)
	// List returns objects in key order. The namespace "" means all; a nil selector matches all.
	List(namespace string, selector labels.Selector) []runtime.Object
	// AddIndex adds an index: values returns an object's index values. A second index of the same
	// name is ignored. ByIndex panics for a name that was never added. A name that begins with
	// SharedIndex belongs to one function of the whole program, which depends on the object alone:
	// Views of one kind may then share the index.
	AddIndex(name string, values func(runtime.Object) []string)
	ByIndex(name, value string) []runtime.Object
	// Revision is the store's revision that the picture has reached.
	Revision() int64
	// WaitFor blocks until the picture has reached the revision.
	WaitFor(ctx context.Context, revision int64) error
	// Subscribe calls fn with each existing object (as Added), and then with each change, in order.
	// The calls come from one goroutine, which ends with ctx. The picture already shows a change
	// when fn is called. synced is closed after the calls for existing objects; done is closed when
	// the goroutine has ended.
	Subscribe(ctx context.Context, fn func(Event)) (synced, done <-chan struct{})
}
