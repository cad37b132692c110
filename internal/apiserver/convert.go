package apiserver

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/api"
)

// convert converts obj from one kind to another. It returns obj itself if they are equal.
func convert(obj runtime.Object, from, to schema.GroupVersionKind) (runtime.Object, error) {
	if from == to {
		return obj, nil
	}
	return api.Convert(obj, to.GroupVersion())
}

// objectConvertor is the part of a scheme that the field manager needs, with our conversions.
type objectConvertor struct {
	hub schema.GroupVersionKind
	// served is the kind in the version that fields are tracked in: of another group for events of
	// events.k8s.io.
	served schema.GroupVersionKind
}

var _ runtime.ObjectConvertor = objectConvertor{}

func (c objectConvertor) Convert(in, out, context any) error {
	return api.Scheme.Convert(in, out, context)
}

// ConvertToVersion returns in in the target version, with its TypeMeta set, as a shallow copy if
// the version is the same.
func (c objectConvertor) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	from := in.GetObjectKind().GroupVersionKind()
	if from.Empty() {
		from = c.hub
	}
	to, ok := target.KindForGroupVersionKinds([]schema.GroupVersionKind{from, c.served, c.hub})
	if !ok || !api.Scheme.Recognizes(to) {
		// This error makes the field manager drop the managers of versions that no longer exist.
		return nil, runtime.NewNotRegisteredGVKErrForTarget("knarr", from, target)
	}
	out, err := c.typed(in, from)
	if err != nil {
		return nil, err
	}
	if out, err = convert(out, from, to); err != nil {
		return nil, err
	}
	if out == in {
		out = shallowCopy(in)
	}
	// Objects in memory have no TypeMeta, but the field manager's type converter needs it.
	out.GetObjectKind().SetGroupVersionKind(to)
	return out, nil
}

// typed converts an unstructured object to its Go type.
func (c objectConvertor) typed(in runtime.Object, gvk schema.GroupVersionKind) (runtime.Object, error) {
	u, ok := in.(runtime.Unstructured)
	if !ok {
		return in, nil
	}
	out, err := api.Scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.UnstructuredContent(), out); err != nil {
		return nil, fmt.Errorf("unable to convert unstructured object to %v: %w", gvk, err)
	}
	return out, nil
}

func (c objectConvertor) ConvertFieldLabel(gvk schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

// kindOf returns the scheme's kinds of the object's Go type.
func kindOf(obj runtime.Object) ([]schema.GroupVersionKind, error) {
	kinds, _, err := api.Scheme.ObjectKinds(obj)
	return kinds, err
}
