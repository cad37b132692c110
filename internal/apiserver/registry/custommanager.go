package registry

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/knarr-project/knarr/internal/apiserver/custom"
)

// customManagers are a version's field managers by subresource.
type customManagers struct {
	mu    sync.Mutex
	known map[string]FieldManager
}

// customManager returns the manager that tracks field ownership of a custom kind by its schema.
func (e *Endpoint) customManager(subresource string) (FieldManager, error) {
	set := e.Custom.managers.Get()
	set.mu.Lock()
	defer set.mu.Unlock()
	if m, ok := set.known[subresource]; ok {
		return m, nil
	}
	m, err := e.newCustomManager(subresource)
	if err == nil {
		set.known[subresource] = m
	}
	return m, err
}

func (e *Endpoint) newCustomManager(subresource string) (FieldManager, error) {
	converter, err := e.Custom.Definition().TypeConverter()
	if err != nil {
		e.Shared.Log.Warn("fields of a custom kind are tracked without its schema", "kind", e.GVK.String(), "err", err)
		converter = managedfields.NewDeducedTypeConverter()
	}
	c := customScheme{def: e.Custom.Definition()}
	return managedfields.NewDefaultCRDFieldManager(converter, c, c, c, e.GVK, e.GVK.GroupVersion(), subresource, e.resetCustomFields(subresource))
}

// resetCustomFields is resetFields for every version of a custom kind.
func (e *Endpoint) resetCustomFields(subresource string) map[fieldpath.APIVersion]fieldpath.Filter {
	out := map[fieldpath.APIVersion]fieldpath.Filter{}
	for _, v := range e.Custom.Definition().Versions() {
		var reset *fieldpath.Set
		switch {
		case subresource == "status":
			reset = fieldpath.NewSet(fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("metadata"))
		case subresource == "" && v.HasStatus():
			reset = fieldpath.NewSet(fieldpath.MakePathOrDie("status"))
		default:
			continue
		}
		out[fieldpath.APIVersion(v.GVK().GroupVersion().String())] = fieldpath.NewExcludeSetFilter(reset)
	}
	return out
}

// customScheme is the part of a scheme that the field manager needs.
type customScheme struct{ def *custom.Definition }

var _ runtime.ObjectConvertor = customScheme{}

func (customScheme) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(gvk)
	return u, nil
}

func (c customScheme) Default(in runtime.Object) {
	u, ok := in.(*unstructured.Unstructured)
	if !ok {
		return
	}
	if v, ok := c.def.Any(u.GroupVersionKind().Version); ok {
		v.Default(u)
	}
}

func (c customScheme) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	u, ok := in.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("a %T is no custom resource", in)
	}
	from := u.GroupVersionKind()
	to, ok := target.KindForGroupVersionKinds([]schema.GroupVersionKind{from})
	if !ok {
		return nil, fmt.Errorf("no conversion of %s to %v", from, target)
	}
	return c.def.Convert(u, to.Version)
}

func (customScheme) Convert(in, out, _ any) error {
	from, ok := in.(*unstructured.Unstructured)
	to, same := out.(*unstructured.Unstructured)
	if !ok || !same {
		return fmt.Errorf("no conversion of a %T to a %T", in, out)
	}
	to.Object = from.DeepCopy().Object
	return nil
}

func (customScheme) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}
