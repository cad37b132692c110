package openapi

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"

	"github.com/knarr-project/knarr/internal/api"
)

// TypeConverter has the schemas of the built-in kinds for server-side apply. Parsing them takes a
// while, so it is done on first use.
var TypeConverter = sync.OnceValue(func() managedfields.TypeConverter {
	return applyconfigurations.NewTypeConverter(api.Scheme)
})

// TypeConverterFor returns the type converter for a built-in kind. Kinds without an apply
// configuration (custom resource definitions, API services) get a converter from their published
// schema or, failing that, one that deduces types from the values.
func TypeConverterFor(gvk schema.GroupVersionKind) managedfields.TypeConverter {
	obj, err := api.Scheme.New(gvk)
	if err != nil {
		return managedfields.NewDeducedTypeConverter()
	}
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	if _, err := TypeConverter().ObjectToTyped(obj); err == nil {
		return TypeConverter()
	}
	models, err := Models(obj)
	if err != nil {
		return managedfields.NewDeducedTypeConverter()
	}
	converter, err := managedfields.NewTypeConverter(models, false)
	if err != nil {
		return managedfields.NewDeducedTypeConverter()
	}
	if _, err := converter.ObjectToTyped(obj); err != nil {
		return managedfields.NewDeducedTypeConverter()
	}
	return converter
}
