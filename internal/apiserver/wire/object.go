package wire

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Accessor returns the metadata of an object that is known to have some.
func Accessor(obj runtime.Object) metav1.Object {
	acc, err := meta.Accessor(obj)
	if err != nil {
		panic(fmt.Sprintf("%T has no metadata", obj))
	}
	return acc
}

// ClearKind empties the TypeMeta, as built-in objects in memory have it. Custom objects keep
// theirs: it is part of their content.
func ClearKind(obj runtime.Object) {
	if _, custom := obj.(runtime.Unstructured); !custom {
		obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
}

// shallowCopy copies the outermost struct only.
func shallowCopy(obj runtime.Object) runtime.Object {
	v := reflect.ValueOf(obj).Elem()
	out := reflect.New(v.Type())
	out.Elem().Set(v)
	return out.Interface().(runtime.Object)
}

// ClearObject sets obj to its zero value.
func ClearObject(obj runtime.Object) {
	v := reflect.ValueOf(obj).Elem()
	v.SetZero()
}
