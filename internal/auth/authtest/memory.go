// Package authtest has a client.Interface over objects in memory, without admission, validation and
// conversion. It serves the tests of packages that the API server is built from, which cannot start
// a server.
package authtest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/client"
)

// Memory holds objects. Create it with New.
type Memory struct {
	mu       sync.Mutex
	revision int64
	objects  map[schema.GroupVersionResource]map[string]client.Object
}

// New returns a Memory with the objects.
func New(objects ...client.Object) *Memory {
	m := &Memory{objects: map[schema.GroupVersionResource]map[string]client.Object{}}
	for _, o := range objects {
		m.Put(o)
	}
	return m
}

// Put stores an object as it is and replaces an existing one.
func (m *Memory) Put(obj client.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(api.ResourceOf(obj), obj)
}

// Remove deletes an object if it exists.
func (m *Memory) Remove(obj client.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects[api.ResourceOf(obj)], key(obj.GetNamespace(), obj.GetName()))
}

func key(namespace, name string) string { return namespace + "/" + name }

func (m *Memory) put(res schema.GroupVersionResource, obj client.Object) client.Object {
	obj = obj.DeepCopyObject().(client.Object)
	m.revision++
	obj.SetResourceVersion(strconv.FormatInt(m.revision, 10))
	if obj.GetUID() == "" {
		obj.SetUID(types.UID(fmt.Sprintf("uid-%d", m.revision)))
	}
	if m.objects[res] == nil {
		m.objects[res] = map[string]client.Object{}
	}
	m.objects[res][key(obj.GetNamespace(), obj.GetName())] = obj
	return obj
}

// Get implements client.Interface.
func (m *Memory) Get(_ context.Context, res schema.GroupVersionResource, namespace, name string, _ metav1.GetOptions, _ ...string) (runtime.Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if obj, ok := m.objects[res][key(namespace, name)]; ok {
		return obj, nil
	}
	return nil, apierrors.NewNotFound(res.GroupResource(), name)
}

// List implements client.Interface.
func (m *Memory) List(ctx context.Context, res schema.GroupVersionResource, namespace string, opts metav1.ListOptions) (runtime.Object, error) {
	kind, ok := api.ByResource(res.GroupResource())
	if !ok {
		return nil, apierrors.NewNotFound(res.GroupResource(), "")
	}
	list, err := api.Scheme.New(kind.Kind.GroupVersion().WithKind(kind.Kind.Kind + "List"))
	if err != nil {
		return nil, err
	}
	selector, err := labels.Parse(opts.LabelSelector)
	if err != nil {
		return nil, err
	}
	return list, meta.SetList(list, view{m, res}.List(namespace, selector))
}

// Create implements client.Interface.
func (m *Memory) Create(_ context.Context, res schema.GroupVersionResource, _ string, obj runtime.Object, _ metav1.CreateOptions, _ ...string) (runtime.Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := obj.(client.Object)
	if _, exists := m.objects[res][key(o.GetNamespace(), o.GetName())]; exists {
		return nil, apierrors.NewAlreadyExists(res.GroupResource(), o.GetName())
	}
	return m.put(res, o), nil
}

// Update implements client.Interface and replaces the status too.
func (m *Memory) Update(_ context.Context, res schema.GroupVersionResource, obj runtime.Object, _ metav1.UpdateOptions, _ ...string) (runtime.Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := obj.(client.Object)
	have, exists := m.objects[res][key(o.GetNamespace(), o.GetName())]
	if !exists {
		return nil, apierrors.NewNotFound(res.GroupResource(), o.GetName())
	}
	if o.GetResourceVersion() != "" && o.GetResourceVersion() != have.GetResourceVersion() {
		return nil, apierrors.NewConflict(res.GroupResource(), o.GetName(), fmt.Errorf("the object has been modified"))
	}
	return m.put(res, o), nil
}

