package openapi

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiextensionsopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/applyconfigurations"
	aggregatoropenapi "k8s.io/kube-aggregator/pkg/generated/openapi"
	builderutil "k8s.io/kube-openapi/pkg/builder3/util"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"

	"github.com/knarr-project/knarr/internal/api"
)

// dialect is the OpenAPI version of the schemas.
type dialect int

const (
	v2 dialect = iota
	v3
)

const (
	extensionGVK       = "x-kubernetes-group-version-kind"
	extensionListType  = "x-kubernetes-list-type"
	extensionListKeys  = "x-kubernetes-list-map-keys"
	extensionMapType   = "x-kubernetes-map-type"
	extensionStrategy  = "x-kubernetes-patch-strategy"
	extensionMergeKey  = "x-kubernetes-patch-merge-key"
	extensionUnions    = "x-kubernetes-unions"
	v2DefinitionPrefix = "#/definitions/"
	v3DefinitionPrefix = "#/components/schemas/"
)

// schemas collects the definitions that documents refer to.
type schemas struct {
	dialect dialect
	// gvks limits the x-kubernetes-group-version-kind of types that every group has (DeleteOptions,
	// WatchEvent). nil means no limit.
	gvks map[schema.GroupVersion]bool

	library map[string]common.OpenAPIDefinition
	merge   map[string]*smdschema.Map
	done    map[string]spec.Schema
}

// newSchemas returns the collection for one document. gvs nil means all group versions.
func newSchemas(d dialect, gvs ...schema.GroupVersion) (*schemas, error) {
	s := &schemas{dialect: d, library: map[string]common.OpenAPIDefinition{}, merge: map[string]*smdschema.Map{}, done: map[string]spec.Schema{}}
	if gvs != nil {
		s.gvks = map[schema.GroupVersion]bool{}
		for _, gv := range gvs {
			s.gvks[gv] = true
		}
	}
	maps.Copy(s.library, aggregatoropenapi.GetOpenAPIDefinitions(s.ref))
	maps.Copy(s.library, apiextensionsopenapi.GetOpenAPIDefinitions(s.ref))

	typed, err := applyconfigurations.NewTypeConverter(api.Scheme).ObjectToTyped(
		&corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}})
	if err != nil {
		return nil, fmt.Errorf("reach the schema of server-side apply: %w", err)
	}
	for _, def := range typed.Schema().Types {
		if def.Map != nil {
			s.merge[def.Name] = def.Map
		}
	}
	return s, nil
}

func (s *schemas) ref(name string) spec.Ref {
	prefix := v2DefinitionPrefix
	if s.dialect == v3 {
		prefix = v3DefinitionPrefix
	}
	return spec.MustCreateRef(prefix + name)
}

type named interface{ OpenAPIModelName() string }

// addType adds the definitions of an API type and of every type it refers to, and returns its name.
func (s *schemas) addType(obj any) string {
	return s.add(reflect.TypeOf(obj))
}

func (s *schemas) add(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	name := modelName(t)
	if _, ok := s.done[name]; ok {
		return name
	}
	s.done[name] = spec.Schema{} // types may refer to themselves (JSONSchemaProps)
	if _, ok := s.library[name]; ok {
		s.addLibrary(name)
	} else if c, ok := reflect.Zero(t).Interface().(custom); ok {
		s.finish(name, s.customSchema(c), nil)
	} else {
		s.finish(name, s.structSchema(t, name), t)
	}
	return name
}

// addLibrary adds a definition from its module unchanged.
func (s *schemas) addLibrary(name string) {
	def := s.library[name]
	value := def.Schema
	if embedded, ok := value.Extensions[common.ExtensionV2Schema]; ok {
		if s.dialect == v2 {
			value = embedded.(spec.Schema)
		} else {
			value.Extensions = maps.Clone(value.Extensions)
			delete(value.Extensions, common.ExtensionV2Schema)
			if len(value.Extensions) == 0 {
				value.Extensions = nil
			}
		}
	}
	s.finish(name, value, typeNamed(name))
	for _, other := range def.Dependencies {
		if _, ok := s.done[other]; !ok {
			s.done[other] = spec.Schema{}
			s.addLibrary(other)
		}
	}
}

