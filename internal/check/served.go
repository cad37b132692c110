package check

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/api/openapi"
)

// servedKinds implements admission.Served over the kinds of the table and of the files.
type servedKinds struct{ *kinds }

// Forms implements admission.Served.
func (s servedKinds) Forms(res schema.GroupVersionResource, subresource string) (forms []admission.Form) {
	k, ok := s.byResource(res)
	if !ok || subresource != "" {
		return nil
	}
	var versions []string
	if k.custom == nil {
		versions = served(k.Kind)
	} else {
		for _, v := range k.custom.Definition().Versions() {
			versions = append(versions, v.GVK().Version)
		}
	}
	for _, version := range versions {
		if _, ok := s.find(k.gvk.GroupKind().WithVersion(version)); ok {
			forms = append(forms, admission.Form{Resource: res.GroupResource().WithVersion(version), Kind: k.gvk.GroupKind().WithVersion(version)})
		}
	}
	return forms
}

// FromHub implements admission.Served.
func (s servedKinds) FromHub(res schema.GroupVersionResource, obj runtime.Object) (runtime.Object, error) {
	k, ok := s.byResource(res)
	if !ok {
		return nil, fmt.Errorf("%s is not served", res)
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		if k.custom == nil || u.GroupVersionKind() == k.gvk {
			return obj, nil
		}
		return k.custom.FromStored(obj)
	}
	return api.Convert(obj, res.GroupVersion())
}

// ToHub implements admission.Served.
func (s servedKinds) ToHub(_, to schema.GroupVersionResource, obj runtime.Object) (runtime.Object, error) {
	k, ok := s.byResource(to)
	if !ok {
		return nil, fmt.Errorf("%s is not served", to)
	}
	if k.custom != nil {
		return k.custom.FromStored(obj)
	}
	hub, err := api.Convert(obj, k.hub())
	if err == nil && k.strategy != nil && k.strategy.Default != nil {
		k.strategy.Default(hub)
	}
	return hub, err
}

// ByKind implements admission.Served.
func (s servedKinds) ByKind(gvk schema.GroupVersionKind) (res schema.GroupVersionResource, namespaced, ok bool) {
	k, ok := s.find(gvk)
	if !ok {
		return res, false, false
	}
	return k.gvr(), k.Namespaced, true
}

// TypeConverter implements admission.Served.
func (s servedKinds) TypeConverter(res schema.GroupVersionResource) (managedfields.TypeConverter, error) {
	k, ok := s.byResource(res)
	if !ok {
		return nil, fmt.Errorf("%s is not served", res)
	}
	if k.custom != nil {
		return k.custom.Definition().TypeConverter()
	}
	return openapi.TypeConverterFor(k.gvk), nil
}
