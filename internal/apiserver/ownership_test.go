package apiserver

import (
	"fmt"
	"math/rand"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/equality"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/randfill"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/verb"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

// tracked returns the managed fields of the tracker and of the field manager for the same write; ok
// is false if the tracker leaves it to the field manager.
func tracked(t *testing.T, op *verb.Operation, live, obj runtime.Object) (own, reference runtime.Object, ok bool) {
	t.Helper()
	m, err := op.Endpoint.Manager(op.Subresource)
	if err != nil {
		t.Fatal(err)
	}
	own, reference = obj.DeepCopyObject(), obj.DeepCopyObject()
	before, untouched := live.DeepCopyObject(), own.DeepCopyObject()
	reference = m.UpdateNoErrors(live.DeepCopyObject(), reference, op.FieldManager)
	wire.ClearKind(reference)
	ok = op.Endpoint.Tracker(op.Subresource).Update(live, own, op.FieldManager, time.Now())
	if !equality.Semantic.DeepEqual(before, live) {
		t.Error("the stored object was changed")
	}
	if !ok && !reflect.DeepEqual(own, untouched) {
		t.Error("the tracker changed an object that it left to the field manager")
	}
	return own, reference, ok
}

// sameTimes sets all entries to one time: the two computations run at different moments.
func sameTimes(obj runtime.Object) []metav1.ManagedFieldsEntry {
	entries := wire.Accessor(obj).GetManagedFields()
	for i := range entries {
		if entries[i].Time != nil && time.Since(entries[i].Time.Time) < time.Hour {
			entries[i].Time = &metav1.Time{}
		}
	}
	return entries
}

func show(entries []metav1.ManagedFieldsEntry) (out string) {
	for _, e := range entries {
		out += fmt.Sprintf("\n%s %s %s %q %v: %s", e.Manager, e.Operation, e.APIVersion, e.Subresource, e.Time, e.FieldsV1.GetRawString())
	}
	return out
}

// randomObject fills an object at random, as users could: without managed fields.
func randomObject(e *registry.Endpoint, fill *randfill.Filler) runtime.Object {
	obj := e.NewObject()
	fill.Fill(obj)
	wire.ClearKind(obj)
	wire.Accessor(obj).SetManagedFields(nil)
	return obj
}

// mixed returns an object with some of its parts from another one.
func mixed(a, b runtime.Object, random *rand.Rand) runtime.Object {
	out := a.DeepCopyObject()
	to, from := reflect.ValueOf(out).Elem(), reflect.ValueOf(b.DeepCopyObject()).Elem()
	var mix func(to, from reflect.Value, depth int)
	mix = func(to, from reflect.Value, depth int) {
		for i := range to.NumField() {
			switch f := to.Field(i); {
			case !f.CanSet():
			case f.Kind() == reflect.Struct && depth < 3 && random.Intn(4) > 0:
				mix(f, from.Field(i), depth+1)
			case random.Intn(4) == 0:
				f.Set(from.Field(i))
			}
		}
	}
	mix(to, from, 0)
	return out
}

func TestTrackerEqualsFieldManagerForEveryKind(t *testing.T) {
	s := newTestServer(t)
	const rounds = 12
	done, left := 0, 0
	for _, kind := range api.Kinds() {
		e, ok := s.endpoints.Find(kind.GroupResource().WithVersion(kind.Kind.Version))
		if !ok || kind.Virtual || e.GVK != e.Hub {
			continue
		}
		for _, subresource := range []string{"", "status"} {
			if subresource != "" && !e.HasSubresource(subresource) {
				continue
			}
			t.Run(kind.Kind.String()+" "+subresource, func(t *testing.T) {
				random := rand.New(rand.NewSource(int64(len(kind.Resource))))
				fill := fuzzer.FuzzerFor(metafuzzer.Funcs, random, serializer.NewCodecFactory(api.Scheme))
				op := s.engine.InternalOperation(e, "default", "x")
				op.FieldManager = "one"
				if op.Endpoint.Tracker(op.Subresource) == nil {
					t.Skip("without a schema, left to the field manager")
				}
				for round := range rounds {
					obj := randomObject(e, fill)
					wire.Accessor(obj).SetUID("")
					own, reference, ok := tracked(t, op, e.NewObject(), obj)
					if count(ok, &done, &left); ok && !reflect.DeepEqual(sameTimes(own), sameTimes(reference)) {
						t.Fatalf("a new object, round %d:%s\nwant%s", round, show(sameTimes(own)), show(sameTimes(reference)))
					}
					// Similar objects must not get each other's fields.
					for similar := range 4 {
						obj := mixed(obj, randomObject(e, fill), random)
						wire.Accessor(obj).SetUID("")
						own, reference, ok := tracked(t, op, e.NewObject(), obj)
						if count(ok, &done, &left); ok && !reflect.DeepEqual(sameTimes(own), sameTimes(reference)) {
							t.Fatalf("round %d, similar object %d:%s\nwant%s", round, similar, show(sameTimes(own)), show(sameTimes(reference)))
						}
					}
					live := reference
					for step, manager := range []string{"two", "one", "three", "two"} {
						op.Subresource, op.FieldManager = subresource, manager
						wire.Accessor(live).SetUID("uid")
						obj := mixed(live, randomObject(e, fill), random)
						wire.Accessor(obj).SetUID("uid")
						if step%2 == 0 {
							wire.Accessor(obj).SetManagedFields(wire.Accessor(live).GetManagedFields())
						} else {
							wire.Accessor(obj).SetManagedFields(nil)
						}
						own, reference, ok := tracked(t, op, live, obj)
						if count(ok, &done, &left); ok && !reflect.DeepEqual(sameTimes(own), sameTimes(reference)) {
							t.Fatalf("round %d, change %d:%s\nwant%s", round, step, show(sameTimes(own)), show(sameTimes(reference)))
						}
						live = reference
					}
					op.Subresource, op.FieldManager = "", "one"
				}
			})
		}
	}
	t.Logf("%d writes tracked, %d left to the field manager", done, left)
	if left > done/4 {
		t.Errorf("%d writes of %d were left to the field manager: the short way is hardly taken", left, done+left)
	}
}

func count(ok bool, done, left *int) {
	if ok {
		*done++
	} else {
		*left++
	}
}

// TestTrackerTellsSimilarNewObjectsApart changes a small pod in ways that may be mistaken for each
// other.
func TestTrackerTellsSimilarNewObjectsApart(t *testing.T) {
	s := newTestServer(t)
	e, ok := s.endpoints.Find(corev1.SchemeGroupVersion.WithResource("pods"))
	if !ok {
		t.Fatal("the kind Pod is not served")
	}
	op := s.engine.InternalOperation(e, "default", "x")
	op.FieldManager = "one"
	yes, no, grace := true, false, int64(0)
	changes := map[string]func(*corev1.Pod){
		"nothing":                  func(*corev1.Pod) {},
		"another name":             func(p *corev1.Pod) { p.Name = "other" },
		"another value":            func(p *corev1.Pod) { p.Labels["a"] = "2" },
		"another label":            func(p *corev1.Pod) { p.Labels = map[string]string{"b": "1"} },
		"two labels":               func(p *corev1.Pod) { p.Labels["b"] = "1" },
		"no labels":                func(p *corev1.Pod) { p.Labels = map[string]string{} },
		"an annotation":            func(p *corev1.Pod) { p.Labels, p.Annotations = nil, p.Labels },
		"an empty container":       func(p *corev1.Pod) { p.Spec.Containers[0] = corev1.Container{Name: "c"} },
		"another container":        func(p *corev1.Pod) { p.Spec.Containers[0].Name = "d" },
		"an init container":        func(p *corev1.Pod) { p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers, nil },
		"the same container twice": func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, p.Spec.Containers[0]) },
		"no containers":            func(p *corev1.Pod) { p.Spec.Containers = nil },
		"empty containers":         func(p *corev1.Pod) { p.Spec.Containers = []corev1.Container{} },
		"another port":             func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].ContainerPort = 81 },
		"another protocol":         func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].Protocol = "UDP" },
		"no protocol":              func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].Protocol = "" },
		"no port":                  func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].ContainerPort = 0 },
		"an empty variable":        func(p *corev1.Pod) { p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "e"}} },
		"a variable":               func(p *corev1.Pod) { p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "e", Value: "v"}} },
		"a source": func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "e", ValueFrom: &corev1.EnvVarSource{}}}
		},
		"a finalizer":            func(p *corev1.Pod) { p.Finalizers = []string{"a/b"} },
		"another finalizer":      func(p *corev1.Pod) { p.Finalizers = []string{"a/c"} },
		"two finalizers":         func(p *corev1.Pod) { p.Finalizers = []string{"a/b", "a/c"} },
		"an owner":               func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{{UID: "u", Controller: &no}} },
		"an owner that controls": func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{{UID: "u", Controller: &yes}} },
		"another owner":          func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{{UID: "v", Controller: &yes}} },
		"a time":                 func(p *corev1.Pod) { p.CreationTimestamp = metav1.Unix(1, 0) },
		"a zero time":            func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(time.Time{}.Local()) },
		"a time of deletion":     func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} },
		"no grace":               func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = &grace },
		"a context":              func(p *corev1.Pod) { p.Spec.SecurityContext = &corev1.PodSecurityContext{} },
		"a context with a user":  func(p *corev1.Pod) { p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: &grace} },
		"a condition":            func(p *corev1.Pod) { p.Status.Conditions = []corev1.PodCondition{{Type: "Ready"}} },
	}
	for _, round := range []string{"first", "again"} {
		for name, change := range changes {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"a": "1"}}}
			pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "i", Ports: []corev1.ContainerPort{{ContainerPort: 80, Protocol: "TCP"}}}}
			change(pod)
			own, reference, ok := tracked(t, op, e.NewObject(), pod)
			if ok && !reflect.DeepEqual(sameTimes(own), sameTimes(reference)) {
				t.Errorf("%s, %s:%s\nwant%s", name, round, show(sameTimes(own)), show(sameTimes(reference)))
			}
			if !ok && name != "the same container twice" {
				t.Errorf("%s is left to the field manager", name)
			}
		}
	}
}

// TestTrackerSortsManyElements: many elements are sorted first.
func TestTrackerSortsManyElements(t *testing.T) {
	s := newTestServer(t)
	e, ok := s.endpoints.Find(corev1.SchemeGroupVersion.WithResource("pods"))
	if !ok {
		t.Fatal("the kind Pod is not served")
	}
	op := s.engine.InternalOperation(e, "default", "x")
	op.FieldManager = "one"
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	pod.Labels = map[string]string{}
	for _, i := range rand.New(rand.NewSource(1)).Perm(1000) {
		name := fmt.Sprint("n", i)
		pod.Labels[name] = "x"
		pod.Finalizers = append(pod.Finalizers, "x/"+name)
		pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: name, Value: name})
	}
	own, reference, ok := tracked(t, op, e.NewObject(), pod)
	if !ok || !reflect.DeepEqual(sameTimes(own), sameTimes(reference)) {
		t.Errorf("%t%s\nwant%s", ok, show(sameTimes(own)), show(sameTimes(reference)))
	}
	pod.Finalizers[999] = pod.Finalizers[0]
	if _, _, ok := tracked(t, op, e.NewObject(), pod); ok {
		t.Error("duplicate items are not left to the field manager")
	}
}
