package apiserver

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/knarr-project/knarr/internal/api/bounds"
)

// boundElements refuses an object with a list or map that is too large for the field manager. size
// is that of the object's document: most are too short to have so many elements, and need no check.
func (op *operation) boundElements(size int, content map[string]any) error {
	if size < 2*bounds.MaxElements { // an element and its separator take two bytes
		return nil
	}
	kind, err := op.schemaOf()
	if err != nil {
		return nil // without a schema there is no check; the field manager reports the error
	}
	if err := bounds.Elements(content, kind.Schema(), kind.TypeRef()); err != nil {
		return apierrors.NewRequestEntityTooLargeError(err.Error())
	}
	return nil
}

// schemaOf returns an empty object of the operation's kind with its schema.
func (op *operation) schemaOf() (*typed.TypedValue, error) {
	e := op.endpoint
	if e.custom == nil {
		obj := e.newObject()
		obj.GetObjectKind().SetGroupVersionKind(e.gvk)
		return e.typeConverter().ObjectToTyped(obj)
	}
	converter, err := e.custom.Definition().TypeConverter()
	if err != nil {
		return nil, err
	}
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	obj.SetGroupVersionKind(e.gvk)
	return converter.ObjectToTyped(runtime.Object(obj))
}
