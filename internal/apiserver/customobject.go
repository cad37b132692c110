package apiserver

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/cache"
)

// takesCustom reports whether the operation's body is a custom resource (and not its Scale).
func (op *operation) takesCustom() bool {
	return op.endpoint.custom != nil && op.gvk == op.endpoint.gvk
}

// decodeCustom decodes a custom resource from a request's body.
func (op *operation) decodeCustom(media string, data []byte, validation string) (runtime.Object, error) {
	if media == mediaProtobuf {
		if _, _, err := openEnvelope(data); err != nil {
			return nil, unrecognized(op.gvk, data, err)
		}
		return nil, unrecognized(op.gvk, data, errors.New("custom resources have no protobuf form"))
	}
	doc, strict, err := asJSON(media, data)
	if err != nil {
		return nil, unrecognized(op.gvk, data, err)
	}
	u := &unstructured.Unstructured{}
	duplicates, err := kjson.UnmarshalStrict(doc, &u.Object)
	if err != nil {
		if _, noObject := findKind(doc); noObject != nil {
			err = noObject
		}
		return nil, unrecognized(op.gvk, data, fmt.Errorf("couldn't get version/kind; json parse error: %w", err))
	}
	if err := op.boundElements(len(doc), u.Object); err != nil {
		return nil, err
	}
	if err := op.readKind(doc, data, u, validation); err != nil {
		return nil, err
	}
	unknown, err := op.endpoint.custom.Take(u)
	if err != nil {
		return nil, unreadable(u.GroupVersionKind(), op.gvk, err)
	}
	problems := append(append(strict, duplicates...), unknown...)
	// Upstream's answer to strict errors in an object without apiVersion.
	if validation == metav1.FieldValidationStrict && len(problems) > 0 && u.GetAPIVersion() == "" {
		return nil, apierrors.NewBadRequest("Object 'apiVersion' is missing in 'object has no apiVersion field'")
	}
	if err := reportFields(problems, u.GroupVersionKind(), u.GroupVersionKind(), validation, op.warn); err != nil {
		return nil, err
	}
	if got := u.GroupVersionKind().GroupVersion(); got != op.gvk.GroupVersion() {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", got, op.gvk.GroupVersion()))
	}
	return u, nil
}

// readKind refuses a body without a valid kind and apiVersion.
func (op *operation) readKind(doc, data []byte, u *unstructured.Unstructured, validation string) error {
	if _, err := findKind(doc); err != nil {
		return unrecognized(op.gvk, data, fmt.Errorf("couldn't get version/kind; json parse error: %w", err))
	}
	if err := brokenVersion(doc); err != nil {
		return unrecognized(op.gvk, data, err)
	}
	if u.GetKind() == "" {
		if validation == metav1.FieldValidationIgnore {
			return unreadable(op.gvk, op.gvk, runtime.NewMissingKindErr(string(doc)))
		}
		return unrecognized(op.gvk, data, runtime.NewMissingKindErr(string(data)))
	}
	if version, there := u.Object["apiVersion"]; there && version == nil {
		return unreadable(schema.GroupVersionKind{Kind: u.GetKind()}, op.gvk, errors.New(".apiVersion accessor error: <nil> is of the type <nil>, expected string"))
	}
	return nil
}

// notHandled is upstream's answer to a body of the wrong form.
func (op *operation) notHandled(err error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", op.gvk.Kind, op.gvk.Version, op.gvk.Kind, err))
}

// takeCustom is take for a custom resource, for which a caller in the process may use a Go type of
// its own.
func (op *operation) takeCustom(obj runtime.Object) (runtime.Object, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		u = &unstructured.Unstructured{Object: fields}
	}
	if u.GroupVersionKind().Empty() {
		u.SetGroupVersionKind(op.gvk)
	}
	if got := u.GroupVersionKind(); got != op.gvk {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("a %s where a %s was expected", got, op.gvk))
	}
	_, err := op.endpoint.custom.Take(u)
	if err != nil {
		return nil, op.notHandled(err)
	}
	return u, nil
}

// decodePatchedCustom decodes a patched document.
func (op *operation) decodePatchedCustom(doc []byte, p patchRequest) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	strict, err := kjson.UnmarshalStrict(doc, &u.Object)
	if err == nil {
		if err := op.boundElements(len(doc), u.Object); err != nil {
			return nil, err
		}
	}
	if err == nil && u.GetKind() == "" {
		err = runtime.NewMissingKindErr(string(doc))
	}
	if err == nil {
		var unknown []error
		unknown, err = op.endpoint.custom.Take(u)
		strict = append(strict, unknown...)
	}
	if err == nil {
		err = op.reportStrict(append(p.double, strict...), p.validation)
	}
	if err != nil {
		return nil, invalidPatch(string(doc), err)
	}
	return u, nil
}

// unknownCustomFields returns the fields of an applied configuration that the schema lacks.
func (op *operation) unknownCustomFields(a applied) []error {
	unknown, err := op.endpoint.custom.Take(a.DeepCopy())
	if err != nil {
		return nil // reported by the merge or by validation
	}
	return unknown
}

// errUnsupportedCustomPatch refuses strategic merge patches: custom resources have no patch
// strategies.
var errUnsupportedCustomPatch = &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType,
	Reason:  metav1.StatusReasonUnsupportedMediaType,
	Message: "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"}}

// marshalCustom returns a custom object as a complete document.
func (e *endpoint) marshalCustom(entry *cache.Entry) ([]byte, error) {
	obj, err := e.objectOf(entry)
	if err != nil {
		return nil, err
	}
	return marshal(obj)
}

// newList returns an empty list object of the endpoint's version.
func (e *endpoint) newList() (runtime.Object, error) {
	if e.custom != nil {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(e.listKind())
		return list, nil
	}
	return api.Scheme.New(e.listKind())
}
