package fake

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/knarr-project/knarr/internal/client"
)

// API is an in-memory API for pods and a few related kinds.
type API struct {
	mu       sync.Mutex
	revision int64
	objects  map[schema.GroupVersionResource]map[types.NamespacedName]client.Object
	views    []*view
	// Writes lists the write requests in order: "verb resource name [subresource]".
	Writes []string
}

// NewAPI makes an empty API.
func NewAPI() *API {
	return &API{objects: map[schema.GroupVersionResource]map[types.NamespacedName]client.Object{}}
}

func (a *API) put(res schema.GroupVersionResource, obj client.Object) client.Object {
	a.revision++
	obj = obj.DeepCopyObject().(client.Object)
	obj.SetResourceVersion(strconv.FormatInt(a.revision, 10))
	key := types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
	if a.objects[res] == nil {
		a.objects[res] = map[types.NamespacedName]client.Object{}
	}
	old := a.objects[res][key]
	a.objects[res][key] = obj
	a.notify(res, old, obj)
	return obj
}

func (a *API) drop(res schema.GroupVersionResource, obj client.Object) {
	a.revision++
	delete(a.objects[res], types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()})
	a.notify(res, obj, nil)
}

func (a *API) notify(res schema.GroupVersionResource, old, now client.Object) {
	for _, v := range a.views {
		if v.res == res {
			v.notify(old, now)
		}
	}
}

func (a *API) find(res schema.GroupVersionResource, namespace, name string) (client.Object, error) {
	if o, ok := a.objects[res][types.NamespacedName{Namespace: namespace, Name: name}]; ok {
		return o, nil
	}
	return nil, apierrors.NewNotFound(res.GroupResource(), name)
}

func (a *API) log(parts ...string) { a.Writes = append(a.Writes, strings.Join(parts, " ")) }

// Get implements client.Interface.
func (a *API) Get(_ context.Context, res schema.GroupVersionResource, namespace, name string, _ metav1.GetOptions, _ ...string) (runtime.Object, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o, err := a.find(res, namespace, name)
	if err != nil {
		return nil, err
	}
	return o.DeepCopyObject(), nil
}

// List implements client.Interface. The node agent only lists through views.
func (a *API) List(context.Context, schema.GroupVersionResource, string, metav1.ListOptions) (runtime.Object, error) {
	return nil, fmt.Errorf("fake API: list is not implemented")
}

// Create implements client.Interface.
func (a *API) Create(_ context.Context, res schema.GroupVersionResource, namespace string, obj runtime.Object, _ metav1.CreateOptions, _ ...string) (runtime.Object, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := obj.DeepCopyObject().(client.Object)
	if _, err := a.find(res, namespace, o.GetName()); err == nil {
		return nil, apierrors.NewAlreadyExists(res.GroupResource(), o.GetName())
	}
	o.SetNamespace(namespace)
	if o.GetUID() == "" {
		o.SetUID(uuid.NewUUID())
	}
	o.SetCreationTimestamp(metav1.Now())
	o.SetGeneration(1)
	if p, ok := o.(*corev1.Pod); ok {
		p.Status.Phase = corev1.PodPending
	}
	a.log("create", res.Resource, o.GetName())
	return a.put(res, o), nil
}

// CreateSub implements client.Interface.
func (a *API) CreateSub(context.Context, schema.GroupVersionResource, string, string, string, runtime.Object, metav1.CreateOptions) (runtime.Object, error) {
	return nil, fmt.Errorf("fake API: subresources cannot be created")
}

// Update implements client.Interface.
func (a *API) Update(_ context.Context, res schema.GroupVersionResource, obj runtime.Object, _ metav1.UpdateOptions, sub ...string) (runtime.Object, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := obj.DeepCopyObject().(client.Object)
	have, err := a.find(res, o.GetNamespace(), o.GetName())
	if err != nil {
		return nil, err
	}
	if v := o.GetResourceVersion(); v != "" && v != have.GetResourceVersion() {
		return nil, apierrors.NewConflict(res.GroupResource(), o.GetName(), fmt.Errorf("the object has been modified"))
	}
	if pod, ok := o.(*corev1.Pod); ok {
		keep := have.DeepCopyObject().(*corev1.Pod)
		if slices.Contains(sub, "status") {
			keep.Status = pod.Status
		} else {
			keep.ObjectMeta, keep.Spec = pod.ObjectMeta, pod.Spec
		}
		o = keep
	}
	a.log(append([]string{"update", res.Resource, o.GetName()}, sub...)...)
	return a.put(res, o), nil
}

