package registry

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/apiserver/custom"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/cache"
)

// customVersion is a version of a custom kind.
type customVersion struct {
	*custom.Version
	// name is the key of the version's objects in cache entries: the version at one state of its
	// definition.
	name     string
	managers *custom.Kept[*customManagers]
}

// DefinitionOutline returns a definition without its schemas. The complete one is not kept in
// memory.
func DefinitionOutline(entry *cache.Entry) (*apiextensionsv1.CustomResourceDefinition, error) {
	obj, err := entry.Derived("outline", func(obj runtime.Object) (runtime.Object, error) {
		crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
		if !ok {
			return nil, fmt.Errorf("a %T is no custom resource definition", obj)
		}
		return custom.Outline(crd), nil
	})
	if err != nil {
		return nil, err
	}
	return obj.(*apiextensionsv1.CustomResourceDefinition), nil
}

// ReadDefinition returns a function that reads a definition with its schemas.
func ReadDefinition(entry *cache.Entry) func() (*apiextensionsv1.CustomResourceDefinition, error) {
	return func() (*apiextensionsv1.CustomResourceDefinition, error) {
		obj, err := entry.Peek()
		if err != nil {
			return nil, err
		}
		crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
		if !ok {
			return nil, fmt.Errorf("a %T is no custom resource definition", obj)
		}
		return crd, nil
	}
}

// NewCustomEndpoint returns the endpoint of a version of a custom kind.
func NewCustomEndpoint(s *Shared, v *custom.Version) *Endpoint {
	kind := v.Kind()
	r := &Registry{
		Shared: s, Place: s.Home, Kind: kind, Hub: kind.Kind, Resource: kind.GroupResource(), Strategy: v.Strategy(), Codec: customCodec{v},
	}
	r.Custom = &customVersion{
		Version: v, name: kind.Kind.Version + "@" + v.Definition().CRD.ResourceVersion,
		managers: custom.NewKept(func() *customManagers { return &customManagers{known: map[string]FieldManager{}} }),
	}
	r.Strategy.Columns, r.Strategy.Row = v.Columns(), v.Row
	e := NewEndpoint(r, kind.Kind.Version)
	e.JSONForm = r.Custom.name + "+json"
	return e
}

// customCodec is the stored form of custom resources.
type customCodec struct{ v *custom.Version }

func (c customCodec) Encode(obj runtime.Object) ([]byte, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("a %T is no custom resource", obj)
	}
	return c.v.EncodeStored(u)
}

func (c customCodec) Decode(data []byte, revision int64) (runtime.Object, error) {
	obj, err := custom.DecodeStored(data, revision)
	if err != nil {
		return nil, err
	}
	return c.v.FromStored(obj)
}

// customSchema tells the cache to keep custom resources as stored, for all versions. Selectors by
// fields other than names are evaluated in the version of the request.
func (r *Registry) customSchema() cache.Schema {
	decode := func(stored []byte, revision int64) (runtime.Object, error) {
		obj, err := custom.DecodeStored(stored, revision)
		r.Shared.Store.Decoded(r.Resource, err)
		return obj, err
	}
	return cache.Schema{Prefix: r.Kind.Prefix, Decode: decode, Header: func(obj runtime.Object) cache.Header {
		meta := wire.Accessor(obj)
		return cache.Header{Namespace: meta.GetNamespace(), Name: meta.GetName(), UID: string(meta.GetUID()), Labels: cache.PairsOf(meta.GetLabels())}
	}}
}
