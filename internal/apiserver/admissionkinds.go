package apiserver

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/api"
)

// servedKinds implements admission.Served.
type servedKinds struct{ *Server }

// Served returns admission's view of the served kinds.
func (s *Server) Served() admission.Served { return servedKinds{s} }

// Forms implements admission.Served.
func (s servedKinds) Forms(res schema.GroupVersionResource, subresource string) (forms []admission.Form) {
	e, ok := s.endpoints.Find(res)
	if !ok {
		return nil
	}
	if e.Custom != nil {
		for _, v := range e.Custom.Definition().Versions() {
			if form, ok := s.form(res.GroupResource().WithVersion(v.GVK().Version), subresource); ok {
				forms = append(forms, form)
			}
		}
		return forms
	}
	shown := []schema.GroupResource{e.Resource}
	shown = append(shown, e.Aliases...)
	for _, gr := range shown {
		// Always found: only kinds of the table show each other's objects.
		r := s.endpoints.Registry(gr.Group, gr.Resource)
		versions := r.Kind.Served
		if len(versions) == 0 {
			versions = []string{r.Kind.Kind.Version}
		}
		for _, version := range versions {
			if form, ok := s.form(gr.WithVersion(version), subresource); ok {
				forms = append(forms, form)
			}
		}
	}
	return forms
}

func (s servedKinds) form(res schema.GroupVersionResource, subresource string) (admission.Form, bool) {
	e, ok := s.endpoints.Find(res)
	if !ok {
		return admission.Form{}, false
	}
	form := admission.Form{Resource: res, Kind: e.GVK}
	if subresource != "" {
		sub, ok := e.Kind.Subresource(subresource)
		if !ok {
			return form, false
		}
		if sub.Kind.GroupKind() != e.GVK.GroupKind() {
			form.Kind = sub.Kind
		}
	}
	return form, true
}

// FromHub implements admission.Served.
func (s servedKinds) FromHub(res schema.GroupVersionResource, obj runtime.Object) (runtime.Object, error) {
	e, ok := s.endpoints.Find(res)
	switch {
	case !ok:
		return nil, fmt.Errorf("%s is not served", res)
	case !e.IsOwnKind(obj):
		return obj, nil
	case e.Custom == nil:
		return e.FromHub(obj)
	case obj.GetObjectKind().GroupVersionKind() == e.GVK:
		return obj, nil
	}
	return e.Custom.FromStored(obj)
}

// ToHub implements admission.Served. In memory, a custom resource has the version of its request.
// The converted object is pruned as if a client had sent it.
func (s servedKinds) ToHub(from, to schema.GroupVersionResource, obj runtime.Object) (runtime.Object, error) {
	e, ok := s.endpoints.Find(from)
	if !ok {
		return nil, fmt.Errorf("%s is not served", from)
	}
	if !e.IsOwnKind(obj) {
		return obj, nil
	}
	if e.Custom == nil {
		return e.ToHub(obj)
	}
	if e, ok = s.endpoints.Find(to); !ok || e.Custom == nil {
		return nil, fmt.Errorf("%s is not served", to)
	}
	return e.Custom.FromStored(obj)
}

// ByKind implements admission.Served.
func (s servedKinds) ByKind(kind schema.GroupVersionKind) (res schema.GroupVersionResource, namespaced, ok bool) {
	if k, builtIn := api.ByKind(kind.GroupKind()); builtIn {
		res = kind.GroupVersion().WithResource(k.Resource)
		_, ok = s.endpoints.Find(res)
		return res, k.Namespaced, ok
	}
	lists, _ := s.discovery.Lists()
	for _, list := range lists {
		if list.GroupVersion != kind.GroupVersion().String() {
			continue
		}
		for i := range list.APIResources {
			r := &list.APIResources[i]
			if r.Kind == kind.Kind && !strings.Contains(r.Name, "/") {
				return kind.GroupVersion().WithResource(r.Name), r.Namespaced, true
			}
		}
	}
	return schema.GroupVersionResource{}, false, false
}

// TypeConverter implements admission.Served.
func (s servedKinds) TypeConverter(res schema.GroupVersionResource) (managedfields.TypeConverter, error) {
	e, ok := s.endpoints.Find(res)
	if !ok {
		return nil, &meta.NoResourceMatchError{PartialResource: res}
	}
	if e.Custom != nil {
		return e.Custom.Definition().TypeConverter()
	}
	return e.TypeConverter(), nil
}