// Delete implements client.Interface.
func (m *Memory) Delete(_ context.Context, res schema.GroupVersionResource, namespace, name string, _ metav1.DeleteOptions) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, exists := m.objects[res][key(namespace, name)]; !exists {
		return apierrors.NewNotFound(res.GroupResource(), name)
	}
	delete(m.objects[res], key(namespace, name))
	return nil
}

// CreateSub, Patch, DeleteCollection and Discovery are not supported.
func (m *Memory) CreateSub(_ context.Context, res schema.GroupVersionResource, _, _, sub string, _ runtime.Object, _ metav1.CreateOptions) (runtime.Object, error) {
	return nil, apierrors.NewMethodNotSupported(res.GroupResource(), "create "+sub)
}

// Patch implements client.Interface for merge patches.
func (m *Memory) Patch(_ context.Context, res schema.GroupVersionResource, namespace, name string, pt types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string) (runtime.Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	have, exists := m.objects[res][key(namespace, name)]
	switch {
	case !exists:
		return nil, apierrors.NewNotFound(res.GroupResource(), name)
	case pt != types.MergePatchType:
		return nil, apierrors.NewMethodNotSupported(res.GroupResource(), "patch")
	}
	text, err := json.Marshal(have)
	if err != nil {
		return nil, err
	}
	if text, err = jsonpatch.MergePatch(text, data); err != nil {
		return nil, err
	}
	changed := reflect.New(reflect.TypeOf(have).Elem()).Interface().(client.Object)
	if err := json.Unmarshal(text, changed); err != nil {
		return nil, err
	}
	return m.put(res, changed), nil
}

func (m *Memory) DeleteCollection(_ context.Context, res schema.GroupVersionResource, _ string, _ metav1.DeleteOptions, _ metav1.ListOptions) error {
	return apierrors.NewMethodNotSupported(res.GroupResource(), "deletecollection")
}

func (m *Memory) Discovery(context.Context) ([]*metav1.APIResourceList, error) {
	return nil, apierrors.NewMethodNotSupported(schema.GroupResource{}, "discovery")
}

// View implements client.Interface.
func (m *Memory) View(_ context.Context, res schema.GroupVersionResource, _ client.Scope) (client.View, error) {
	return view{m, res}, nil
}

type view struct {
	m   *Memory
	res schema.GroupVersionResource
}

var indexes sync.Map // from {memory, resource, name} to the function of the values

type indexKey struct {
	view
	name string
}

func (v view) Get(namespace, name string) (runtime.Object, bool) {
	obj, err := v.m.Get(context.Background(), v.res, namespace, name, metav1.GetOptions{})
	return obj, err == nil
}

func (v view) List(namespace string, selector labels.Selector) []runtime.Object {
	v.m.mu.Lock()
	defer v.m.mu.Unlock()
	var out []runtime.Object
	for _, k := range slices.Sorted(maps.Keys(v.m.objects[v.res])) {
		o := v.m.objects[v.res][k]
		if (namespace == "" || o.GetNamespace() == namespace) && (selector == nil || selector.Matches(labels.Set(o.GetLabels()))) {
			out = append(out, o)
		}
	}
	return out
}

func (v view) AddIndex(name string, values func(runtime.Object) []string) {
	indexes.LoadOrStore(indexKey{v, name}, values)
}

func (v view) ByIndex(name, value string) []runtime.Object {
	values, ok := indexes.Load(indexKey{v, name})
	if !ok {
		return nil
	}
	var out []runtime.Object
	for _, o := range v.List("", nil) {
		if slices.Contains(values.(func(runtime.Object) []string)(o), value) {
			out = append(out, o)
		}
	}
	return out
}

func (v view) Revision() int64 {
	v.m.mu.Lock()
	defer v.m.mu.Unlock()
	return v.m.revision
}

func (v view) WaitFor(context.Context, int64) error { return nil }

// Subscribe sends the existing objects, and no changes.
func (v view) Subscribe(_ context.Context, fn func(client.Event)) (synced, done <-chan struct{}) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for _, o := range v.List("", nil) {
			fn(client.Event{Type: client.Added, Object: o})
		}
	}()
	return ended, ended
}
