package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
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
	"sigs.k8s.io/yaml"

	"github.com/knarr-project/knarr/internal/admission"
)

// maxJSONPatchOperations as upstream.
const maxJSONPatchOperations = 10000

// patchRequest is a PATCH's content.
type patchRequest struct {
	kind       types.PatchType
	data       []byte
	force      bool
	validation string // Strict, Warn or Ignore
}

// patch applies the patch to the named object. created tells that an apply made it.
func (op *operation) patch(ctx context.Context, p patchRequest) (out runtime.Object, created bool, err error) {
	apply := p.kind == types.ApplyYAMLPatchType
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
		if err := op.checkPatched(obj, old); err != nil {
			return nil, err
		}
		if old == nil {
			return obj, nil
		}
		return obj, op.admit(ctx, op.attributes(admission.Update, obj, old))
	})
}

// checkPatched refuses a patch that renames the object.
func (op *operation) checkPatched(obj, old runtime.Object) error {
	meta := accessor(obj)
	if old == nil {
		if meta.GetName() == "" {
			meta.SetName(op.name)
		}
		if meta.GetName() != op.name {
			return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", meta.GetName(), op.name))
		}
		return nil
	}
	return nil
}

// patched applies a JSON, merge or strategic merge patch to a stored object.
func (op *operation) patched(old runtime.Object, p patchRequest) (runtime.Object, error) {
	e := op.endpoint
	versioned, err := e.fromHub(old)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(versioned)
	if err != nil {
		return nil, err
	}
	doc := withTypeMeta(nil, e.gvk, raw)
	switch p.kind {
	case types.JSONPatchType:
		doc, err = applyJSONPatch(doc, p.data)
	case types.MergePatchType:
		doc, err = applyMergePatch(doc, p.data)
	case types.StrategicMergePatchType:
		doc, err = applyStrategicPatch(doc, p.data, versioned)
	default:
		return nil, unsupportedPatch(supportedPatches)
	}
	if err != nil {
		return nil, err
	}
	obj, err := op.decodePatched(doc, versioned, p)
	if err != nil {
		return nil, err
	}
	return op.trackFields(old, obj), nil
}

// decodePatched makes the hub object of a patched document.
func (op *operation) decodePatched(doc []byte, like runtime.Object, p patchRequest) (runtime.Object, error) {
	obj := newLike(like)
	strict, err := kjson.UnmarshalStrict(doc, obj)
	if err != nil {
		return nil, apierrors.NewInvalid(op.endpoint.gvk.GroupKind(), op.name, field.ErrorList{
			field.Invalid(field.NewPath("patch"), string(p.data), err.Error())})
	}
	if len(strict) > 0 {
		switch p.validation {
		case metav1.FieldValidationStrict:
			return nil, apierrors.NewInvalid(op.endpoint.gvk.GroupKind(), op.name, field.ErrorList{
				field.Invalid(field.NewPath("patch"), string(p.data), runtime.NewStrictDecodingError(strict).Error())})
		case metav1.FieldValidationIgnore:
		default:
			for _, w := range strict {
				op.warn(w.Error())
			}
		}
	}
	if got := obj.GetObjectKind().GroupVersionKind(); got != op.endpoint.gvk {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: the patch changes apiVersion or kind", got.Kind, got.Version, op.endpoint.gvk.Kind))
	}
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return op.endpoint.toHub(obj)
}

func applyJSONPatch(doc, data []byte) ([]byte, error) {
	// A single operation instead of a list is a common mistake; upstream's message is the library's.
	patch, err := jsonpatch.DecodePatch(data)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if len(patch) > maxJSONPatchOperations {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("The allowed maximum operations in a JSON patch is %d, got %d", maxJSONPatchOperations, len(patch)))
	}
	out, err := patch.Apply(doc)
	if err != nil {
		return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
	}
	return out, nil
}

func applyMergePatch(doc, data []byte) ([]byte, error) {
	var v map[string]any
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	out, err := jsonpatch.MergePatch(doc, data)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return out, nil
}

func applyStrategicPatch(doc, data []byte, like runtime.Object) ([]byte, error) {
	var v map[string]any
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	out, err := strategicpatch.StrategicMergePatch(doc, data, like)
	switch {
	case err == nil:
		return out, nil
	case errors.Is(err, mergepatch.ErrBadJSONDoc), errors.Is(err, mergepatch.ErrBadPatchFormatForPrimitiveList),
		errors.Is(err, mergepatch.ErrBadPatchFormatForRetainKeys), errors.Is(err, mergepatch.ErrBadPatchFormatForSetElementOrderList),
		errors.Is(err, mergepatch.ErrUnsupportedStrategicMergePatchFormat):
		return nil, apierrors.NewBadRequest(err.Error())
	case errors.Is(err, mergepatch.ErrNoListOfLists), errors.Is(err, mergepatch.ErrBadPatchFormatForPrimitiveList):
		return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
	}
	return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
}

// applyPatch is server-side apply: merge by the schema, with every field owned by who applied it.
func (op *operation) applyPatch(old runtime.Object, p patchRequest) (runtime.Object, error) {
	applied := map[string]any{}
	strictErr := yaml.UnmarshalStrict(p.data, &applied)
	if strictErr != nil {
		applied = map[string]any{}
		if err := yaml.Unmarshal(p.data, &applied); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding YAML: %v", err))
		}
	}
	u, err := op.checkApplied(applied, strictErr, p)
	if err != nil {
		return nil, err
	}
	live := old
	if live == nil {
		live = op.endpoint.newObject()
		meta := accessor(live)
		meta.SetName(op.name)
		meta.SetNamespace(op.namespace)
	} else {
		live = old.DeepCopyObject()
	}
	m, err := op.manager()
	if err != nil {
		return nil, err
	}
	obj, err := m.Apply(live, u, op.fieldManager, p.force)
	if err != nil {
		return nil, err
	}
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	op.endpoint.applyDefaults(obj)
	return obj, nil
}

func unsupportedPatch(supported []string) error {
	return apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "", schema.GroupResource{}, "",
		fmt.Sprintf("the body of the request was in an unknown format - accepted media types include: %s", strings.Join(supported, ", ")), 0, false)
}

var supportedPatches = []string{string(types.JSONPatchType), string(types.MergePatchType), string(types.StrategicMergePatchType), string(types.ApplyYAMLPatchType)}

// mediaOf is a Content-Type without its parameters.
func mediaOf(header string) string {
	media, _, _ := strings.Cut(header, ";")
	return strings.TrimSpace(media)
}

// patchPlain patches an object that is not of the endpoint's own kind, without tracking fields.
func (op *operation) patchPlain(old runtime.Object, p patchRequest) (runtime.Object, error) {
	raw, err := json.Marshal(old)
	if err != nil {
		return nil, err
	}
	doc := withTypeMeta(nil, op.gvk, raw)
	switch p.kind {
	case types.JSONPatchType:
		doc, err = applyJSONPatch(doc, p.data)
	case types.MergePatchType:
		doc, err = applyMergePatch(doc, p.data)
	case types.StrategicMergePatchType:
		doc, err = applyStrategicPatch(doc, p.data, old)
	default:
		return nil, unsupportedPatch(supportedPatches[:3])
	}
	if err != nil {
		return nil, err
	}
	return decodeBody(mediaJSON, doc, op.gvk, p.validation, op.warn)
}
