package wire

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/api"
)

// Convert converts obj from one kind to another. It returns obj itself if they are equal.
func Convert(obj runtime.Object, from, to schema.GroupVersionKind) (runtime.Object, error) {
	if from == to {
		return obj, nil
	}
	return api.Convert(obj, to.GroupVersion())
}

// ObjectConvertor is the part of a scheme that the field manager needs, with our conversions.
type ObjectConvertor struct {
	Hub schema.GroupVersionKind
	// Served is the kind in the version that fields are tracked in: of another group for events of
	// events.k8s.io.
	Served schema.GroupVersionKind
}

var _ runtime.ObjectConvertor = ObjectConvertor{}

func (c ObjectConvertor) Convert(in, out, context any) error {
	return api.Scheme.Convert(in, out, context)
}

// ConvertToVersion returns in in the target version, with its TypeMeta set, as a shallow copy if
// the version is the same.
func (c ObjectConvertor) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	from := in.GetObjectKind().GroupVersionKind()
	if from.Empty() {
		from = c.Hub
	}
	to, ok := target.KindForGroupVersionKinds([]schema.GroupVersionKind{from, c.Served, c.Hub})
	if !ok || !api.Scheme.Recognizes(to) {
		// This error makes the field manager drop the managers of versions that no longer exist.
		return nil, runtime.NewNotRegisteredGVKErrForTarget("knarr", from, target)
	}
	out, err := c.Typed(in, from)
	if err != nil {
		return nil, err
	}
	if out, err = Convert(out, from, to); err != nil {
		return nil, err
	}
	if out == in {
		out = shallowCopy(in)
	}
	// Objects in memory have no TypeMeta, but the field manager's type converter needs it.
	out.GetObjectKind().SetGroupVersionKind(to)
	return out, nil
}

// Typed converts an unstructured object to its Go type.
func (c ObjectConvertor) Typed(in runtime.Object, gvk schema.GroupVersionKind) (runtime.Object, error) {
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

func (c ObjectConvertor) ConvertFieldLabel(gvk schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

// KindOf returns the scheme's kinds of the object's Go type.
func KindOf(obj runtime.Object) ([]schema.GroupVersionKind, error) {
	kinds, _, err := api.Scheme.ObjectKinds(obj)
	return kinds, err
}
