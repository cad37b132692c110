package clienttest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/client"
)

// Memory is a client.Interface over objects in memory. The zero value is not ready: use NewMemory.
// Safe for concurrent use.
type Memory struct {
	mu       sync.Mutex
	revision int64
	// The keys of the inner map are namespace/name. Objects are never changed in place.
	objects map[schema.GroupVersionResource]map[string]client.Object
	views   []*memoryView
}

var _ client.Interface = (*Memory)(nil)

// NewMemory makes a Memory that holds copies of the objects.
func NewMemory(objects ...client.Object) *Memory {
	m := &Memory{objects: map[schema.GroupVersionResource]map[string]client.Object{}}
	for _, o := range objects {
		m.Put(o)
	}
	return m
}

// Put stores a copy of the object as it is, and replaces an older one. It sets the resourceVersion,
// and the UID if there is none.
func (m *Memory) Put(obj client.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(api.ResourceOf(obj), copyOf(obj))
}

// Remove deletes the object at once, if it exists.
func (m *Memory) Remove(obj client.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if have, err := m.find(api.ResourceOf(obj), obj.GetNamespace(), obj.GetName()); err == nil {
		m.drop(api.ResourceOf(obj), have)
	}
}

func copyOf(obj runtime.Object) client.Object { return obj.DeepCopyObject().(client.Object) }

func key(namespace, name string) string { return namespace + "/" + name }

// put stores the object, which belongs to the Memory from then on. It returns a copy.
func (m *Memory) put(res schema.GroupVersionResource, obj client.Object) client.Object {
	m.revision++
	obj.SetResourceVersion(strconv.FormatInt(m.revision, 10))
	if obj.GetUID() == "" {
		obj.SetUID(types.UID(fmt.Sprintf("uid-%d", m.revision)))
	}
	if m.objects[res] == nil {
		m.objects[res] = map[string]client.Object{}
	}
	at := key(obj.GetNamespace(), obj.GetName())
	old := m.objects[res][at]
	m.objects[res][at] = obj
	m.notify(res, old, obj)
	return copyOf(obj)
}

func (m *Memory) drop(res schema.GroupVersionResource, obj client.Object) {
	m.revision++
	delete(m.objects[res], key(obj.GetNamespace(), obj.GetName()))
	m.notify(res, obj, nil)
}

func (m *Memory) find(res schema.GroupVersionResource, namespace, name string) (client.Object, error) {
	if obj, ok := m.objects[res][key(namespace, name)]; ok {
		return obj, nil
	}
	return nil, apierrors.NewNotFound(res.GroupResource(), name)
}

// list returns the objects in the scope, in key order.
func (m *Memory) list(res schema.GroupVersionResource, in *scope) []client.Object {
	var out []client.Object
	for _, at := range slices.Sorted(maps.Keys(m.objects[res])) {
		if obj := m.objects[res][at]; in.covers(obj) {
			out = append(out, obj)
		}
	}
	return out
}

// Get implements client.Interface.
func (m *Memory) Get(_ context.Context, res schema.GroupVersionResource, namespace, name string,
	_ metav1.GetOptions, _ ...string) (runtime.Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	obj, err := m.find(res, namespace, name)
	if err != nil {
		return nil, err
	}
	return copyOf(obj), nil
}

// List implements client.Interface. It ignores limits.
func (m *Memory) List(_ context.Context, res schema.GroupVersionResource, namespace string,
	opts metav1.ListOptions) (runtime.Object, error) {
	kind, ok := api.ByResource(res.GroupResource())
	if !ok {
		return nil, apierrors.NewNotFound(res.GroupResource(), "")
	}
	list, err := kind.NewList()
	if err != nil {
		return nil, err
	}
	in, err := newScope(client.Scope{
		Namespace: namespace, LabelSelector: opts.LabelSelector, FieldSelector: opts.FieldSelector,
	})
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var items []runtime.Object
	for _, obj := range m.list(res, in) {
		items = append(items, copyOf(obj))
	}
	list.(metav1.ListInterface).SetResourceVersion(strconv.FormatInt(m.revision, 10))
	return list, meta.SetList(list, items)
}

