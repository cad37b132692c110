package verb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	goruntime "runtime"
	"strings"

	"gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/api/bounds"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

// PatchRequest is the content of a PATCH.
type PatchRequest struct {
	Kind       types.PatchType
	Data       []byte
	Force      bool
	Validation string  // Strict, Warn or Ignore
	duplicates []error // fields that the patch itself sets twice
}

// duplicateFields returns the fields that a merge patch sets twice. The patched document does not
// show them any more.
func duplicateFields(p PatchRequest) []error {
	if p.Validation == metav1.FieldValidationIgnore {
		return nil
	}
	strict, err := kjson.UnmarshalStrict(p.Data, &map[string]any{})
	if err != nil {
		return nil // reported when the patch is applied
	}
	return strict
}

// patch applies the patch to the named object. created reports that an apply created it.
func (op *Operation) patch(ctx context.Context, p PatchRequest) (out runtime.Object, created bool, err error) {
	apply := p.Kind == types.ApplyYAMLPatchType
	op.applies = apply
	return op.Update(ctx, apply && op.Subresource == "", func(ctx context.Context, old runtime.Object) (runtime.Object, error) {
		var obj runtime.Object
		var err error
		if apply {
			obj, err = op.ApplyPatch(old, p)
		} else {
			obj, err = op.Patched(old, p)
		}
		if err != nil {
			return nil, err
		}
		if old == nil {
			return obj, nil
		}
		return obj, op.Admit(ctx, op.Attributes(admission.Update, obj, old))
	})
}

// Patched applies a JSON, merge or strategic merge patch to a stored object.
func (op *Operation) Patched(old runtime.Object, p PatchRequest) (runtime.Object, error) {
	versioned, err := op.Endpoint.FromHub(old)
	if err != nil {
		return nil, err
	}
	obj, err := op.patchVersioned(versioned, op.Endpoint.GVK, p)
	if err != nil {
		return nil, err
	}
	if err := op.checkNames(wire.Accessor(obj)); err != nil {
		return nil, err
	}
	if obj, err = op.Endpoint.ToHub(obj); err != nil {
		return nil, err
	}
	// Track first: owner references that the patch duplicates belong to its field manager.
	obj = op.track(old, obj)
	// Upstream checks only here, and its warning says so.
	op.DropDuplicateOwners(wire.Accessor(obj), AfterMutatingAdmission)
	return obj, nil
}

// patchVersioned returns the patched state of an object of the kind.
func (op *Operation) patchVersioned(old runtime.Object, gvk schema.GroupVersionKind, p PatchRequest) (runtime.Object, error) {
	isCustom := op.HasCustomBody()
	if p.Kind == types.StrategicMergePatchType {
		if isCustom {
			return nil, ErrUnsupportedCustomPatch
		}
		return op.strategicPatch(old, p)
	}
	if p.Kind == types.MergePatchType && !isCustom {
		if obj, ok := MergeObject(old, p); ok {
			return obj, nil
		}
	}
	doc, err := wire.Marshal(old)
	if err != nil {
		return nil, err
	}
	if !isCustom {
		doc = wire.WithTypeMeta(nil, gvk, doc)
	}
	switch p.Kind {
	case types.JSONPatchType:
		if p.duplicates, err = strictJSONPatchErrors(p); err == nil {
			doc, err = applyJSONPatch(doc, p)
		}
	case types.MergePatchType:
		p.duplicates = duplicateFields(p)
		doc, err = ApplyMergePatch(doc, p)
	default:
		return nil, ErrUnsupported
	}
	if err != nil {
		return nil, err
	}
	if isCustom {
		return op.decodePatchedCustom(doc, p)
	}
	return op.DecodePatched(doc, old, gvk, p)
}

// DecodePatched decodes a patched document.
func (op *Operation) DecodePatched(doc []byte, like runtime.Object, gvk schema.GroupVersionKind, p PatchRequest) (runtime.Object, error) {
	obj := newSameType(like)
	if err := bounds.Document(doc, obj); err != nil {
		return nil, invalidPatch(string(doc), err)
	}
	strict, err := kjson.UnmarshalStrict(doc, obj)
	if err != nil {
		if _, syntax := wire.FindKind(doc); syntax != nil {
			err = fmt.Errorf("couldn't get version/kind; json parse error: %w", syntax)
		}
	}
	got := obj.GetObjectKind().GroupVersionKind()
	if got.Empty() {
		got = gvk // a patch may remove it
	}
	if err == nil && got != gvk {
		err = wire.NotRegistered(got)
	}
	if err == nil {
		err = bounds.Raw(obj)
	}
	if err == nil {
		err = op.reportStrict(append(p.duplicates, strict...), p.Validation)
	}
	if err != nil {
		return nil, invalidPatch(string(doc), err)
	}
	wire.ClearKind(obj)
	return obj, nil
}

// reportStrict reports unknown and duplicate fields: as an error if validation is strict, else as
// warnings.
func (op *Operation) reportStrict(problems []error, validation string) error {
	if len(problems) == 0 || validation == metav1.FieldValidationIgnore {
		return nil
	}
	if validation == metav1.FieldValidationStrict {
		return runtime.NewStrictDecodingError(problems)
	}
	for _, problem := range problems {
		op.Warn(problem.Error())
	}
	return nil
}

