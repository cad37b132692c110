package verb

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
	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

// applyConfiguration is a decoded apply configuration.
type applyConfiguration struct {
	*unstructured.Unstructured
	size       int     // bytes of the document, with its aliases expanded
	duplicates []error // fields that the document sets twice
	strict     error   // the same as one error
}

// decodeApplyConfiguration reads the YAML (or JSON) of an apply.
func decodeApplyConfiguration(data []byte) (applyConfiguration, error) {
	a := applyConfiguration{Unstructured: &unstructured.Unstructured{Object: map[string]any{}}}
	doc, err := wire.YAMLToJSON(data)
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

// ApplyPatch is server-side apply: it merges by the schema, and the applier owns every applied
// field.
func (op *Operation) ApplyPatch(old runtime.Object, p PatchRequest) (runtime.Object, error) {
	a, err := decodeApplyConfiguration(p.Data)
	if err != nil {
		return nil, err
	}
	gvk := a.GroupVersionKind()
	if gvk.Kind != op.Endpoint.GVK.Kind {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid object type: %v", gvk))
	}
	if old == nil && op.Endpoint.Custom != nil && op.Endpoint.Custom.Definition().Terminating() {
		return nil, ErrTerminating(op.Endpoint.Resource, "create")
	}
	if a.GetManagedFields() != nil {
		return nil, apierrors.NewBadRequest("metadata.managedFields must be nil")
	}
	if p.Validation == metav1.FieldValidationStrict && len(a.duplicates) > 0 {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error strict decoding YAML: %v", a.strict))
	}
	if p.Validation != metav1.FieldValidationStrict {
		_ = op.reportStrict(a.duplicates, p.Validation) // a warning, even if the apply fails later
	}
	live := op.Endpoint.NewObject()
	if old != nil {
		live = old.DeepCopyObject()
	}
	if err := bounds.Fields(a.Object, live); err != nil && op.Endpoint.Custom == nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("failed to create typed patch object (%s/%s; %s): %v", a.GetNamespace(), a.GetName(), gvk, err))
	}
	if err := op.checkElementBounds(a.size, a.Object); err != nil {
		return nil, err
	}
	if err := bounds.Managers(wire.Accessor(live).GetManagedFields(), live); err != nil {
		return nil, apierrors.NewRequestEntityTooLargeError(err.Error())
	}
	m, err := op.Endpoint.Manager(op.Subresource)
	if err != nil {
		return nil, err
	}
	obj, err := m.Apply(live, a.Unstructured, op.FieldManager, p.Force)
	if err != nil {
		return nil, err
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		if err := op.Endpoint.Custom.Mend(u); err != nil {
			return nil, err
		}
	}
	wire.ClearKind(obj)
	unknown := op.unknownFields(a)
	if err := op.reportStrict(unknown, p.Validation); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error strict decoding YAML: %v", err))
	}
	if uid := wire.Accessor(obj).GetUID(); old == nil && uid != "" {
		return nil, apierrors.NewConflict(op.Endpoint.Resource, op.Name, fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", uid))
	}
	if err := op.checkNames(wire.Accessor(obj)); err != nil {
		return nil, err
	}
	op.Endpoint.ApplyDefaults(obj)
	return obj, nil
}

// unknownFields returns the fields of an applied configuration that the Go type lacks. The field
// manager has already refused fields that the schema lacks.
func (op *Operation) unknownFields(a applyConfiguration) []error {
	if op.Endpoint.Custom != nil {
		return op.unknownCustomFields(a)
	}
	obj, err := api.Scheme.New(op.Endpoint.GVK)
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

// newSameType returns an empty object of the same Go type.
func newSameType(obj runtime.Object) runtime.Object {
	return reflect.New(reflect.TypeOf(obj).Elem()).Interface().(runtime.Object)
}
