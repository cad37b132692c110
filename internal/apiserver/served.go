package apiserver

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/api"
)

// served implements admission.Served.
type served struct{ *Server }

// Served returns admission's view of the served kinds.
func (s *Server) Served() admission.Served { return served{s} }

// Forms implements admission.Served.
func (s served) Forms(res schema.GroupVersionResource, subresource string) (forms []admission.Form) {
	e, ok := s.endpoints.find(res)
	if !ok {
		return nil
	}
	if e.custom != nil {
		for _, v := range e.custom.Definition().Versions() {
			if form, ok := s.form(res.GroupResource().WithVersion(v.GVK().Version), subresource); ok {
				forms = append(forms, form)
			}
		}
		return forms
	}
	shown := []schema.GroupResource{e.resource}
	shown = append(shown, e.shownBy...)
	for _, gr := range shown {
		// Always found: only kinds of the table show each other's objects.
		r := s.endpoints.registry(gr.Group, gr.Resource)
		versions := r.kind.Served
		if len(versions) == 0 {
			versions = []string{r.kind.Kind.Version}
		}
		for _, version := range versions {
			if form, ok := s.form(gr.WithVersion(version), subresource); ok {
				forms = append(forms, form)
			}
		}
	}
	return forms
}

func (s served) form(res schema.GroupVersionResource, subresource string) (admission.Form, bool) {
	e, ok := s.endpoints.find(res)
	if !ok {
		return admission.Form{}, false
	}
	form := admission.Form{Resource: res, Kind: e.gvk}
	if subresource != "" {
		sub, ok := e.kind.Subresource(subresource)
		if !ok {
			return form, false
		}
		if sub.Kind.GroupKind() != e.gvk.GroupKind() {
			form.Kind = sub.Kind
		}
	}
	return form, true
}

// own reports whether an object is of the kind that the endpoint serves, not of a subresource's.
func (e *endpoint) own(obj runtime.Object) bool {
	if _, ok := obj.(runtime.Unstructured); ok {
		return obj.GetObjectKind().GroupVersionKind().Kind == e.gvk.Kind
	}
	kinds, err := kindOf(obj)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(kinds, func(k schema.GroupVersionKind) bool { return k.Kind == e.gvk.Kind })
}

// FromHub implements admission.Served.
func (s served) FromHub(res schema.GroupVersionResource, obj runtime.Object) (runtime.Object, error) {
	e, ok := s.endpoints.find(res)
	switch {
	case !ok:
		return nil, fmt.Errorf("%s is not served", res)
	case !e.own(obj):
		return obj, nil
	case e.custom == nil:
		return e.fromHub(obj)
	case obj.GetObjectKind().GroupVersionKind() == e.gvk:
		return obj, nil
	}
	return e.custom.FromStored(obj)
}

// ToHub implements admission.Served. In memory, a custom resource has the version of its request.
// The converted object is pruned as if a client had sent it.
func (s served) ToHub(from, to schema.GroupVersionResource, obj runtime.Object) (runtime.Object, error) {
	e, ok := s.endpoints.find(from)
	if !ok {
		return nil, fmt.Errorf("%s is not served", from)
	}
	if !e.own(obj) {
		return obj, nil
	}
	if e.custom == nil {
		return e.toHub(obj)
	}
	if e, ok = s.endpoints.find(to); !ok || e.custom == nil {
		return nil, fmt.Errorf("%s is not served", to)
	}
	return e.custom.FromStored(obj)
}

// ByKind implements admission.Served.
func (s served) ByKind(kind schema.GroupVersionKind) (res schema.GroupVersionResource, namespaced, ok bool) {
	if k, builtIn := api.ByKind(kind.GroupKind()); builtIn {
		res = kind.GroupVersion().WithResource(k.Resource)
		_, ok = s.endpoints.find(res)
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
func (s served) TypeConverter(res schema.GroupVersionResource) (managedfields.TypeConverter, error) {
	e, ok := s.endpoints.find(res)
	if !ok {
		return nil, &meta.NoResourceMatchError{PartialResource: res}
	}
	if e.custom != nil {
		return e.custom.Definition().TypeConverter()
	}
	return e.typeConverter(), nil
}
