package nettest

import (
	"context"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/client"
)

// Objects is an in-memory client.Interface for packages that must not import a store and an API
// server. It implements Views, Get, List, Create, Update with conflicts, and Delete.
type Objects struct {
	client.Interface // unimplemented methods panic

	mu       sync.Mutex
	revision int64
	kinds    map[schema.GroupVersionResource]map[string]runtime.Object
	watchers map[*watcher]bool
}

type watcher struct {
	res   schema.GroupVersionResource
	scope labels.Selector
	names fields.Selector
	queue []client.Event
	wake  chan struct{}
}

// NewObjects makes an Objects with the given content.
func NewObjects(objs ...runtime.Object) *Objects {
	o := &Objects{kinds: map[schema.GroupVersionResource]map[string]runtime.Object{}, watchers: map[*watcher]bool{}}
	for _, obj := range objs {
		o.Put(obj)
	}
	return o
}

func keyOf(obj runtime.Object) string {
	m, _ := meta.Accessor(obj)
	return m.GetNamespace() + "/" + m.GetName()
}

// resourceOf returns the resource of an object, which may be a custom one.
func resourceOf(obj runtime.Object) schema.GroupVersionResource {
	u, custom := obj.(*unstructured.Unstructured)
	if !custom {
		return api.ResourceOf(obj)
	}
	gvk := u.GroupVersionKind()
	return gvk.GroupVersion().WithResource(strings.TrimSuffix(strings.ToLower(gvk.Kind), "s") + "s")
}

// Put creates or replaces the object.
func (o *Objects) Put(obj runtime.Object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.put(obj.DeepCopyObject())
}

func (o *Objects) put(obj runtime.Object) runtime.Object {
	res, key := resourceOf(obj), keyOf(obj)
	o.revision++
	m, _ := meta.Accessor(obj)
	m.SetResourceVersion(strconv.FormatInt(o.revision, 10))
	if o.kinds[res] == nil {
		o.kinds[res] = map[string]runtime.Object{}
	}
	old := o.kinds[res][key]
	o.kinds[res][key] = obj
	typ := client.Modified
	if old == nil {
		typ = client.Added
	}
	o.notify(res, client.Event{Type: typ, Old: old, Object: obj, Revision: o.revision})
	return obj
}

// Revision is that of the newest write.
func (o *Objects) Revision() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.revision
}

// Remove deletes the object.
func (o *Objects) Remove(obj runtime.Object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	res, key := resourceOf(obj), keyOf(obj)
	if old := o.kinds[res][key]; old != nil {
		delete(o.kinds[res], key)
		o.revision++
		o.notify(res, client.Event{Type: client.Deleted, Old: old, Object: old, Revision: o.revision})
	}
}

func (o *Objects) notify(res schema.GroupVersionResource, e client.Event) {
	for w := range o.watchers {
		if w.res == res && w.matches(e.Object) {
			w.queue = append(w.queue, e)
			select {
			case w.wake <- struct{}{}:
			default:
			}
		}
	}
}

func (w *watcher) matches(obj runtime.Object) bool {
	m, _ := meta.Accessor(obj)
	set := fields.Set{"metadata.name": m.GetName(), "metadata.namespace": m.GetNamespace()}
	if pod, ok := obj.(*corev1.Pod); ok {
		set["spec.nodeName"] = pod.Spec.NodeName
	}
	return w.scope.Matches(labels.Set(m.GetLabels())) && w.names.Matches(set)
}

// Get reads an object.
func (o *Objects) Get(_ context.Context, res schema.GroupVersionResource, namespace, name string, _ metav1.GetOptions, _ ...string) (runtime.Object, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if obj := o.kinds[res][namespace+"/"+name]; obj != nil {
		return obj, nil
	}
	return nil, apierrors.NewNotFound(res.GroupResource(), name)
}

// List lists a kind's objects, of all namespaces if namespace is empty. It ignores selectors.
func (o *Objects) List(_ context.Context, res schema.GroupVersionResource, namespace string, _ metav1.ListOptions) (runtime.Object, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var list runtime.Object = &unstructured.UnstructuredList{}
	if kind, ok := api.ByResource(res.GroupResource()); ok {
		var err error
		if list, err = kind.NewList(); err != nil {
			return nil, err
		}
	}
	var items []runtime.Object
	for _, obj := range o.kinds[res] {
		if m, _ := meta.Accessor(obj); namespace == "" || m.GetNamespace() == namespace {
			items = append(items, obj)
		}
	}
	if err := meta.SetList(list, items); err != nil {
		return nil, err
	}
	acc, _ := meta.ListAccessor(list)
	acc.SetResourceVersion(strconv.FormatInt(o.revision, 10))
	return list, nil
}

