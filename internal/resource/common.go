package resource

import (
	"reflect"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// on adapts a function of one Go type to the signature in Strategy. An object of another type is a
// programming error: it panics.
func on[T runtime.Object](f func(T)) func(runtime.Object) {
	return func(obj runtime.Object) { f(obj.(T)) }
}

// onBoth adapts a function of a new and an old object of one Go type.
func onBoth[T runtime.Object](f func(obj, old T)) func(obj, old runtime.Object) {
	return func(obj, old runtime.Object) { f(obj.(T), old.(T)) }
}

// part returns the field with the given name of a pointer to a struct.
func part(obj runtime.Object, name string) reflect.Value {
	return reflect.ValueOf(obj).Elem().FieldByName(name)
}

// keep copies a field of old into obj. It copies deeply, because old is shared.
func keep(obj, old runtime.Object, name string) {
	part(obj, name).Set(part(old.DeepCopyObject(), name))
}

// onlyStatus keeps the old values of everything that an update of the status may not change: the
// named field, labels, annotations, finalizers and owner references. It is for kinds whose status
// update may not change metadata.
func onlyStatus(obj, old runtime.Object, name string) {
	keep(obj, old, name)
	metav1.ResetObjectMetaForStatus(obj.(metav1.Object), old.DeepCopyObject().(metav1.Object))
}

// leavesMetadata is for kinds whose status update ignores all metadata.
func (s *Strategy) leavesMetadata() {
	s.PrepareStatus = func(obj, old runtime.Object) { onlyStatus(obj, old, "Spec") }
	s.Resets = map[string][]string{"status": {"metadata"}}
}

// leavesAllMetadata is for kinds whose status update ignores even generateName, which a status
// update of other kinds takes.
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

// setGeneration gives obj the generation of old, plus one if changed.
func setGeneration(obj, old metav1.Object, changed bool) {
	g := old.GetGeneration()
	if changed {
		g++
	}
	obj.SetGeneration(g)
}

// Shapes of kinds: how they treat generation and status. Each kind extends one of them.

// plain kinds have neither status nor generation.
func plain(unconditional bool) *Strategy {
	return &Strategy{AllowUnconditionalUpdate: unconditional}
}

// withGeneration kinds have no status; their generation counts changes of Spec.
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

// withStatusAndGeneration kinds have a status that only the status subresource changes; their
// generation counts changes of Spec.
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

// dropping makes drop clear the fields of disabled features before any other preparation. drop
// keeps a field that the old object has set. old is nil on create.
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

// setPointer writes a pointer to value where the field is nil.
func setPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
