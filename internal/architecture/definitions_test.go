package architecture

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// kinds are the Go types of the definitions.
var kinds = map[string]any{"Component": Component{}, "System": System{}, "Traffic": Traffic{}}

func TestEachSchemaHasTheFieldsOfItsGoTypeWithDescriptions(t *testing.T) {
	definitions, err := Definitions()
	if err != nil {
		t.Fatal(err)
	}
	if len(definitions) != len(kinds) {
		t.Errorf("%d definitions and %d kinds", len(definitions), len(kinds))
	}
	for _, d := range definitions {
		of, ok := kinds[d.Spec.Names.Kind]
		if !ok {
			t.Errorf("kind %s has no Go type in this test", d.Spec.Names.Kind)
			continue
		}
		compare(t, d.Spec.Names.Kind, reflect.TypeOf(of), d.Spec.Versions[0].Schema.OpenAPIV3Schema)
	}
}

func compare(t *testing.T, path string, of reflect.Type, s *apiextensionsv1.JSONSchemaProps) {
	t.Helper()
	if s.Description == "" && !strings.HasSuffix(path, "[]") {
		t.Errorf("%s has no description", path)
	}
	switch of {
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[intstr.IntOrString]():
		return
	}
	switch of.Kind() {
	case reflect.Pointer:
		compare(t, path, of.Elem(), s)
	case reflect.Slice:
		compare(t, path+"[]", of.Elem(), s.Items.Schema)
	case reflect.Struct:
		var names []string
		for name := range jsonFields(of) {
			names = append(names, name)
		}
		for name, field := range jsonFields(of) {
			if name == "metadata" {
				continue
			}
			p, ok := s.Properties[name]
			if !ok {
				t.Errorf("%s.%s is in Go, but not in the schema", path, name)
				continue
			}
			compare(t, path+"."+name, field, &p)
		}
		for name := range s.Properties {
			if !slices.Contains(names, name) {
				t.Errorf("%s.%s is in the schema, but not in Go", path, name)
			}
		}
	}
}

func jsonFields(of reflect.Type) map[string]reflect.Type {
	all := map[string]reflect.Type{}
	for i := range of.NumField() {
		f := of.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case strings.Contains(options, "inline"):
			for name, field := range jsonFields(f.Type) {
				all[name] = field
			}
		default:
			all[name] = f.Type
		}
	}
	return all
}
