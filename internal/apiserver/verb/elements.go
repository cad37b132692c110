package verb

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/knarr-project/knarr/internal/api/bounds"
)

// checkElementBounds refuses an object with a list or map that is too large for the field manager.
// size is that of the object's document: most are too short to have so many elements, and need no
// check.
func (op *Operation) checkElementBounds(size int, content map[string]any) error {
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
func (op *Operation) schemaOf() (*typed.TypedValue, error) {
	e := op.Endpoint
	if e.Custom == nil {
		obj := e.NewObject()
		obj.GetObjectKind().SetGroupVersionKind(e.GVK)
		return e.TypeConverter().ObjectToTyped(obj)
	}
	converter, err := e.Custom.Definition().TypeConverter()
	if err != nil {
		return nil, err
	}
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	obj.SetGroupVersionKind(e.GVK)
	return converter.ObjectToTyped(runtime.Object(obj))
}
