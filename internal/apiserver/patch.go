package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	goruntime "runtime"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
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
)

// patchRequest is the content of a PATCH.
type patchRequest struct {
	kind       types.PatchType
	data       []byte
	force      bool
	validation string  // Strict, Warn or Ignore
	double     []error // fields that the patch itself sets twice
}

// doubleFields returns the fields that a merge patch sets twice. The patched document does not show
// them any more.
func doubleFields(p patchRequest) []error {
	if p.validation == metav1.FieldValidationIgnore {
		return nil
	}
	strict, err := kjson.UnmarshalStrict(p.data, &map[string]any{})
	if err != nil {
		return nil // reported when the patch is applied
	}
	return strict
}

// patch applies the patch to the named object. created reports that an apply created it.
func (op *operation) patch(ctx context.Context, p patchRequest) (out runtime.Object, created bool, err error) {
	apply := p.kind == types.ApplyYAMLPatchType
	op.applies = apply
	return op.update(ctx, apply && op.subresource == "", func(ctx context.Context, old runtime.Object) (runtime.Object, error) {
		var obj runtime.Object
		var err error
		if apply {
			obj, err = op.applyPatch(old, p)
		} else {
			obj, err = op.patched(old, p)
		}
		if err != nil {
			return nil, err
		}
		if old == nil {
			return obj, nil
		}
		return obj, op.admit(ctx, op.attributes(admission.Update, obj, old))
	})
}

// patched applies a JSON, merge or strategic merge patch to a stored object.
func (op *operation) patched(old runtime.Object, p patchRequest) (runtime.Object, error) {
	versioned, err := op.endpoint.fromHub(old)
	if err != nil {
		return nil, err
	}
	obj, err := op.patchVersioned(versioned, op.endpoint.gvk, p)
	if err != nil {
		return nil, err
	}
	if err := op.checkNames(accessor(obj)); err != nil {
		return nil, err
	}
	if obj, err = op.endpoint.toHub(obj); err != nil {
		return nil, err
	}
	// Track first: owner references that the patch duplicates belong to its field manager.
	obj = op.track(old, obj)
	// Upstream checks only here, and its warning says so.
	op.dropDoubledOwners(accessor(obj), afterAdmission)
	return obj, nil
}

// patchVersioned returns the patched state of an object of the kind.
func (op *operation) patchVersioned(old runtime.Object, gvk schema.GroupVersionKind, p patchRequest) (runtime.Object, error) {
	isCustom := op.takesCustom()
	if p.kind == types.StrategicMergePatchType {
		if isCustom {
			return nil, errUnsupportedCustomPatch
		}
		return op.strategicPatch(old, p)
	}
	if p.kind == types.MergePatchType && !isCustom {
		if obj, ok := mergeObject(old, p); ok {
			return obj, nil
		}
	}
	doc, err := marshal(old)
	if err != nil {
		return nil, err
	}
	if !isCustom {
		doc = withTypeMeta(nil, gvk, doc)
	}
	switch p.kind {
	case types.JSONPatchType:
		if p.double, err = strangeFields(p); err == nil {
			doc, err = applyJSONPatch(doc, p)
		}
	case types.MergePatchType:
		p.double = doubleFields(p)
		doc, err = applyMergePatch(doc, p)
	default:
		return nil, errUnsupported
	}
	if err != nil {
		return nil, err
	}
	if isCustom {
		return op.decodePatchedCustom(doc, p)
	}
	return op.decodePatched(doc, old, gvk, p)
}

