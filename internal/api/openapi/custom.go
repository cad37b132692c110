package openapi

import (
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	builderutil "k8s.io/kube-openapi/pkg/builder3/util"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/version"
)

// CustomKind is one version of a kind without a Go type. Its schemas need not describe metadata,
// apiVersion and kind, which are the same for all kinds.
type CustomKind struct {
	Kind     *api.Kind // in this version
	ListKind string
	// V2 and V3 are the schemas for the two documents; nil publishes an object with any content.
	// The receiver owns and changes them.
	V2, V3 *spec.Schema
	// SelectableFields are the paths that field selectors may name in addition to those of
	// metadata.
	SelectableFields []string
}

// Title and version of the documents of custom kinds, as upstream's.
const (
	customTitle   = "Kubernetes CRD Swagger"
	customVersion = "v0.1.0"
)

// optionGroups returns the group versions whose DeleteOptions the documents of custom kinds name.
// As upstream, they are all but the extension groups.
func optionGroups() []schema.GroupVersion {
	var list []schema.GroupVersion
	for gvk := range api.Scheme.AllKnownTypes() {
		if gvk.Kind == "DeleteOptions" {
			list = append(list, gvk.GroupVersion())
		}
	}
	return slices.DeleteFunc(list, func(gv schema.GroupVersion) bool {
		return gv.Group == "apiextensions.k8s.io" || gv.Group == "apiregistration.k8s.io" || gv.Group == metricsGroup
	})
}

// definition names a schema that the collection already contains. Routes of custom kinds use it in
// place of a Go type.
type definition string

// CustomDocument returns the version 3 document of a group version of custom kinds.
func CustomDocument(gv schema.GroupVersion, kinds []CustomKind) (*spec3.OpenAPI, error) {
	s, err := newSchemas(v3, optionGroups()...)
	if err != nil {
		return nil, err
	}
	doc := document3(s, s.customRoutes(gv, kinds), customVersion)
	doc.Info.Title = customTitle
	doc.Components.SecuritySchemes = nil
	return doc, nil
}

// ExtendCustom adds the paths and definitions of a group version of custom kinds to the version 2
// document.
func ExtendCustom(doc *spec.Swagger, gv schema.GroupVersion, kinds []CustomKind) error {
	s, err := newSchemas(v2, optionGroups()...)
	if err != nil {
		return err
	}
	extra := document2(s, s.customRoutes(gv, kinds), version.Kubernetes)
	for name, value := range extra.Definitions {
		if _, ok := doc.Definitions[name]; !ok {
			doc.Definitions[name] = value
		}
	}
	maps.Copy(doc.Paths.Paths, extra.Paths.Paths)
	return nil
}

// CustomModels returns the definitions that server-side apply needs for one custom kind.
func CustomModels(k CustomKind) (map[string]*spec.Schema, error) {
	meta, err := metaModels()
	if err != nil {
		return nil, err
	}
	models := maps.Clone(meta)
	gvk := k.Kind.Kind
	value := customSchema(v3, &k, k.V3)
	models[customName(gvk)] = builderutil.WrapRefs(&value)
	return models, nil
}

// metaModels returns ObjectMeta and the definitions it refers to; made once, shared.
var metaModels = sync.OnceValues(func() (map[string]*spec.Schema, error) { return Models(metav1.ObjectMeta{}) })

// Models returns the definitions of API types and of every type they refer to.
func Models(objects ...any) (map[string]*spec.Schema, error) {
	s, err := newSchemas(v3)
	if err != nil {
		return nil, err
	}
	for _, obj := range objects {
		s.addType(obj)
	}
	models := map[string]*spec.Schema{}
	for name, value := range s.done {
		models[name] = &value
	}
	return models, nil
}

// ModelKinds returns the kinds of a definition of Models or CustomModels.
func ModelKinds(model *spec.Schema) (kinds []schema.GroupVersionKind) {
	list, _ := model.Extensions[extensionGVK].([]any)
	for _, item := range list {
		of, _ := item.(map[string]any)
		group, _ := of["group"].(string)
		version, _ := of["version"].(string)
		kind, _ := of["kind"].(string)
		kinds = append(kinds, schema.GroupVersionKind{Group: group, Version: version, Kind: kind})
	}
	return kinds
}

// customName returns a custom kind's definition name: the reversed segments of the group, version,
// kind.
func customName(gvk schema.GroupVersionKind) string {
	return util.ToRESTFriendlyName(gvk.Group + "/" + gvk.Version + "." + gvk.Kind)
}

var (
	metaName     = modelName(reflect.TypeFor[metav1.ObjectMeta]())
	listMetaName = modelName(reflect.TypeFor[metav1.ListMeta]())
	typeDocs     = metav1.TypeMeta{}.SwaggerDoc()
	partialDocs  = metav1.PartialObjectMetadata{}.SwaggerDoc()
	partialLists = metav1.PartialObjectMetadataList{}.SwaggerDoc()
)

func refTo(d dialect, name, description string) spec.Schema {
	prefix := v2DefinitionPrefix
	if d == v3 {
		prefix = v3DefinitionPrefix
	}
	return *spec.RefSchema(prefix + name).WithDescription(description)
}

// customSchema completes a kind's schema: it adds metadata, apiVersion and kind to the root and to
// embedded objects.
func customSchema(d dialect, k *CustomKind, from *spec.Schema) spec.Schema {
	gvk := k.Kind.Kind
	out := spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}}
	if from != nil {
		out = *from
		addTypeMeta(&out)
		out.SetProperty("metadata", refTo(d, metaName, partialDocs["metadata"]))
		completeEmbedded(d, &out)
	}
	out.AddExtension(extensionGVK, []any{map[string]any{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind}})
	k.addSelectable(&out)
	return out
}

