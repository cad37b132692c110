package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// Presence is the result of a lookup.
type Presence int

const (
	// Unknown means that the object is not read yet, or cannot be read. A rule must not conclude
	// anything from it.
	Unknown Presence = iota
	Found
	Absent
)

// need is a lookup that a Snapshot is asked for. An empty name asks for a list, in all namespaces
// if the namespace is empty too.
type need struct {
	what            string // objects, events, log, kinds
	resource        schema.GroupResource
	namespace, name string
	kind            string // of the object of events
	container       string
	previous        bool
}

func (n need) String() string {
	in := ""
	if n.namespace != "" {
		in = " in namespace " + n.namespace
	}
	switch {
	case n.what == "kinds":
		return "the kinds of custom resources"
	case n.what == "events":
		return fmt.Sprintf("events of %s/%s%s", strings.ToLower(n.kind), n.name, in)
	case n.what == "log":
		return fmt.Sprintf("the log of container %s of pod/%s%s", n.container, n.name, in)
	case n.name != "":
		return fmt.Sprintf("%s/%s%s", n.resource, n.name, in)
	}
	return n.resource.String() + in
}

// reply is what was read for a need.
type reply struct {
	objects []runtime.Object
	byName  map[string]runtime.Object // by namespace/name
	text    string
	kinds   []customKind
	err     error
}

func newReply(objects []runtime.Object) *reply {
	r := &reply{objects: objects, byName: make(map[string]runtime.Object, len(objects))}
	for _, o := range objects {
		if m, err := meta.Accessor(o); err == nil {
			r.byName[m.GetNamespace()+"/"+m.GetName()] = o
		}
	}
	return r
}

// Snapshot is the read-only state that rules look at. It records lookups that it cannot answer.
// One goroutine uses it.
type Snapshot struct {
	// Now is the time at which the rules judge.
	Now     time.Time
	replies map[need]*reply
	missing map[need]bool
	failed  map[need]bool
	// whole means that lists which were not read are empty: a Snapshot of given objects.
	whole bool
	// scheduling keeps the scheduler's view of the nodes, with and without their pods.
	scheduling map[bool]*framework.Snapshot
	// owners indexes the objects of a list by their owners.
	owners map[need]map[types.UID][]Ref
}

func newSnapshot(now time.Time) *Snapshot {
	return &Snapshot{Now: now, replies: map[need]*reply{}, missing: map[need]bool{}, failed: map[need]bool{}}
}

// SnapshotOf returns a Snapshot that has these objects and no others. Custom resources are
// unstructured. Logs have the last lines of
// containers, by namespace/pod/container.
func SnapshotOf(now time.Time, logs map[string]string, objects ...runtime.Object) *Snapshot {
	s := newSnapshot(now)
	s.whole = true
	by := map[schema.GroupResource][]runtime.Object{}
	var kinds []customKind
	for _, o := range objects {
		gr := resourceOfObject(o)
		if u, ok := o.(*unstructured.Unstructured); ok && by[gr] == nil {
			kinds = append(kinds, customKind{resource: gr, kind: u.GetKind(), version: u.GroupVersionKind().Version, namespaced: u.GetNamespace() != ""})
		}
		by[gr] = append(by[gr], o)
	}
	s.replies[need{what: "kinds"}] = &reply{kinds: kinds}
	for gr, list := range by {
		s.replies[need{what: "objects", resource: gr}] = newReply(list)
	}
	for key, text := range logs {
		if part := strings.SplitN(key, "/", 3); len(part) == 3 {
			for _, previous := range []bool{true, false} {
				n := need{what: "log", namespace: part[0], name: part[1], container: part[2], previous: previous}
				s.replies[n] = &reply{text: text}
			}
		}
	}
	return s
}

// ask returns what was read for a need, or nil.
func (s *Snapshot) ask(n need) *reply {
	if r := s.replies[n]; r != nil {
		if r.err != nil {
			s.failed[n] = true
		}
		return r
	}
	if s.whole {
		return newReply(nil)
	}
	s.missing[n] = true
	return nil
}

// listed returns the reply that covers a namespace, if it was read. It asks for nothing.
func (s *Snapshot) listed(gr schema.GroupResource, namespace string) *reply {
	if r := s.replies[need{what: "objects", resource: gr}]; r != nil && (r.err == nil || namespace == "") {
		return r
	}
	return s.replies[need{what: "objects", resource: gr, namespace: namespace}]
}

