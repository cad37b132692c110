package custom

import (
	"maps"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/strategy"
)

// Strategy returns the behaviour of the version's objects, in the form of package resource.
func (v *Version) Strategy() *strategy.Strategy {
	s := &strategy.Strategy{
		LooseFinalizers: true,
		LateMeta:        true, // validate checks it
		Warnings: func(obj, old runtime.Object) []string {
			if old == nil {
				return strategy.FinalizerWarnings(content(obj), nil)
			}
			return strategy.FinalizerWarnings(content(obj), content(old))
		},
		Default:        func(obj runtime.Object) { v.Default(content(obj)) },
		PrepareCreate:  func(obj runtime.Object) { v.prepareCreate(content(obj)) },
		PrepareUpdate:  func(obj, old runtime.Object) { v.prepareUpdate(content(obj), content(old)) },
		PrepareStatus:  func(obj, old runtime.Object) { prepareStatus(content(obj), content(old)) },
		ValidateCreate: func(obj runtime.Object) field.ErrorList { return v.validate(content(obj)) },
		ValidateUpdate: func(obj, old runtime.Object) field.ErrorList { return v.validateUpdate(content(obj), content(old)) },
		ValidateStatus: func(obj, old runtime.Object) field.ErrorList { return v.validateStatus(content(obj), content(old)) },
	}
	for _, f := range v.spec.SelectableFields {
		s.FieldNames = append(s.FieldNames, fieldName(f.JSONPath))
	}
	return s
}

// content returns the object. A wrong type is a programming error.
func content(obj runtime.Object) *unstructured.Unstructured { return obj.(*unstructured.Unstructured) }

func (v *Version) prepareCreate(u *unstructured.Unstructured) {
	if v.HasStatus() {
		delete(u.Object, "status")
	}
	u.SetGeneration(1)
}

// prepareUpdate keeps the status, which its subresource changes. Any other change outside of
// metadata increases the generation.
func (v *Version) prepareUpdate(u, old *unstructured.Unstructured) {
	ignored := []string{"metadata"}
	if v.HasStatus() {
		ignored = append(ignored, "status")
		if status, ok := old.Object["status"]; ok {
			u.Object["status"] = runtime.DeepCopyJSONValue(status)
		} else {
			delete(u.Object, "status")
		}
	}
	u.SetGeneration(old.GetGeneration())
	if !apiequality.Semantic.DeepEqual(without(u.Object, ignored), without(old.Object, ignored)) {
		u.SetGeneration(old.GetGeneration() + 1)
	}
}

func without(m map[string]any, keys []string) map[string]any {
	m = maps.Clone(m)
	maps.DeleteFunc(m, func(k string, _ any) bool { return slices.Contains(keys, k) })
	return m
}

// prepareStatus keeps everything but the status and the owners of its fields.
func prepareStatus(u, old *unstructured.Unstructured) {
	status, hasStatus := u.Object["status"]
	managed, version := u.GetManagedFields(), u.GetResourceVersion()
	u.Object = old.DeepCopy().Object
	delete(u.Object, "status")
	if hasStatus {
		u.Object["status"] = status
	}
	u.SetManagedFields(managed)
	u.SetResourceVersion(version)
}