// invalidPatch names no object, as upstream's error does not.
func invalidPatch(value string, err error) error {
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), value, err.Error())})
}

// jsonPatchOp is one operation of a JSON patch (RFC 6902), to check its fields.
type jsonPatchOp struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	From  string `json:"from"`
	Value any    `json:"value"`
}

// strictJSONPatchErrors returns the unknown and duplicate fields of a JSON patch's operations.
// Messages name upstream's type.
func strictJSONPatchErrors(p PatchRequest) (problems []error, err error) {
	if p.Validation == metav1.FieldValidationIgnore {
		return nil, nil
	}
	strict, err := kjson.UnmarshalStrict(p.Data, &[]jsonPatchOp{})
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", strings.ReplaceAll(err.Error(), "verb.jsonPatchOp", "handlers.jsonPatchOp")))
	}
	for _, problem := range strict {
		problems = append(problems, fmt.Errorf("json patch %w", problem))
	}
	return problems, nil
}

func applyJSONPatch(doc []byte, p PatchRequest) ([]byte, error) {
	patch, err := api.DecodeJSONPatch(p.Data)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if len(patch) > api.MaxJSONPatchOperations {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("The allowed maximum operations in a JSON patch is %d, got %d", api.MaxJSONPatchOperations, len(patch)))
	}
	out, err := api.ApplyJSONPatch(patch, doc)
	if api.TooMuch(err) {
		return nil, apierrors.NewRequestEntityTooLargeError(err.Error())
	}
	if err != nil {
		return nil, unprocessable(err)
	}
	return out, nil
}

func unprocessable(err error) error {
	return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
}

// ApplyMergePatch applies a JSON merge patch (RFC 7386) to a document.
func ApplyMergePatch(doc []byte, p PatchRequest) ([]byte, error) {
	if p.Validation != metav1.FieldValidationIgnore {
		var v map[string]any
		if err := json.Unmarshal(p.Data, &v); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
		}
	}
	if err := bounds.MergePatch(doc, p.Data); err != nil {
		return nil, apierrors.NewRequestEntityTooLargeError(err.Error())
	}
	out, err := jsonpatch.MergePatch(doc, p.Data)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return out, nil
}

// strategicPatch merges by the patch strategies in the Go type's tags.
func (op *Operation) strategicPatch(old runtime.Object, p PatchRequest) (runtime.Object, error) {
	patch := map[string]any{}
	double, err := kjson.UnmarshalStrict(p.Data, &patch)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(old)
	if err != nil {
		return nil, err
	}
	if err := bounds.StrategicMerge(fields, patch, old); err != nil {
		return nil, apierrors.NewRequestEntityTooLargeError(err.Error())
	}
	merged, err := mergeStrategic(fields, patch, old)
	switch {
	case errors.Is(err, errMergeKey):
		return nil, invalidPatch(fmt.Sprintf("%+v", patch), err)
	case errors.Is(err, mergepatch.ErrBadJSONDoc), errors.Is(err, mergepatch.ErrBadPatchFormatForPrimitiveList),
		errors.Is(err, mergepatch.ErrBadPatchFormatForRetainKeys), errors.Is(err, mergepatch.ErrBadPatchFormatForSetElementOrderList),
		errors.Is(err, mergepatch.ErrUnsupportedStrategicMergePatchFormat):
		return nil, apierrors.NewBadRequest(err.Error())
	case errors.Is(err, mergepatch.ErrNoListOfLists):
		return nil, unprocessable(err)
	case err != nil:
		return nil, wire.InternalServerError(err)
	}
	delete(merged, "apiVersion")
	delete(merged, "kind")
	if err := bounds.Fields(merged, old); err != nil {
		return nil, invalidPatch(fmt.Sprintf("%+v", patch), err)
	}
	obj := newSameType(old)
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(merged, obj, p.Validation != metav1.FieldValidationIgnore)
	strict, ok := runtime.AsStrictDecodingError(err)
	switch {
	case ok:
		err = op.reportStrict(append(double, strict.Errors()...), p.Validation)
	case err == nil:
		err = op.reportStrict(double, p.Validation)
	}
	if err != nil {
		return nil, invalidPatch(fmt.Sprintf("%+v", patch), err)
	}
	return obj, nil
}

// errMergeKey refuses a patch with a list element whose merge key cannot be compared.
var errMergeKey = errors.New("the merge keys of list elements cannot be compared")

// mergeStrategic calls the library's merge. The library compares merge keys and panics if one is a
// list or an object.
func mergeStrategic(fields, patch map[string]any, like runtime.Object) (merged map[string]any, err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case goruntime.Error:
			err = fmt.Errorf("%w: %v", errMergeKey, r)
		default:
			panic(r)
		}
	}()
	return strategicpatch.StrategicMergeMapPatch(fields, patch, like)
}

// ErrUnsupported is upstream's 415 from before any handler.
var ErrUnsupported = apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "", schema.GroupResource{}, "",
	"415: Unsupported Media Type", 0, false)
