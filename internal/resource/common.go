package resource

import (
	"reflect"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// on adapts a function of one Go type to the signature in Strategy. A wrong type is a programming error: panic.
func on[T runtime.Object](f func(T)) func(runtime.Object) {
	return func(obj runtime.Object) { f(obj.(T)) }
}

// onBoth adapts a function of a new and an old object of one Go type.
func onBoth[T runtime.Object](f func(obj, old T)) func(obj, old runtime.Object) {
	return func(obj, old runtime.Object) { f(obj.(T), old.(T)) }
}

// part is the struct field of that name of a pointer to a struct.
func part(obj runtime.Object, name string) reflect.Value {
	return reflect.ValueOf(obj).Elem().FieldByName(name)
}

// keep copies a part of old, which is shared, into obj.
func keep(obj, old runtime.Object, name string) {
	part(obj, name).Set(part(old.DeepCopyObject(), name))
}

// onlyStatus keeps what an update of the status may not change where metadata belongs to that: the named part, labels, annotations, finalizers, owners.
func onlyStatus(obj, old runtime.Object, name string) {
	keep(obj, old, name)
	metav1.ResetObjectMetaForStatus(obj.(metav1.Object), old.DeepCopyObject().(metav1.Object))
}

// leavesMetadata is for kinds whose status is written without any metadata.
func (s *Strategy) leavesMetadata() {
	s.PrepareStatus = func(obj, old runtime.Object) { onlyStatus(obj, old, "Spec") }
	s.Resets = map[string][]string{"status": {"metadata"}}
}

// leavesAllMetadata is for kinds whose status is written without even the name that the object's would be generated from, which others take.
func (s *Strategy) leavesAllMetadata() {
	s.leavesMetadata()
	s.PrepareStatus = func(obj, old runtime.Object) {
		onlyStatus(obj, old, "Spec")
		obj.(metav1.Object).SetGenerateName(old.(metav1.Object).GetGenerateName())
	}
}

func clearPart(obj runtime.Object, name string) { part(obj, name).SetZero() }

func same(obj, old runtime.Object, name string) bool {
	return apiequality.Semantic.DeepEqual(part(obj, name).Interface(), part(old, name).Interface())
}

// setGeneration gives obj the generation of old, raised by one when what it counts has changed.
func setGeneration(obj, old metav1.Object, changed bool) {
	g := old.GetGeneration()
	if changed {
		g++
	}
	obj.SetGeneration(g)
}

// Shapes: what most kinds do to generation and status. Each kind adds to one of them.

// plain kinds have neither status nor generation.
func plain(unconditional bool) *Strategy {
	return &Strategy{AllowUnconditionalUpdate: unconditional}
}

// withGeneration kinds count changes of Spec and have no status.
func withGeneration(unconditional bool) *Strategy {
	return &Strategy{
		AllowUnconditionalUpdate: unconditional,
		PrepareCreate:            func(obj runtime.Object) { obj.(metav1.Object).SetGeneration(1) },
		PrepareUpdate: func(obj, old runtime.Object) {
			setGeneration(obj.(metav1.Object), old.(metav1.Object), !same(obj, old, "Spec"))
		},
	}
}

// withStatus kinds have a status that only the status subresource changes, and no generation.
func withStatus(unconditional bool) *Strategy {
	return &Strategy{
		AllowUnconditionalUpdate: unconditional,
		PrepareCreate:            func(obj runtime.Object) { clearPart(obj, "Status") },
		PrepareUpdate:            func(obj, old runtime.Object) { keep(obj, old, "Status") },
		PrepareStatus:            func(obj, old runtime.Object) { keep(obj, old, "Spec") },
	}
}

// withStatusAndGeneration kinds have a status of their own, and count changes of Spec.
func withStatusAndGeneration(unconditional bool) *Strategy {
	s := withStatus(unconditional)
	s.PrepareCreate = func(obj runtime.Object) {
		clearPart(obj, "Status")
		obj.(metav1.Object).SetGeneration(1)
	}
	s.PrepareUpdate = func(obj, old runtime.Object) {
		keep(obj, old, "Status")
		setGeneration(obj.(metav1.Object), old.(metav1.Object), !same(obj, old, "Spec"))
	}
	return s
}

// dropping takes fields away that belong to features which are off, unless the old object has them: before anything else that
// happens to a new state. old is nil on create.
func (s *Strategy) dropping(drop func(obj, old runtime.Object)) {
	create, update := s.PrepareCreate, s.PrepareUpdate
	s.PrepareCreate = func(obj runtime.Object) {
		drop(obj, nil)
		if create != nil {
			create(obj)
		}
	}
	s.PrepareUpdate = func(obj, old runtime.Object) {
		drop(obj, old)
		if update != nil {
			update(obj, old)
		}
	}
}

// setDefault writes value where the pointer is nil or holds the zero value.
func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// setPointer writes a pointer to value where there is none.
func setPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
