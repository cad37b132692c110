package admission

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
)

// Form is one way in which objects are served: a resource, and the kind of what is written to it or to its subresource.
type Form struct {
	Resource schema.GroupVersionResource
	Kind     schema.GroupVersionKind
}

// Served is what the API server serves, custom resources included.
type Served interface {
	// Forms are all ways in which the objects of a resource are served, or its subresource is: other versions, other groups.
	Forms(resource schema.GroupVersionResource, subresource string) []Form
	// FromHub gives an object in the version of a resource. ToHub gives an object that was made in the version of one
	// resource as a write to another one has it in memory, with defaults. Objects of a subresource's own kind stay as they are.
	FromHub(resource schema.GroupVersionResource, obj runtime.Object) (runtime.Object, error)
	ToHub(from, to schema.GroupVersionResource, obj runtime.Object) (runtime.Object, error)
	// ByKind finds the resource that serves a kind.
	ByKind(kind schema.GroupVersionKind) (resource schema.GroupVersionResource, namespaced, ok bool)
	// TypeConverter knows the schema of a resource's kind, for merging as server-side apply does.
	TypeConverter(resource schema.GroupVersionResource) (managedfields.TypeConverter, error)
}

// Versioned is a write in one of the forms of its resource, as webhooks and policies see it.
type Versioned struct {
	*Attributes
	Form Form
	// Object and OldObject carry their TypeMeta. They may share memory with those of the Attributes: read-only.
	Object, OldObject runtime.Object
}

// Form is the one that the request was made in.
func (a *Attributes) Form() Form { return Form{a.Resource, a.Kind} }

// In shows the write in a form.
func (a *Attributes) In(served Served, form Form) (*Versioned, error) {
	v := &Versioned{Attributes: a, Form: form}
	var err error
	if v.Object, err = a.versioned(served, form, a.Object); err != nil {
		return nil, err
	}
	v.OldObject, err = a.versioned(served, form, a.OldObject)
	return v, err
}

func (a *Attributes) versioned(served Served, form Form, obj runtime.Object) (runtime.Object, error) {
	if obj == nil {
		return nil, nil
	}
	out, err := served.FromHub(form.Resource, obj)
	if err != nil {
		return nil, fmt.Errorf("show %s as %s: %w", a.Kind, form.Kind, err)
	}
	if out.GetObjectKind().GroupVersionKind() == form.Kind {
		return out, nil
	}
	if out == obj {
		out = shallowCopy(obj)
	}
	out.GetObjectKind().SetGroupVersionKind(form.Kind)
	return out, nil
}

// Replace gives the write another object, in one of its forms. The Object stays the same variable: callers hold it.
func (a *Attributes) Replace(served Served, form Form, obj runtime.Object) error {
	hub, err := served.ToHub(form.Resource, a.Resource, obj)
	if err != nil {
		return fmt.Errorf("take %s as %s: %w", form.Kind, a.Kind, err)
	}
	into, from := reflect.ValueOf(a.Object), reflect.ValueOf(hub)
	if into.Type() != from.Type() {
		return fmt.Errorf("a %s became a %T where a %T was expected", form.Kind, hub, a.Object)
	}
	kept := a.Object.GetObjectKind().GroupVersionKind() // built-in objects have none in memory, custom ones always
	into.Elem().Set(from.Elem())
	a.Object.GetObjectKind().SetGroupVersionKind(kept)
	return nil
}

// shallowCopy copies the outermost struct, or of a dynamic object the outermost map.
func shallowCopy(obj runtime.Object) runtime.Object {
	if u, ok := obj.(runtime.Unstructured); ok {
		out := u.NewEmptyInstance()
		fields := u.UnstructuredContent()
		shallow := make(map[string]any, len(fields)+2)
		for k, v := range fields {
			shallow[k] = v
		}
		out.SetUnstructuredContent(shallow)
		return out
	}
	v := reflect.ValueOf(obj).Elem()
	out := reflect.New(v.Type())
	out.Elem().Set(v)
	return out.Interface().(runtime.Object)
}

// NewLike is an empty object of the same Go type.
func NewLike(obj runtime.Object) runtime.Object {
	return reflect.New(reflect.TypeOf(obj).Elem()).Interface().(runtime.Object)
}
