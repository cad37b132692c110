package strategy

import (
	"reflect"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// WithLooseFinalizers accepts finalizers without a domain. It is for kinds whose upstream
// validation never checked them.
func WithLooseFinalizers(s *Strategy) *Strategy {
	s.LooseFinalizers = true
	return s
}

// WithNameRuleOnUpdate checks generateName in updates as in creates.
func WithNameRuleOnUpdate(s *Strategy) *Strategy {
	s.NameRuleOnUpdate = true
	return s
}

// part returns the field with the given name of a pointer to a struct.
func part(obj runtime.Object, name string) reflect.Value {
	return reflect.ValueOf(obj).Elem().FieldByName(name)
}

// keep copies a field of old into obj. It copies deeply, because old is shared.
func keep(obj, old runtime.Object, name string) {
	part(obj, name).Set(part(old.DeepCopyObject(), name))
}

// OnlyStatus keeps the old values of everything that an update of the status may not change: the
// named field, labels, annotations, finalizers and owner references. It is for kinds whose status
// update may not change metadata.
func OnlyStatus(obj, old runtime.Object, name string) {
	keep(obj, old, name)
	metav1.ResetObjectMetaForStatus(obj.(metav1.Object), old.DeepCopyObject().(metav1.Object))
}

// KeepMetadataInStatus is for kinds whose status update ignores all metadata.
func (s *Strategy) KeepMetadataInStatus() {
	s.PrepareStatus = func(obj, old runtime.Object) { OnlyStatus(obj, old, "Spec") }
	s.Resets = map[string][]string{"status": {"metadata"}}
}

// KeepAllMetadataInStatus is for kinds whose status update ignores even generateName, which a
// status update of other kinds takes.
func (s *Strategy) KeepAllMetadataInStatus() {
	s.KeepMetadataInStatus()
	s.PrepareStatus = func(obj, old runtime.Object) {
		OnlyStatus(obj, old, "Spec")
		obj.(metav1.Object).SetGenerateName(old.(metav1.Object).GetGenerateName())
	}
}

func clearPart(obj runtime.Object, name string) { part(obj, name).SetZero() }

func Same(obj, old runtime.Object, name string) bool {
	return apiequality.Semantic.DeepEqual(part(obj, name).Interface(), part(old, name).Interface())
}

// SetGeneration gives obj the generation of old, plus one if changed.
func SetGeneration(obj, old metav1.Object, changed bool) {
	g := old.GetGeneration()
	if changed {
		g++
	}
	obj.SetGeneration(g)
}

// Shapes of kinds: how they treat generation and status. Each kind extends one of them.

// Plain kinds have neither status nor generation.
func Plain(unconditional bool) *Strategy {
	return &Strategy{AllowUnconditionalUpdate: unconditional}
}

// WithGeneration kinds have no status; their generation counts changes of Spec.
func WithGeneration(unconditional bool) *Strategy {
	return &Strategy{
		AllowUnconditionalUpdate: unconditional,
		PrepareCreate:            func(obj runtime.Object) { obj.(metav1.Object).SetGeneration(1) },
		PrepareUpdate: func(obj, old runtime.Object) {
			SetGeneration(obj.(metav1.Object), old.(metav1.Object), !Same(obj, old, "Spec"))
		},
	}
}

// WithStatus kinds have a status that only the status subresource changes, and no generation.
func WithStatus(unconditional bool) *Strategy {
	return &Strategy{
		AllowUnconditionalUpdate: unconditional,
		PrepareCreate:            func(obj runtime.Object) { clearPart(obj, "Status") },
		PrepareUpdate:            func(obj, old runtime.Object) { keep(obj, old, "Status") },
		PrepareStatus:            func(obj, old runtime.Object) { keep(obj, old, "Spec") },
	}
}

// WithStatusAndGeneration kinds have a status that only the status subresource changes; their
// generation counts changes of Spec.
func WithStatusAndGeneration(unconditional bool) *Strategy {
	s := WithStatus(unconditional)
	s.PrepareCreate = func(obj runtime.Object) {
		clearPart(obj, "Status")
		obj.(metav1.Object).SetGeneration(1)
	}
	s.PrepareUpdate = func(obj, old runtime.Object) {
		keep(obj, old, "Status")
		SetGeneration(obj.(metav1.Object), old.(metav1.Object), !Same(obj, old, "Spec"))
	}
	return s
}

// DropFields makes drop clear the fields of disabled features before any other preparation. drop
// keeps a field that the old object has set. old is nil on create.
func (s *Strategy) DropFields(drop func(obj, old runtime.Object)) {
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

// DropUnless makes drop clear fields of a feature that is off by default, on servers where its
// feature gate is off. drop is as for DropFields.
func (s *Strategy) DropUnless(gate string, drop func(obj, old runtime.Object)) {
	s.gated = append(s.gated, gatedFields{gate, drop})
}

// gatedFields are fields of a feature gate.
type gatedFields struct {
	gate string
	drop func(obj, old runtime.Object)
}

// With returns the strategy of a server on which these feature gates are on.
func (s *Strategy) With(gates []string) *Strategy {
	if len(s.gated) == 0 {
		return s
	}
	with := *s
	with.gated = nil
	for _, g := range s.gated {
		if !slices.Contains(gates, g.gate) {
			with.DropFields(g.drop)
		}
	}
	return &with
}
