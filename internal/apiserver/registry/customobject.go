package registry

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/cache"
)

// marshalCustom returns a custom object as a complete document.
func (e *Endpoint) marshalCustom(entry *cache.Entry) ([]byte, error) {
	obj, err := e.ObjectOf(entry)
	if err != nil {
		return nil, err
	}
	return wire.Marshal(obj)
}

// newList returns an empty list object of the endpoint's version.
func (e *Endpoint) newList() (runtime.Object, error) {
	if e.Custom != nil {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(e.listKind())
		return list, nil
	}
	return api.Scheme.New(e.listKind())
}
