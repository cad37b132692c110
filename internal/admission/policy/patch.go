package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/cel/mutation"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"
	kjson "sigs.k8s.io/json"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/api/bounds"
	"github.com/knarr-project/knarr/internal/cel"
)

// change returns the object that results from a mutation; nil if it changes nothing.
func (s *step) change(value ref.Val, v *admission.Versioned, served admission.Served) (runtime.Object, error) {
	if s.apply {
		return applied(value, v, served)
	}
	return patched(value, v)
}

// applied merges an apply configuration into the object, according to the schema.
func applied(value ref.Val, v *admission.Versioned, served admission.Served) (runtime.Object, error) {
	object, ok := value.(*dynamic.ObjectVal)
	if !ok {
		return nil, fmt.Errorf("unexpected evaluation result type: %T", value)
	}
	if err := object.CheckTypeNamesMatchFieldPathNames(); err != nil {
		return nil, fmt.Errorf("type mismatch: %w", err)
	}
	native, err := object.ConvertToNative(reflect.TypeFor[map[string]any]())
	if err != nil {
		return nil, err
	}
	fields := native.(map[string]any)
	if len(fields) == 0 {
		return nil, nil
	}
	for _, fixed := range []string{"apiVersion", "kind"} {
		if _, set := fields[fixed]; set {
			return nil, fmt.Errorf("error applying patch: %s may not be set in an apply configuration", fixed)
		}
	}
	configuration := &unstructured.Unstructured{Object: fields}
	configuration.SetGroupVersionKind(v.Form.Kind)
	converter, err := served.TypeConverter(v.Form.Resource)
	if err != nil {
		return nil, err
	}
	change, err := converter.ObjectToTyped(configuration)
	if err != nil {
		return nil, fmt.Errorf("error applying patch: failed to convert patch object to typed object: %w", err)
	}
	if err := refuseAtomic(change, fields); err != nil {
		return nil, fmt.Errorf("error applying patch: invalid ApplyConfiguration: %w", err)
	}
	live, err := converter.ObjectToTyped(v.Object, typed.AllowDuplicates)
	if err != nil {
		return nil, fmt.Errorf("error applying patch: failed to convert original object to typed object: %w", err)
	}
	merged, err := live.Merge(change)
	if err != nil {
		return nil, fmt.Errorf("error applying patch: failed to merge patch: %w", err)
	}
	out, err := converter.TypedToObject(merged)
	if err != nil {
		return nil, fmt.Errorf("error applying patch: failed to convert typed object to object: %w", err)
	}
	return likeShown(out, v)
}

// likeShown converts the result of a merge to the Go type of the write's object.
func likeShown(out runtime.Object, v *admission.Versioned) (runtime.Object, error) {
	if reflect.TypeOf(out) != reflect.TypeOf(v.Object) {
		u, ok := out.(runtime.Unstructured)
		if !ok {
			return nil, fmt.Errorf("merge returned a %T, want a %T", out, v.Object)
		}
		made := admission.NewLike(v.Object)
		if err := bounds.Fields(u.UnstructuredContent(), made); err != nil {
			return nil, err
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.UnstructuredContent(), made); err != nil {
			return nil, err
		}
		out = made
	}
	if _, ok := out.(runtime.Unstructured); !ok {
		out.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return out, nil
}

// refuseAtomic refuses changes of fields that the schema declares atomic. A merge would replace the
// whole field and lose everything that the configuration does not mention.
func refuseAtomic(change *typed.TypedValue, fields map[string]any) error {
	return atomicBelow(change.Schema(), change.TypeRef(), fields, "")
}

func atomicBelow(s *smd.Schema, t smd.TypeRef, value any, path string) error {
	atom, ok := s.Resolve(t)
	if !ok {
		return nil
	}
	atomic := func(r smd.ElementRelationship) error {
		if r == smd.Atomic {
			return fmt.Errorf("may not mutate atomic arrays, maps or structs: %s", path)
		}
		return nil
	}
	switch v := value.(type) {
	case map[string]any:
		if atom.Map == nil {
			return nil
		}
		if err := atomic(atom.Map.ElementRelationship); err != nil {
			return err
		}
		for name, below := range v {
			element := atom.Map.ElementType
			if f, ok := atom.Map.FindField(name); ok {
				element = f.Type
			}
			if err := atomicBelow(s, element, below, path+"."+name); err != nil {
				return err
			}
		}
	case []any:
		if atom.List == nil {
			return nil
		}
		if err := atomic(atom.List.ElementRelationship); err != nil {
			return err
		}
		for i, below := range v {
			if err := atomicBelow(s, atom.List.ElementType, below, fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// patched applies a JSON patch to the object.
func patched(value ref.Val, v *admission.Versioned) (runtime.Object, error) {
	operations, err := patchOperations(value)
	if err != nil || len(operations) == 0 {
		return nil, err
	}
	raw, err := json.Marshal(operations)
	if err != nil {
		return nil, err
	}
	patch, err := api.DecodeJSONPatch(raw)
	if err != nil {
		return nil, fmt.Errorf("JSON Patch: %w", err)
	}
	before, err := json.Marshal(v.Object)
	if err != nil {
		return nil, err
	}
	after, err := api.ApplyJSONPatch(patch, before)
	if err != nil {
		if errors.Is(err, jsonpatch.ErrTestFailed) {
			return nil, nil // a JSON patch may test whether it applies
		}
		return nil, fmt.Errorf("JSON Patch: %w", err)
	}
	if bytes.Equal(before, after) {
		return nil, nil
	}
	if u, ok := v.Object.(*unstructured.Unstructured); ok {
		out := u.NewEmptyInstance().(*unstructured.Unstructured)
		return out, out.UnmarshalJSON(after)
	}
	out := admission.NewLike(v.Object)
	if err := bounds.Document(after, out); err != nil {
		return nil, err
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(after, out); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	if err := bounds.Raw(out); err != nil {
		return nil, err
	}
	out.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return out, nil
}

// patchOperation is an operation of RFC 6902. Value has no omitempty, because null is a valid
// value.
type patchOperation struct {
	Op    string           `json:"op"`
	Path  string           `json:"path"`
	From  string           `json:"from,omitempty"`
	Value *json.RawMessage `json:"value,omitempty"`
}

func patchOperations(value ref.Val) ([]patchOperation, error) {
	list, ok := value.(traits.Lister)
	if !ok {
		return nil, fmt.Errorf("type mismatch: JSONPatchType expression should evaluate to array")
	}
	var out []patchOperation
	for it := list.Iterator(); it.HasNext().Value() == true; {
		native, err := it.Next().ConvertToNative(reflect.TypeFor[*mutation.JSONPatchVal]())
		if err != nil {
			return nil, fmt.Errorf("type mismatch: JSONPatchType expression should evaluate to array of JSONPatch: %w", err)
		}
		p := native.(*mutation.JSONPatchVal)
		o := patchOperation{Op: p.Op, Path: p.Path, From: p.From}
		if p.Val != nil {
			plain, err := cel.Native(p.Val)
			if err != nil {
				return nil, fmt.Errorf("JSONPath valueExpression evaluated to a type that could not marshal to JSON: %w", err)
			}
			raw, err := json.Marshal(plain)
			if err != nil {
				return nil, err
			}
			o.Value = (*json.RawMessage)(&raw)
		}
		out = append(out, o)
	}
	return out, nil
}
