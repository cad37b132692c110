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