// lookup finds an object.
func (s *Snapshot) lookup(gr schema.GroupResource, namespace, name string) (runtime.Object, Presence) {
	key := namespace + "/" + name
	if r := s.listed(gr, namespace); r != nil && r.err == nil {
		if o := r.byName[key]; o != nil {
			return o, Found
		}
		return nil, Absent
	}
	if name == "" {
		return nil, Absent
	}
	r := s.ask(need{what: "objects", resource: gr, namespace: namespace, name: name})
	switch {
	case r == nil || r.err != nil:
		return nil, Unknown
	case r.byName[key] == nil:
		return nil, Absent
	}
	return r.byName[key], Found
}

// get finds an object of a type.
func get[T runtime.Object](s *Snapshot, namespace, name string) (T, Presence) {
	var zero T
	o, p := s.lookup(resourceOf[T](), namespace, name)
	if t, ok := o.(T); ok {
		return t, p
	}
	return zero, p
}

// list returns the objects of a type in a namespace, by name. False means that they are unknown.
func list[T runtime.Object](s *Snapshot, namespace string) ([]T, bool) {
	gr := resourceOf[T]()
	r := s.listed(gr, namespace)
	if r == nil {
		r = s.ask(need{what: "objects", resource: gr, namespace: namespace})
	} else if r.err != nil {
		s.failed[need{what: "objects", resource: gr, namespace: namespace}] = true
	}
	if r == nil || r.err != nil {
		return nil, false
	}
	var out []T
	for _, o := range r.objects {
		if t, ok := o.(T); ok && (namespace == "" || metaOf(t).GetNamespace() == namespace) {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b T) int {
		x, y := metaOf(a), metaOf(b)
		return cmp.Or(cmp.Compare(x.GetNamespace(), y.GetNamespace()), cmp.Compare(x.GetName(), y.GetName()))
	})
	return out, true
}

// events returns an object's events, the newest first.
func (s *Snapshot) events(ref Ref) []*corev1.Event {
	namespace := cmp.Or(ref.Namespace, metav1.NamespaceDefault)
	kind, group, _ := strings.Cut(ref.Kind, ".") // events of custom resources have the group apart
	var from []runtime.Object
	if r := s.listed(eventsResource, namespace); r != nil && r.err == nil {
		from = r.objects
	} else if r := s.ask(need{what: "events", namespace: namespace, kind: kind, name: ref.Name}); r != nil && r.err == nil {
		from = r.objects
	}
	var out []*corev1.Event
	for _, o := range from {
		e, ok := o.(*corev1.Event)
		if ok && e.InvolvedObject.Kind == kind && (group == "" || strings.HasPrefix(e.InvolvedObject.APIVersion, group+"/")) && e.InvolvedObject.Name == ref.Name && e.Namespace == namespace {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b *corev1.Event) int {
		return cmp.Or(eventTime(b).Compare(eventTime(a)), cmp.Compare(a.Name, b.Name))
	})
	return out
}

var eventsResource = schema.GroupResource{Resource: "events"}

func eventTime(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}

// event returns the newest event with one of the reasons, or nil.
func (s *Snapshot) event(ref Ref, reasons ...string) *corev1.Event {
	for _, e := range s.events(ref) {
		if slices.Contains(reasons, e.Reason) {
			return e
		}
	}
	return nil
}

// logTail returns the last lines of a container's log, without control characters.
func (s *Snapshot) logTail(namespace, pod, container string, previous bool) string {
	r := s.ask(need{what: "log", namespace: namespace, name: pod, container: container, previous: previous})
	if r == nil || r.err != nil {
		return ""
	}
	return clean(r.text, maxLogBytes)
}

// resourceOf returns the resource of a built-in type.
func resourceOf[T runtime.Object]() schema.GroupResource {
	var zero T
	return api.ResourceOf(zero).GroupResource()
}

func metaOf(o runtime.Object) metav1.Object {
	m, err := meta.Accessor(o)
	if err != nil { // every kind of the table has metadata
		return &metav1.ObjectMeta{}
	}
	return m
}

// resourceOfObject returns the resource of any object. That of a custom resource is guessed from
// its kind.
func resourceOfObject(o runtime.Object) schema.GroupResource {
	if u, ok := o.(*unstructured.Unstructured); ok {
		plural, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
		return plural.GroupResource()
	}
	return api.ResourceOf(o).GroupResource()
}

// refTo names an object of the snapshot.
func refTo(o runtime.Object) Ref {
	m := metaOf(o)
	if u, ok := o.(*unstructured.Unstructured); ok {
		gvk := u.GroupVersionKind()
		return Ref{Kind: gvk.Kind + "." + gvk.Group, Namespace: m.GetNamespace(), Name: m.GetName()}
	}
	kind := o.GetObjectKind().GroupVersionKind().Kind
	if k, ok := api.ByResource(resourceOfObject(o)); ok {
		kind = k.Kind.Kind
	}
	return Ref{Kind: kind, Namespace: m.GetNamespace(), Name: m.GetName()}
}