// decodePatched decodes a patched document.
func (op *operation) decodePatched(doc []byte, like runtime.Object, gvk schema.GroupVersionKind, p patchRequest) (runtime.Object, error) {
	obj := newLike(like)
	if err := bounds.Document(doc, obj); err != nil {
		return nil, invalidPatch(string(doc), err)
	}
	strict, err := kjson.UnmarshalStrict(doc, obj)
	if err != nil {
		if _, syntax := findKind(doc); syntax != nil {
			err = fmt.Errorf("couldn't get version/kind; json parse error: %w", syntax)
		}
	}
	got := obj.GetObjectKind().GroupVersionKind()
	if got.Empty() {
		got = gvk // a patch may remove it
	}
	if err == nil && got != gvk {
		err = notRegistered(got)
	}
	if err == nil {
		err = bounds.Raw(obj)
	}
	if err == nil {
		err = op.reportStrict(append(p.double, strict...), p.validation)
	}
	if err != nil {
		return nil, invalidPatch(string(doc), err)
	}
	clearKind(obj)
	return obj, nil
}

// reportStrict reports unknown and duplicate fields: as an error if validation is strict, else as
// warnings.
func (op *operation) reportStrict(problems []error, validation string) error {
	if len(problems) == 0 || validation == metav1.FieldValidationIgnore {
		return nil
	}
	if validation == metav1.FieldValidationStrict {
		return runtime.NewStrictDecodingError(problems)
	}
	for _, problem := range problems {
		op.warn(problem.Error())
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

// strangeFields returns the unknown and duplicate fields of a JSON patch's operations. Messages
// name upstream's type.
func strangeFields(p patchRequest) (problems []error, err error) {
	if p.validation == metav1.FieldValidationIgnore {
		return nil, nil
	}
	strict, err := kjson.UnmarshalStrict(p.data, &[]jsonPatchOp{})
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", strings.ReplaceAll(err.Error(), "apiserver.jsonPatchOp", "handlers.jsonPatchOp")))
	}
	for _, problem := range strict {
		problems = append(problems, fmt.Errorf("json patch %w", problem))
	}
	return problems, nil
}

func applyJSONPatch(doc []byte, p patchRequest) ([]byte, error) {
	patch, err := api.DecodeJSONPatch(p.data)
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

func applyMergePatch(doc []byte, p patchRequest) ([]byte, error) {
	if p.validation != metav1.FieldValidationIgnore {
		var v map[string]any
		if err := json.Unmarshal(p.data, &v); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
		}
	}
	if err := bounds.MergePatch(doc, p.data); err != nil {
		return nil, apierrors.NewRequestEntityTooLargeError(err.Error())
	}
	out, err := jsonpatch.MergePatch(doc, p.data)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return out, nil
}

// strategicPatch merges by the patch strategies in the Go type's tags.
func (op *operation) strategicPatch(old runtime.Object, p patchRequest) (runtime.Object, error) {
	patch := map[string]any{}
	double, err := kjson.UnmarshalStrict(p.data, &patch)
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
		return nil, unnamed(err)
	}
	delete(merged, "apiVersion")
	delete(merged, "kind")
	if err := bounds.Fields(merged, old); err != nil {
		return nil, invalidPatch(fmt.Sprintf("%+v", patch), err)
	}
	obj := newLike(old)
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(merged, obj, p.validation != metav1.FieldValidationIgnore)
	strict, ok := runtime.AsStrictDecodingError(err)
	switch {
	case ok:
		err = op.reportStrict(append(double, strict.Errors()...), p.validation)
	case err == nil:
		err = op.reportStrict(double, p.validation)
	}
	if err != nil {
		return nil, invalidPatch(fmt.Sprintf("%+v", patch), err)
	}
	return obj, nil
}

// errMergeKey refuses a patch with a list element whose merge key cannot be compared.
var errMergeKey = errors.New("the elements of a list can not be told apart")

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

// errUnsupported is upstream's 415 from before any handler.
var errUnsupported = apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "", schema.GroupResource{}, "",
	"415: Unsupported Media Type", 0, false)

// mediaOf returns a Content-Type without its parameters.
func mediaOf(header string) string {
	media, _, _ := strings.Cut(header, ";")
	return strings.TrimSpace(media)
}
