package clienttest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/client"
)

// scope says which objects a list or a View covers.
type scope struct {
	namespace string
	labels    labels.Selector
	fields    fields.Selector
}

func newScope(s client.Scope) (*scope, error) {
	byLabel, err := labels.Parse(s.LabelSelector)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	byField, err := fields.ParseSelector(s.FieldSelector)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return &scope{s.Namespace, byLabel, byField}, nil
}

func (s *scope) covers(obj client.Object) bool {
	return obj != nil && (s.namespace == "" || s.namespace == obj.GetNamespace()) &&
		s.labels.Matches(labels.Set(obj.GetLabels())) && s.fields.Matches(fieldsOf(obj))
}

func fieldsOf(obj client.Object) fields.Set {
	set := fields.Set{"metadata.name": obj.GetName(), "metadata.namespace": obj.GetNamespace()}
	if pod, ok := obj.(*corev1.Pod); ok {
		set["spec.nodeName"], set["status.phase"] = pod.Spec.NodeName, string(pod.Status.Phase)
	}
	if slice, ok := obj.(*resourcev1.ResourceSlice); ok {
		set[resourcev1.ResourceSliceSelectorDriver] = slice.Spec.Driver
		if slice.Spec.NodeName != nil {
			set[resourcev1.ResourceSliceSelectorNodeName] = *slice.Spec.NodeName
		}
	}
	return set
}

// memoryView implements client.View. The Memory's mutex guards its fields.
type memoryView struct {
	m        *Memory
	res      schema.GroupVersionResource
	in       *scope
	metadata bool
	indexes  map[string]func(runtime.Object) []string
	subs     []*subscription
}

// View implements client.Interface. Field selectors see metadata.name and metadata.namespace, and
// spec.nodeName and status.phase of pods, and spec.nodeName and spec.driver of ResourceSlices.
func (m *Memory) View(_ context.Context, res schema.GroupVersionResource, s client.Scope) (client.View, error) {
	in, err := newScope(s)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	v := &memoryView{m: m, res: res, in: in, metadata: s.MetadataOnly, indexes: map[string]func(runtime.Object) []string{}}
	m.views = append(m.views, v)
	return v, nil
}

// notify tells the Views of a resource about a change; old or now may be nil.
func (m *Memory) notify(res schema.GroupVersionResource, old, now client.Object) {
	for _, v := range m.views {
		if v.res == res {
			v.notify(old, now)
		}
	}
}

func (v *memoryView) notify(old, now client.Object) {
	var e client.Event
	switch before, after := v.in.covers(old), v.in.covers(now); {
	case before && after:
		e = client.Event{Type: client.Modified, Old: v.show(old), Object: v.show(now)}
	case after:
		e = client.Event{Type: client.Added, Object: v.show(now)}
	case before:
		e = client.Event{Type: client.Deleted, Old: v.show(old), Object: v.show(old)}
	default:
		return
	}
	for _, s := range v.subs {
		s.push(e)
	}
}

// show is the object as the View's users see it.
func (v *memoryView) show(obj client.Object) runtime.Object {
	if !v.metadata {
		return obj
	}
	return meta.AsPartialObjectMetadata(obj)
}

func (v *memoryView) Get(namespace, name string) (runtime.Object, bool) {
	v.m.mu.Lock()
	defer v.m.mu.Unlock()
	obj, err := v.m.find(v.res, namespace, name)
	if err != nil || !v.in.covers(obj) {
		return nil, false
	}
	return v.show(obj), true
}

func (v *memoryView) List(namespace string, selector labels.Selector) []runtime.Object {
	v.m.mu.Lock()
	defer v.m.mu.Unlock()
	var out []runtime.Object
	for _, obj := range v.m.list(v.res, v.in) {
		if (namespace == "" || obj.GetNamespace() == namespace) && (selector == nil || selector.Matches(labels.Set(obj.GetLabels()))) {
			out = append(out, v.show(obj))
		}
	}
	return out
}

func (v *memoryView) AddIndex(name string, values func(runtime.Object) []string) {
	v.m.mu.Lock()
	defer v.m.mu.Unlock()
	if v.indexes[name] == nil {
		v.indexes[name] = values
	}
}

func (v *memoryView) ByIndex(name, value string) []runtime.Object {
	v.m.mu.Lock()
	values := v.indexes[name]
	v.m.mu.Unlock()
	if values == nil {
		panic(fmt.Sprintf("clienttest: a view of %s has no index %q", v.res.Resource, name))
	}
	return slices.DeleteFunc(v.List("", nil), func(obj runtime.Object) bool {
		return !slices.Contains(values(obj), value)
	})
}

func (v *memoryView) Revision() int64 {
	v.m.mu.Lock()
	defer v.m.mu.Unlock()
	return v.m.revision
}

func (v *memoryView) WaitFor(ctx context.Context, revision int64) error {
	for v.Revision() < revision {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

// subscription is a queue of events without bound.
type subscription struct {
	mu     sync.Mutex
	events []client.Event
	wake   chan struct{}
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

func (s *subscription) take() []client.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	events := s.events
	s.events = nil
	return events
}

func (v *memoryView) Subscribe(ctx context.Context, fn func(client.Event)) (synced, done <-chan struct{}) {
	s := &subscription{wake: make(chan struct{}, 1)}
	v.m.mu.Lock()
	initial := v.m.list(v.res, v.in)
	v.subs = append(v.subs, s)
	v.m.mu.Unlock()
	ready, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		defer v.unsubscribe(s)
		for _, obj := range initial {
			if ctx.Err() != nil {
				return
			}
			fn(client.Event{Type: client.Added, Object: v.show(obj)})
		}
		close(ready)
		for {
			for _, e := range s.take() {
				if ctx.Err() != nil {
					return
				}
				fn(e)
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

func (v *memoryView) unsubscribe(s *subscription) {
	v.m.mu.Lock()
	defer v.m.mu.Unlock()
	v.subs = slices.DeleteFunc(v.subs, func(o *subscription) bool { return o == s })
}
