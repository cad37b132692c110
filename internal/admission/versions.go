package admission

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
)

// Form is one way to serve objects: a resource, and the kind written to it or to its subresource.
type Form struct {
	Resource schema.GroupVersionResource
	Kind     schema.GroupVersionKind
}

// Served is the set of resources that the API server serves, including custom resources.
type Served interface {
	// Forms returns all forms of a resource or of its subresource: other versions and other groups.
	Forms(resource schema.GroupVersionResource, subresource string) []Form
	// FromHub returns an object in the version of a resource. ToHub converts an object from the
	// version of one resource to the memory form of a write to another, with defaults. Objects of a
	// subresource's own kind stay unchanged.
	FromHub(resource schema.GroupVersionResource, obj runtime.Object) (runtime.Object, error)
	ToHub(from, to schema.GroupVersionResource, obj runtime.Object) (runtime.Object, error)
	// ByKind finds the resource that serves a kind.
	ByKind(kind schema.GroupVersionKind) (resource schema.GroupVersionResource, namespaced, ok bool)
	// TypeConverter returns the schema of a resource's kind, for merges as in server-side apply.
	TypeConverter(resource schema.GroupVersionResource) (managedfields.TypeConverter, error)
}

// Versioned is a write in one form of its resource, as webhooks and policies see it.
type Versioned struct {
	*Attributes
	Form Form
	// Object and OldObject have their TypeMeta set. They are read-only, because they may share
	// memory with the Attributes' objects.
	Object, OldObject runtime.Object
}

// Form returns the form of the request.
func (a *Attributes) Form() Form { return Form{a.Resource, a.Kind} }

// In returns the write in a form.
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
		return nil, fmt.Errorf("convert %s to %s: %w", a.Kind, form.Kind, err)
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

// Replace replaces the write's object by one in the given form. It overwrites the variable behind
// Object, because callers hold that pointer.
func (a *Attributes) Replace(served Served, form Form, obj runtime.Object) error {
	hub, err := served.ToHub(form.Resource, a.Resource, obj)
	if err != nil {
		return fmt.Errorf("convert %s to %s: %w", form.Kind, a.Kind, err)
	}
	into, from := reflect.ValueOf(a.Object), reflect.ValueOf(hub)
	if into.Type() != from.Type() {
		return fmt.Errorf("convert %s: got a %T, want a %T", form.Kind, hub, a.Object)
	}
	// built-in objects have no TypeMeta in memory, custom ones always do.
	kept := a.Object.GetObjectKind().GroupVersionKind()
	into.Elem().Set(from.Elem())
	a.Object.GetObjectKind().SetGroupVersionKind(kept)
	return nil
}

// shallowCopy copies the outer struct, or the outer map of an unstructured object.
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

// NewLike returns an empty object of the same Go type.
func NewLike(obj runtime.Object) runtime.Object {
	return reflect.New(reflect.TypeOf(obj).Elem()).Interface().(runtime.Object)
}
