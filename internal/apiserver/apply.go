package apiserver

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/api/bounds"
)

// applied is a decoded apply configuration.
type applied struct {
	*unstructured.Unstructured
	size       int     // bytes of the document, with its aliases expanded
	duplicates []error // fields that the document sets twice
	strict     error   // the same as one error
}

// decodeApplied reads the YAML (or JSON) of an apply.
func decodeApplied(data []byte) (applied, error) {
	a := applied{Unstructured: &unstructured.Unstructured{Object: map[string]any{}}}
	doc, err := yamlToJSON(data)
	if err != nil {
		err = fmt.Errorf("error converting YAML to JSON: %w", err)
	} else {
		a.size = len(doc)
		if err = kjson.UnmarshalCaseSensitivePreserveInts(doc, &a.Object); err != nil {
			err = fmt.Errorf("error unmarshaling JSON: while decoding JSON: %w", err)
		}
	}
	if err != nil {
		return a, apierrors.NewBadRequest(fmt.Sprintf("error decoding YAML: %v", err))
	}
	strictErr := yaml.UnmarshalStrict(data, &map[string]any{})
	if strictErr == nil {
		return a, nil
	}
	a.strict = strictErr
	for line := range strings.SplitSeq(strictErr.Error(), "\n") {
		if strings.Contains(line, "already set in map") {
			a.duplicates = append(a.duplicates, errors.New(strings.TrimSpace(line)))
		}
	}
	return a, nil
}

// applyPatch is server-side apply: it merges by the schema, and the applier owns every applied
// field.
func (op *operation) applyPatch(old runtime.Object, p patchRequest) (runtime.Object, error) {
	a, err := decodeApplied(p.data)
	if err != nil {
		return nil, err
	}
	gvk := a.GroupVersionKind()
	if gvk.Kind != op.endpoint.gvk.Kind {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid object type: %v", gvk))
	}
	if old == nil && op.endpoint.custom != nil && op.endpoint.custom.Definition().Terminating() {
		return nil, errTerminating(op.endpoint.resource, "create")
	}
	if a.GetManagedFields() != nil {
		return nil, apierrors.NewBadRequest("metadata.managedFields must be nil")
	}
	if p.validation == metav1.FieldValidationStrict && len(a.duplicates) > 0 {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error strict decoding YAML: %v", a.strict))
	}
	if p.validation != metav1.FieldValidationStrict {
		_ = op.reportStrict(a.duplicates, p.validation) // a warning, even if the apply fails later
	}
	live := op.endpoint.newObject()
	if old != nil {
		live = old.DeepCopyObject()
	}
	if err := bounds.Fields(a.Object, live); err != nil && op.endpoint.custom == nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("failed to create typed patch object (%s/%s; %s): %v", a.GetNamespace(), a.GetName(), gvk, err))
	}
	if err := op.boundElements(a.size, a.Object); err != nil {
		return nil, err
	}
	if err := bounds.Managers(accessor(live).GetManagedFields(), live); err != nil {
		return nil, apierrors.NewRequestEntityTooLargeError(err.Error())
	}
	m, err := op.endpoint.manager(op.subresource)
	if err != nil {
		return nil, err
	}
	obj, err := m.Apply(live, a.Unstructured, op.fieldManager, p.force)
	if err != nil {
		return nil, err
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		if err := op.endpoint.custom.Mend(u); err != nil {
			return nil, err
		}
	}
	clearKind(obj)
	unknown := op.unknownFields(a)
	if err := op.reportStrict(unknown, p.validation); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error strict decoding YAML: %v", err))
	}
	if uid := accessor(obj).GetUID(); old == nil && uid != "" {
		return nil, apierrors.NewConflict(op.endpoint.resource, op.name, fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", uid))
	}
	if err := op.checkNames(accessor(obj)); err != nil {
		return nil, err
	}
	op.endpoint.applyDefaults(obj)
	return obj, nil
}

// unknownFields returns the fields of an applied configuration that the Go type lacks. The field
// manager has already refused fields that the schema lacks.
func (op *operation) unknownFields(a applied) []error {
	if op.endpoint.custom != nil {
		return op.unknownCustomFields(a)
	}
	obj, err := api.Scheme.New(op.endpoint.gvk)
	if err != nil {
		return nil
	}
	doc, err := a.MarshalJSON()
	if err != nil {
		return nil
	}
	strict, err := kjson.UnmarshalStrict(doc, obj)
	if err != nil {
		return nil
	}
	return strict
}

// newLike returns an empty object of the same Go type.
func newLike(obj runtime.Object) runtime.Object {
	return reflect.New(reflect.TypeOf(obj).Elem()).Interface().(runtime.Object)
}