// Patch implements client.Interface.
func (a *API) Patch(context.Context, schema.GroupVersionResource, string, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (runtime.Object, error) {
	return nil, fmt.Errorf("fake API: patch is not implemented")
}

// Delete implements client.Interface. Pods that are bound to a node are deleted gracefully.
func (a *API) Delete(_ context.Context, res schema.GroupVersionResource, namespace, name string, opts metav1.DeleteOptions) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	have, err := a.find(res, namespace, name)
	if err != nil {
		return err
	}
	if p := opts.Preconditions; p != nil && p.UID != nil && *p.UID != have.GetUID() {
		return apierrors.NewConflict(res.GroupResource(), name, fmt.Errorf("the UID in the precondition does not match"))
	}
	pod, ok := have.DeepCopyObject().(*corev1.Pod)
	grace := int64(0)
	if ok && pod.Spec.NodeName != "" {
		grace = 30
		if pod.Spec.TerminationGracePeriodSeconds != nil {
			grace = *pod.Spec.TerminationGracePeriodSeconds
		}
		if opts.GracePeriodSeconds != nil {
			grace = *opts.GracePeriodSeconds
		}
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			grace = 0
		}
	}
	a.log("delete", res.Resource, name, fmt.Sprint(grace))
	if grace == 0 {
		a.drop(res, have)
		return nil
	}
	at := metav1.NewTime(time.Now().Add(time.Duration(grace) * time.Second))
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &at, &grace
	a.put(res, pod)
	return nil
}

// DeleteCollection implements client.Interface.
func (a *API) DeleteCollection(context.Context, schema.GroupVersionResource, string, metav1.DeleteOptions, metav1.ListOptions) error {
	return fmt.Errorf("fake API: collections cannot be deleted")
}

// Discovery implements client.Interface.
func (a *API) Discovery(context.Context) ([]*metav1.APIResourceList, error) { return nil, nil }

// View implements client.Interface. It supports the scopes spec.nodeName of pods and metadata.name.
func (a *API) View(_ context.Context, res schema.GroupVersionResource, scope client.Scope) (client.View, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := &view{api: a, res: res, scope: scope}
	a.views = append(a.views, v)
	return v, nil
}

type view struct {
	api   *API
	res   schema.GroupVersionResource
	scope client.Scope
	subs  []*subscription
}

type subscription struct {
	mu     sync.Mutex
	events []client.Event
	wake   chan struct{}
}

func (v *view) covers(o client.Object) bool {
	if o == nil {
		return false
	}
	for _, f := range strings.Split(v.scope.FieldSelector, ",") {
		key, value, _ := strings.Cut(f, "=")
		switch key {
		case "spec.nodeName":
			if o.(*corev1.Pod).Spec.NodeName != value {
				return false
			}
		case "metadata.name":
			if o.GetName() != value {
				return false
			}
		}
	}
	return true
}

func (v *view) notify(old, now client.Object) {
	var e client.Event
	switch {
	case v.covers(old) && v.covers(now):
		e = client.Event{Type: client.Modified, Old: old, Object: now}
	case v.covers(now):
		e = client.Event{Type: client.Added, Object: now}
	case v.covers(old):
		e = client.Event{Type: client.Deleted, Old: old, Object: old}
	default:
		return
	}
	for _, s := range v.subs {
		s.push(e)
	}
}

func (s *subscription) push(e client.Event) {
	s.mu.Lock()
	s.events = append(s.events, e)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Get implements client.View.
func (v *view) Get(namespace, name string) (runtime.Object, bool) {
	v.api.mu.Lock()
	defer v.api.mu.Unlock()
	o, err := v.api.find(v.res, namespace, name)
	if err != nil || !v.covers(o) {
		return nil, false
	}
	return o, true
}

// List implements client.View.
func (v *view) List(namespace string, selector labels.Selector) []runtime.Object {
	v.api.mu.Lock()
	defer v.api.mu.Unlock()
	var out []runtime.Object
	for key, o := range v.api.objects[v.res] {
		if (namespace == "" || key.Namespace == namespace) && v.covers(o) && (selector == nil || selector.Matches(labels.Set(o.GetLabels()))) {
			out = append(out, o)
		}
	}
	return out
}

func (v *view) AddIndex(string, func(runtime.Object) []string) {}
func (v *view) ByIndex(string, string) []runtime.Object        { return nil }
func (v *view) Revision() int64                                { return v.api.revision }
func (v *view) WaitFor(context.Context, int64) error           { return nil }

// Subscribe implements client.View.
func (v *view) Subscribe(ctx context.Context, fn func(client.Event)) (synced, done <-chan struct{}) {
	s := &subscription{wake: make(chan struct{}, 1)}
	v.api.mu.Lock()
	initial := 0
	for _, o := range v.api.objects[v.res] {
		if v.covers(o) {
			s.push(client.Event{Type: client.Added, Object: o})
			initial++
		}
	}
	v.subs = append(v.subs, s)
	v.api.mu.Unlock()
	ready, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		if initial == 0 {
			close(ready)
		}
		for {
			s.mu.Lock()
			events := s.events
			s.events = nil
			s.mu.Unlock()
			for _, e := range events {
				if ctx.Err() != nil {
					return
				}
				fn(e)
				if initial--; initial == 0 {
					close(ready)
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-s.wake:
			}
		}
	}()
	return ready, ended
}