// Create creates an object. A Service without a ClusterIP gets one.
func (o *Objects) Create(_ context.Context, res schema.GroupVersionResource, _ string, obj runtime.Object, _ metav1.CreateOptions, _ ...string) (runtime.Object, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	m, _ := meta.Accessor(obj)
	if o.kinds[res][keyOf(obj)] != nil {
		return nil, apierrors.NewAlreadyExists(res.GroupResource(), m.GetName())
	}
	obj = obj.DeepCopyObject()
	if svc, ok := obj.(*corev1.Service); ok && svc.Spec.ClusterIP == "" {
		svc.Spec.ClusterIP = fmt.Sprintf("10.43.77.%d", o.revision%250+1)
		svc.Spec.ClusterIPs = []string{svc.Spec.ClusterIP}
	}
	return o.put(obj), nil
}

// Update replaces an object; a stale resourceVersion is a conflict.
func (o *Objects) Update(_ context.Context, res schema.GroupVersionResource, obj runtime.Object, _ metav1.UpdateOptions, _ ...string) (runtime.Object, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	m, _ := meta.Accessor(obj)
	old := o.kinds[res][keyOf(obj)]
	if old == nil {
		return nil, apierrors.NewNotFound(res.GroupResource(), m.GetName())
	}
	if om, _ := meta.Accessor(old); m.GetResourceVersion() != "" && m.GetResourceVersion() != om.GetResourceVersion() {
		return nil, apierrors.NewConflict(res.GroupResource(), m.GetName(), fmt.Errorf("the object has been modified"))
	}
	return o.put(obj.DeepCopyObject()), nil
}

// Delete deletes an object.
func (o *Objects) Delete(ctx context.Context, res schema.GroupVersionResource, namespace, name string, _ metav1.DeleteOptions) error {
	obj, err := o.Get(ctx, res, namespace, name, metav1.GetOptions{})
	if err == nil {
		o.Remove(obj)
	}
	return err
}

// View opens a live view.
func (o *Objects) View(_ context.Context, res schema.GroupVersionResource, scope client.Scope) (client.View, error) {
	sel, err := labels.Parse(scope.LabelSelector)
	if err != nil {
		return nil, err
	}
	names, err := fields.ParseSelector(scope.FieldSelector)
	if err != nil {
		return nil, err
	}
	return &view{o: o, res: res, namespace: scope.Namespace, labels: sel, fields: names, indexes: map[string]func(runtime.Object) []string{}}, nil
}

type view struct {
	o         *Objects
	res       schema.GroupVersionResource
	namespace string
	labels    labels.Selector
	fields    fields.Selector
	indexes   map[string]func(runtime.Object) []string
}

func (v *view) Get(namespace, name string) (runtime.Object, bool) {
	v.o.mu.Lock()
	defer v.o.mu.Unlock()
	obj := v.o.kinds[v.res][namespace+"/"+name]
	return obj, obj != nil
}

func (v *view) List(namespace string, selector labels.Selector) []runtime.Object {
	v.o.mu.Lock()
	defer v.o.mu.Unlock()
	var keys []string
	w := watcher{scope: v.labels, names: v.fields}
	for key, obj := range v.o.kinds[v.res] {
		m, _ := meta.Accessor(obj)
		if (namespace == "" || m.GetNamespace() == namespace) && w.matches(obj) && (selector == nil || selector.Matches(labels.Set(m.GetLabels()))) {
			keys = append(keys, key)
		}
	}
	sort.Strings(keys)
	out := make([]runtime.Object, len(keys))
	for i, key := range keys {
		out[i] = v.o.kinds[v.res][key]
	}
	return out
}

func (v *view) AddIndex(name string, values func(runtime.Object) []string) {
	if v.indexes[name] == nil {
		v.indexes[name] = values
	}
}

func (v *view) ByIndex(name, value string) []runtime.Object {
	var out []runtime.Object
	for _, obj := range v.List("", nil) {
		for _, got := range v.indexes[name](obj) {
			if got == value {
				out = append(out, obj)
			}
		}
	}
	return out
}

func (v *view) Revision() int64 {
	v.o.mu.Lock()
	defer v.o.mu.Unlock()
	return v.o.revision
}

func (v *view) WaitFor(context.Context, int64) error { return nil }

func (v *view) Subscribe(ctx context.Context, fn func(client.Event)) (<-chan struct{}, <-chan struct{}) {
	synced, done := make(chan struct{}), make(chan struct{})
	w := &watcher{res: v.res, scope: v.labels, names: v.fields, wake: make(chan struct{}, 1)}
	v.o.mu.Lock()
	for _, obj := range v.o.kinds[v.res] {
		if w.matches(obj) {
			w.queue = append(w.queue, client.Event{Type: client.Added, Object: obj})
		}
	}
	v.o.watchers[w] = true
	v.o.mu.Unlock()
	go func() {
		defer close(done)
		for first := true; ; first = false {
			v.o.mu.Lock()
			queue := w.queue
			w.queue = nil
			v.o.mu.Unlock()
			for _, e := range queue {
				fn(e)
			}
			if first {
				close(synced)
			}
			select {
			case <-ctx.Done():
				v.o.mu.Lock()
				delete(v.o.watchers, w)
				v.o.mu.Unlock()
				return
			case <-w.wake:
			}
		}
	}()
	return synced, done
}

// Eventually waits at most a minute until the condition holds.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	if !poll(condition) {
		t.Fatalf("did not happen within a minute: %s", what)
	}
}
