package verb

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

	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

// HasCustomBody reports whether the operation's body is a custom resource (and not its Scale).
func (op *Operation) HasCustomBody() bool {
	return op.Endpoint.Custom != nil && op.GVK == op.Endpoint.GVK
}

// DecodeCustom decodes a custom resource from a request's body.
func (op *Operation) DecodeCustom(media string, data []byte, validation string) (runtime.Object, error) {
	if media == wire.MediaProtobuf {
		if _, _, err := wire.OpenEnvelope(data); err != nil {
			return nil, wire.Unrecognized(op.GVK, data, err)
		}
		return nil, wire.Unrecognized(op.GVK, data, errors.New("custom resources have no protobuf form"))
	}
	doc, strict, err := wire.AsJSON(media, data)
	if err != nil {
		return nil, wire.Unrecognized(op.GVK, data, err)
	}
	u := &unstructured.Unstructured{}
	duplicates, err := kjson.UnmarshalStrict(doc, &u.Object)
	if err != nil {
		if _, noObject := wire.FindKind(doc); noObject != nil {
			err = noObject
		}
		return nil, wire.Unrecognized(op.GVK, data, fmt.Errorf("couldn't get version/kind; json parse error: %w", err))
	}
	if err := op.checkElementBounds(len(doc), u.Object); err != nil {
		return nil, err
	}
	if err := op.readKind(doc, data, u, validation); err != nil {
		return nil, err
	}
	unknown, err := op.Endpoint.Custom.Take(u)
	if err != nil {
		return nil, wire.CannotHandle(u.GroupVersionKind(), op.GVK, err)
	}
	problems := append(append(strict, duplicates...), unknown...)
	// Upstream's answer to strict errors in an object without apiVersion.
	if validation == metav1.FieldValidationStrict && len(problems) > 0 && u.GetAPIVersion() == "" {
		return nil, apierrors.NewBadRequest("Object 'apiVersion' is missing in 'object has no apiVersion field'")
	}
	if err := wire.ReportFields(problems, u.GroupVersionKind(), u.GroupVersionKind(), validation, op.Warn); err != nil {
		return nil, err
	}
	if got := u.GroupVersionKind().GroupVersion(); got != op.GVK.GroupVersion() {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", got, op.GVK.GroupVersion()))
	}
	return u, nil
}

// readKind refuses a body without a valid kind and apiVersion.
func (op *Operation) readKind(doc, data []byte, u *unstructured.Unstructured, validation string) error {
	if _, err := wire.FindKind(doc); err != nil {
		return wire.Unrecognized(op.GVK, data, fmt.Errorf("couldn't get version/kind; json parse error: %w", err))
	}
	if err := wire.InvalidAPIVersion(doc); err != nil {
		return wire.Unrecognized(op.GVK, data, err)
	}
	if u.GetKind() == "" {
		if validation == metav1.FieldValidationIgnore {
			return wire.CannotHandle(op.GVK, op.GVK, runtime.NewMissingKindErr(string(doc)))
		}
		return wire.Unrecognized(op.GVK, data, runtime.NewMissingKindErr(string(data)))
	}
	if version, there := u.Object["apiVersion"]; there && version == nil {
		return wire.CannotHandle(schema.GroupVersionKind{Kind: u.GetKind()}, op.GVK, errors.New(".apiVersion accessor error: <nil> is of the type <nil>, expected string"))
	}
	return nil
}

// notHandled is upstream's answer to a body of the wrong form.
func (op *Operation) notHandled(err error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", op.GVK.Kind, op.GVK.Version, op.GVK.Kind, err))
}

// copyOfCustom is CopyOf for a custom resource, for which a caller in the process may use a Go type
// of its own.
func (op *Operation) copyOfCustom(obj runtime.Object) (runtime.Object, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		u = &unstructured.Unstructured{Object: fields}
	}
	if u.GroupVersionKind().Empty() {
		u.SetGroupVersionKind(op.GVK)
	}
	if got := u.GroupVersionKind(); got != op.GVK {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("a %s where a %s was expected", got, op.GVK))
	}
	_, err := op.Endpoint.Custom.Take(u)
	if err != nil {
		return nil, op.notHandled(err)
	}
	return u, nil
}

// decodePatchedCustom decodes a patched document.
func (op *Operation) decodePatchedCustom(doc []byte, p PatchRequest) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	strict, err := kjson.UnmarshalStrict(doc, &u.Object)
	if err == nil {
		if err := op.checkElementBounds(len(doc), u.Object); err != nil {
			return nil, err
		}
	}
	if err == nil && u.GetKind() == "" {
		err = runtime.NewMissingKindErr(string(doc))
	}
	if err == nil {
		var unknown []error
		unknown, err = op.Endpoint.Custom.Take(u)
		strict = append(strict, unknown...)
	}
	if err == nil {
		err = op.reportStrict(append(p.duplicates, strict...), p.Validation)
	}
	if err != nil {
		return nil, invalidPatch(string(doc), err)
	}
	return u, nil
}

// unknownCustomFields returns the fields of an applied configuration that the schema lacks.
func (op *Operation) unknownCustomFields(a applyConfiguration) []error {
	unknown, err := op.Endpoint.Custom.Take(a.DeepCopy())
	if err != nil {
		return nil // reported by the merge or by validation
	}
	return unknown
}

// ErrUnsupportedCustomPatch refuses strategic merge patches: custom resources have no patch
// strategies.
var ErrUnsupportedCustomPatch = &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType,
	Reason:  metav1.StatusReasonUnsupportedMediaType,
	Message: "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"}}

// ErrTerminating refuses new objects of a kind that is being removed.
func ErrTerminating(resource schema.GroupResource, verb string) error {
	err := apierrors.NewMethodNotSupported(resource, verb)
	err.ErrStatus.Message = verb + " not allowed while custom resource definition is terminating"
	return err
}