// finish adds the kinds of a type and converts the definition to the dialect.
func (s *schemas) finish(name string, value spec.Schema, t reflect.Type) {
	if t != nil {
		if kinds := s.kindsOf(t); len(kinds) > 0 {
			value.Extensions = maps.Clone(value.Extensions)
			value.AddExtension(extensionGVK, kinds)
		}
	}
	if s.dialect == v3 {
		value = *builderutil.WrapRefs(&value)
	} else {
		value = withoutDefaults(value)
	}
	s.done[name] = value
}

// withoutDefaults drops all defaults: upstream publishes none in OpenAPI v2, for old clients.
func withoutDefaults(value spec.Schema) spec.Schema {
	value.Default = nil
	if len(value.Properties) > 0 {
		properties := make(map[string]spec.Schema, len(value.Properties))
		for name, p := range value.Properties {
			properties[name] = withoutDefaults(p)
		}
		value.Properties = properties
	}
	if value.Items != nil && value.Items.Schema != nil {
		items := withoutDefaults(*value.Items.Schema)
		value.Items = &spec.SchemaOrArray{Schema: &items}
	}
	if a := value.AdditionalProperties; a != nil && a.Schema != nil {
		values := withoutDefaults(*a.Schema)
		value.AdditionalProperties = &spec.SchemaOrBool{Allows: a.Allows, Schema: &values}
	}
	return value
}

// kindsOf returns the kinds of a type, sorted.
func (s *schemas) kindsOf(t reflect.Type) []any {
	obj, ok := reflect.New(t).Interface().(runtime.Object)
	if !ok {
		return nil
	}
	gvks, _, err := api.Scheme.ObjectKinds(obj)
	if err != nil {
		return nil
	}
	gvks = slices.Clone(gvks)
	if len(gvks) > 1 && (gvks[0].Kind == "DeleteOptions" || gvks[0].Kind == "WatchEvent") {
		for _, gv := range optionsOnly {
			gvks = append(gvks, gv.WithKind(gvks[0].Kind))
		}
	}
	gvks = slices.DeleteFunc(gvks, func(gvk schema.GroupVersionKind) bool {
		if len(gvks) > 1 && gvk.Group == metricsGroup && !s.gvks[gvk.GroupVersion()] {
			return true
		}
		return gvk.Version == runtime.APIVersionInternal || s.gvks != nil && len(gvks) > 1 && gvk.Group != "" && !s.gvks[gvk.GroupVersion()]
	})
	slices.SortFunc(gvks, func(a, b schema.GroupVersionKind) int {
		return strings.Compare(a.Group+"/"+a.Version+"/"+a.Kind, b.Group+"/"+b.Version+"/"+b.Kind)
	})
	var list []any
	for _, gvk := range gvks {
		list = append(list, map[string]any{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind})
	}
	return list
}

// modelName returns upstream's name of a type's definition.
func modelName(t reflect.Type) string {
	if n, ok := reflect.Zero(t).Interface().(named); ok {
		return n.OpenAPIModelName()
	}
	// Types without the method are named after their package: k8s.io/api/core/v1.Pod is
	// io.k8s.api.core.v1.Pod.
	host, rest, _ := strings.Cut(t.PkgPath(), "/")
	parts := strings.Split(host, ".")
	slices.Reverse(parts)
	return strings.Join(parts, ".") + "." + strings.ReplaceAll(rest, "/", ".") + "." + t.Name()
}

// typeNamed returns the Go type of a library definition among the types of the scheme; nil if it is
// not a kind.
func typeNamed(name string) reflect.Type {
	last := name[strings.LastIndex(name, ".")+1:]
	for gvk, t := range api.Scheme.AllKnownTypes() {
		if gvk.Kind == last && gvk.Version != runtime.APIVersionInternal && modelName(t) == name {
			return t
		}
	}
	return nil
}