// Create implements client.Interface.
func (m *Memory) Create(_ context.Context, res schema.GroupVersionResource, namespace string,
	obj runtime.Object, _ metav1.CreateOptions, _ ...string) (runtime.Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	made := copyOf(obj)
	if made.GetName() == "" && made.GetGenerateName() != "" {
		made.SetName(fmt.Sprintf("%s%05d", made.GetGenerateName(), m.revision))
	}
	if made.GetNamespace() == "" {
		made.SetNamespace(namespace)
	}
	if _, err := m.find(res, made.GetNamespace(), made.GetName()); err == nil {
		return nil, apierrors.NewAlreadyExists(res.GroupResource(), made.GetName())
	}
	made.SetCreationTimestamp(metav1.Now().Rfc3339Copy())
	made.SetGeneration(1)
	if pod, ok := made.(*corev1.Pod); ok && pod.Status.Phase == "" {
		pod.Status.Phase = corev1.PodPending
	}
	return m.put(res, made), nil
}

// CreateSub implements client.Interface for bindings of pods.
func (m *Memory) CreateSub(_ context.Context, res schema.GroupVersionResource, namespace, name, subresource string,
	obj runtime.Object, _ metav1.CreateOptions) (runtime.Object, error) {
	binding, ok := obj.(*corev1.Binding)
	if !ok {
		return nil, apierrors.NewMethodNotSupported(res.GroupResource(), "create "+subresource)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	have, err := m.find(res, namespace, name)
	if err != nil {
		return nil, err
	}
	pod := have.DeepCopyObject().(*corev1.Pod)
	if pod.Spec.NodeName != "" {
		err := fmt.Errorf("pod %s is already assigned to node %q", name, pod.Spec.NodeName)
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "pods/binding"}, name, err)
	}
	pod.Spec.NodeName = binding.Target.Name
	m.put(res, pod)
	return &metav1.Status{Status: metav1.StatusSuccess}, nil
}

// Update implements client.Interface. The status changes only through the subresource "status".
func (m *Memory) Update(_ context.Context, res schema.GroupVersionResource, obj runtime.Object,
	_ metav1.UpdateOptions, sub ...string) (runtime.Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	wanted := copyOf(obj)
	have, err := m.find(res, wanted.GetNamespace(), wanted.GetName())
	if err != nil {
		return nil, err
	}
	return m.replace(res, have, wanted, sub)
}

// replace stores wanted in place of have, if the preconditions in its metadata hold.
func (m *Memory) replace(res schema.GroupVersionResource, have, wanted client.Object, sub []string) (runtime.Object, error) {
	if v := wanted.GetResourceVersion(); v != "" && v != have.GetResourceVersion() {
		return nil, conflict(res, have, "the object has been modified; please apply your changes to the latest version and try again")
	}
	if uid := wanted.GetUID(); uid != "" && uid != have.GetUID() {
		return nil, conflict(res, have, fmt.Sprintf("Precondition failed: UID in precondition: %s, UID in object meta: %s", uid, have.GetUID()))
	}
	changed := merge(have, wanted, sub)
	if equality.Semantic.DeepEqual(have, changed) {
		return copyOf(have), nil
	}
	if changed.GetDeletionTimestamp() != nil && len(have.GetFinalizers()) > 0 && len(changed.GetFinalizers()) == 0 && grace(changed) == 0 {
		m.drop(res, changed)
		return changed, nil
	}
	return m.put(res, changed), nil
}

func conflict(res schema.GroupVersionResource, obj client.Object, text string) error {
	return apierrors.NewConflict(res.GroupResource(), obj.GetName(), errors.New(text))
}