func (k *CustomKind) addSelectable(s *spec.Schema) {
	if len(k.SelectableFields) == 0 {
		return
	}
	var list []any
	for _, path := range k.SelectableFields {
		list = append(list, map[string]any{"fieldPath": path})
	}
	s.AddExtension("x-kubernetes-selectable-fields", list)
}

func addTypeMeta(s *spec.Schema) {
	s.SetProperty("apiVersion", *spec.StringProperty().WithDescription(typeDocs["apiVersion"]))
	s.SetProperty("kind", *spec.StringProperty().WithDescription(typeDocs["kind"]))
}

// completeEmbeddedRoot completes an embedded object's schema as customSchema completes the root's.
func completeEmbeddedRoot(d dialect, s *spec.Schema) {
	embedded, _ := s.Extensions.GetBool("x-kubernetes-embedded-resource")
	preserves, _ := s.Extensions.GetBool("x-kubernetes-preserve-unknown-fields")
	if !embedded || preserves && d == v2 {
		return
	}
	const conventions = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
	s.SetProperty("apiVersion", *spec.StringProperty().WithDescription(
		"apiVersion defines the versioned schema of this representation of an object. More info: " + conventions + "#resources"))
	s.SetProperty("kind", *spec.StringProperty().WithDescription(
		"kind is a string value representing the type of this object. In CamelCase. More info: " + conventions + "#types-kinds"))
	s.SetProperty("metadata", refTo(d, metaName, partialDocs["metadata"]))
	for _, name := range []string{"kind", "apiVersion"} {
		if !slices.Contains(s.Required, name) {
			s.Required = append(s.Required, name)
		}
	}
}

// completeEmbedded completes every schema below s that has x-kubernetes-embedded-resource.
func completeEmbedded(d dialect, s *spec.Schema) {
	for name, p := range s.Properties {
		completeEmbedded(d, &p)
		completeEmbeddedRoot(d, &p)
		s.Properties[name] = p
	}
	if s.Items != nil && s.Items.Schema != nil {
		completeEmbedded(d, s.Items.Schema)
		completeEmbeddedRoot(d, s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		completeEmbedded(d, s.AdditionalProperties.Schema)
		completeEmbeddedRoot(d, s.AdditionalProperties.Schema)
	}
}

func (s *schemas) customList(k *CustomKind, list schema.GroupVersionKind) spec.Schema {
	gvk := k.Kind.Kind
	s.addType(metav1.ListMeta{})
	item := refTo(s.dialect, customName(gvk), "")
	items := spec.ArrayProperty(&item).WithDescription("List of " + k.Kind.Resource + ". More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md")
	out := spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}, Required: []string{"items"},
		Description: list.Kind + " is a list of " + gvk.Kind}}
	addTypeMeta(&out)
	out.SetProperty("items", *items)
	out.SetProperty("metadata", refTo(s.dialect, listMetaName, partialLists["metadata"]))
	out.AddExtension(extensionGVK, []any{map[string]any{"group": list.Group, "version": list.Version, "kind": list.Kind}})
	k.addSelectable(&out)
	return out
}

// customRoutes adds the definitions of the kinds and returns their paths.
func (s *schemas) customRoutes(gv schema.GroupVersion, kinds []CustomKind) []route {
	g := newGroupNames(gv)
	g.types = map[schema.GroupVersionKind]any{}
	s.addType(metav1.ObjectMeta{})
	var routes []route
	for i := range kinds {
		k := &kinds[i]
		gvk, list := k.Kind.Kind, gv.WithKind(k.ListKind)
		from := k.V3
		if s.dialect == v2 {
			from = k.V2
		}
		s.put(customName(gvk), customSchema(s.dialect, k, from))
		s.put(customName(list), s.customList(k, list))
		g.types[gvk], g.types[gv.WithKind(gvk.Kind+"List")] = definition(customName(gvk)), definition(customName(list))
		for _, r := range g.kindRoutes(k.Kind) {
			if strings.Contains(r.path, "/watch/") {
				continue // as upstream, not published for custom kinds
			}
			r.tag = g.tag
			r.params = slices.Clone(r.params)
			for j := range r.params {
				if r.params[j].name == "name" {
					r.params[j].description = "name of the " + gvk.Kind
				}
			}
			for j := range r.ops {
				customOperation(&r.ops[j], gvk)
			}
			routes = append(routes, r)
		}
	}
	return liftParameters(routes)
}

var (
	customTypes   = []string{"application/json", "application/yaml"}
	customPatches = []string{"application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"}
)

// atRevision is the resourceVersion parameter of reads.
var atRevision = listParams[slices.IndexFunc(listParams, func(p parameter) bool { return p.name == "resourceVersion" })]

// customOperation adapts an operation to custom resources.
func customOperation(o *operation, gvk schema.GroupVersionKind) {
	o.gvk = gvk
	switch o.action {
	case "list":
		o.description = "list objects of kind " + gvk.Kind
	case "get":
		o.params = append(slices.Clone(o.params), atRevision)
	case "deletecollection":
		o.body, o.params = nil, append(slices.Clone(listParams), pretty)
	}
	o.produces = customTypes
	if o.method == http.MethodPatch {
		o.consumes = customPatches
	} else {
		o.consumes = customTypes
	}
	o.codes = slices.DeleteFunc(slices.Clone(o.codes), func(code int) bool {
		return o.method == http.MethodPatch && code == http.StatusCreated
	})
}

// put adds a complete definition in the collection's dialect.
func (s *schemas) put(name string, value spec.Schema) {
	if s.dialect == v3 {
		value = *builderutil.WrapRefs(&value)
	} else {
		value = withoutDefaults(value)
	}
	s.done[name] = value
}
