package openapi

import (
	"errors"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/knarr-project/knarr/internal/api"
)

// Kind returns a built-in kind's schema with all references inlined, for type checkers that do not
// follow references. Each call makes a new one.
func Kind(gvk schema.GroupVersionKind) (*spec.Schema, error) {
	obj, err := api.Scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	return whole(reflect.TypeOf(obj), gvk.GroupVersion())
}

// ObjectMeta returns the schema of metadata with all references inlined.
func ObjectMeta() (*spec.Schema, error) {
	return whole(reflect.TypeFor[metav1.ObjectMeta](), metav1.SchemeGroupVersion)
}

func whole(t reflect.Type, gv schema.GroupVersion) (*spec.Schema, error) {
	s, err := newSchemas(v3, gv)
	if err != nil {
		return nil, err
	}
	root := s.add(t)
	if len(s.done[root].Properties) == 0 {
		return nil, errors.New("the type " + root + " has no properties")
	}
	return resolver.PopulateRefs(func(ref string) (*spec.Schema, bool) {
		if len(ref) > len(v3DefinitionPrefix) && ref[:len(v3DefinitionPrefix)] == v3DefinitionPrefix {
			ref = ref[len(v3DefinitionPrefix):]
		}
		found, ok := s.done[ref]
		return &found, ok
	}, root)
}