// merge returns have with wanted's status, or wanted with have's status.
func merge(have, wanted client.Object, sub []string) client.Object {
	into, from := wanted, have
	if slices.Contains(sub, "status") {
		into, from = copyOf(have), wanted
	}
	if to := reflect.ValueOf(into).Elem().FieldByName("Status"); to.IsValid() {
		to.Set(reflect.ValueOf(copyOf(from)).Elem().FieldByName("Status"))
	}
	into.SetUID(have.GetUID())
	into.SetResourceVersion(have.GetResourceVersion())
	into.SetCreationTimestamp(have.GetCreationTimestamp())
	into.SetDeletionTimestamp(have.GetDeletionTimestamp())
	into.SetDeletionGracePeriodSeconds(have.GetDeletionGracePeriodSeconds())
	return into
}

// Delete implements client.Interface. A pod on a node, and an object with finalizers, only get a
// deletionTimestamp.
func (m *Memory) Delete(_ context.Context, res schema.GroupVersionResource, namespace, name string, opts metav1.DeleteOptions) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	have, err := m.find(res, namespace, name)
	if err != nil {
		return err
	}
	return m.delete(res, have, opts)
}

func (m *Memory) delete(res schema.GroupVersionResource, have client.Object, opts metav1.DeleteOptions) error {
	if p := opts.Preconditions; p != nil && p.UID != nil && *p.UID != have.GetUID() {
		return conflict(res, have, fmt.Sprintf("Precondition failed: UID in precondition: %s, UID in object meta: %s", *p.UID, have.GetUID()))
	}
	seconds := gracePeriod(have, opts)
	if seconds == 0 && len(have.GetFinalizers()) == 0 {
		m.drop(res, have)
		return nil
	}
	if have.GetDeletionTimestamp() != nil && grace(have) <= seconds {
		return nil
	}
	ending := copyOf(have)
	at := metav1.NewTime(time.Now().Add(time.Duration(seconds) * time.Second)).Rfc3339Copy()
	ending.SetDeletionTimestamp(&at)
	ending.SetDeletionGracePeriodSeconds(&seconds)
	m.put(res, ending)
	return nil
}

func grace(obj client.Object) int64 {
	if g := obj.GetDeletionGracePeriodSeconds(); g != nil {
		return *g
	}
	return 0
}

// gracePeriod is how many seconds an object stays after a request to delete it.
func gracePeriod(obj client.Object, opts metav1.DeleteOptions) int64 {
	pod, ok := obj.(*corev1.Pod)
	switch {
	case !ok || pod.Spec.NodeName == "":
		return 0
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		return 0
	case opts.GracePeriodSeconds != nil:
		return *opts.GracePeriodSeconds
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		return *pod.Spec.TerminationGracePeriodSeconds
	}
	return corev1.DefaultTerminationGracePeriodSeconds
}

// DeleteCollection implements client.Interface.
func (m *Memory) DeleteCollection(_ context.Context, res schema.GroupVersionResource, namespace string,
	opts metav1.DeleteOptions, list metav1.ListOptions) error {
	in, err := newScope(client.Scope{
		Namespace: namespace, LabelSelector: list.LabelSelector, FieldSelector: list.FieldSelector,
	})
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, obj := range m.list(res, in) {
		if err := m.delete(res, obj, opts); err != nil {
			return err
		}
	}
	return nil
}

// Discovery implements client.Interface: it lists knarr's built-in kinds in their hub versions.
func (m *Memory) Discovery(context.Context) ([]*metav1.APIResourceList, error) {
	var out []*metav1.APIResourceList
	lists := map[string]*metav1.APIResourceList{}
	for i := range api.Kinds() {
		kind := &api.Kinds()[i]
		version := kind.Kind.GroupVersion().String()
		if lists[version] == nil {
			lists[version] = &metav1.APIResourceList{GroupVersion: version}
			out = append(out, lists[version])
		}
		lists[version].APIResources = append(lists[version].APIResources, metav1.APIResource{
			Name: kind.Resource, Kind: kind.Kind.Kind, Namespaced: kind.Namespaced, Verbs: kind.AllVerbs(),
		})
	}
	return out, nil
}
