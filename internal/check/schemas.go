package check

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/api/openapi"
)

// draft is the version of JSON Schema that editors read.
const draft = "http://json-schema.org/draft-07/schema#"

// DefinitionsFile is the file with the types that the schemas of kinds share.
const DefinitionsFile = "_definitions.json"

// SchemaSet has the JSON schemas of all built-in kinds in all served versions, and of custom kinds.
// They are made from the OpenAPI schemas that the API server publishes, with their descriptions.
// Unknown fields are errors, as in the API server's strict validation.
type SchemaSet struct {
	definitions map[string]any
	kinds       map[schema.GroupVersionKind]string // names of definitions
	// names are the kinds by their names on the command line, in lower case.
	names  map[string][]schema.GroupVersionKind
	custom map[schema.GroupVersionKind]*kind
	// fields are the examples by type and field; made on first use.
	fields map[typedField]exampleAt
}

// Schemas makes a SchemaSet. crds are files and folders with definitions of custom kinds.
func Schemas(ctx context.Context, crds []string) (*SchemaSet, error) {
	var objects []any
	wanted := map[schema.GroupVersionKind]bool{}
	for i := range api.Kinds() {
		k := &api.Kinds()[i]
		for _, version := range served(k) {
			gvk := k.Kind.GroupKind().WithVersion(version)
			obj, err := api.Scheme.New(gvk)
			if err != nil {
				return nil, err
			}
			objects = append(objects, obj)
			wanted[gvk] = true
		}
	}
	models, err := openapi.Models(objects...)
	if err != nil {
		return nil, err
	}
	custom, err := definedKinds(ctx, crds)
	if err != nil {
		return nil, err
	}
	s := &SchemaSet{definitions: map[string]any{}, kinds: map[schema.GroupVersionKind]string{}, names: kindNames(), custom: map[schema.GroupVersionKind]*kind{}}
	for _, k := range custom {
		s.custom[k.gvk] = k
		addNames(s.names, k.Kind, k.gvk)
		of, err := openapi.CustomModels(k.custom.OpenAPI())
		if err != nil {
			return nil, err
		}
		maps.Copy(models, of)
		wanted[k.gvk] = true
	}
	for name, model := range models {
		if err := s.add(name, model, wanted); err != nil {
			return nil, err
		}
	}
	for gvk := range wanted {
		if s.kinds[gvk] == "" {
			return nil, fmt.Errorf("%s has no schema", gvk)
		}
	}
	return s, nil
}

// definedKinds returns the kinds of the definitions in the files.
func definedKinds(ctx context.Context, crds []string) ([]*kind, error) {
	if len(crds) == 0 {
		return nil, nil
	}
	files, err := readAll(crds, strings.NewReader(""), true)
	if err != nil {
		return nil, err
	}
	r := &run{ctx: ctx, kinds: newKinds(), report: &Report{}}
	for i := range files {
		if err := r.parse(&files[i], false); err != nil {
			return nil, err
		}
	}
	for _, o := range r.objects {
		if isDefinition(o) {
			r.decode(o)
			r.define(o)
		}
	}
	for i := range r.report.Findings {
		if f := &r.report.Findings[i]; f.Severity == Error {
			return nil, fmt.Errorf("%s:%d: %s", f.File, f.Line, f.Text())
		}
	}
	if len(r.kinds.custom) == 0 {
		return nil, fmt.Errorf("%s: there is no CustomResourceDefinition", strings.Join(crds, ", "))
	}
	return slices.Collect(maps.Values(r.kinds.custom)), nil
}

func (s *SchemaSet) add(name string, model *spec.Schema, wanted map[schema.GroupVersionKind]bool) error {
	for _, gvk := range openapi.ModelKinds(model) {
		if wanted[gvk] {
			s.kinds[gvk] = name
		}
	}
	data, err := json.Marshal(model)
	if err != nil {
		return err
	}
	var plain map[string]any
	if err := json.Unmarshal(data, &plain); err != nil {
		return err
	}
	converted := toJSONSchema(plain)
	if converted["type"] == "string" { // a time: null means that there is none
		converted["type"] = []any{"string", "null"}
	}
	s.definitions[name] = converted
	return nil
}

const componentPrefix = "#/components/schemas/"

// toJSONSchema converts an OpenAPI v3 schema to draft 7.
func toJSONSchema(s map[string]any) map[string]any {
	out := map[string]any{}
	for key, value := range s {
		if strings.HasPrefix(key, "x-kubernetes-") || key == "nullable" {
			continue
		}
		switch v := value.(type) {
		case map[string]any:
			switch key {
			case "properties":
				out[key] = toProperties(v, s["required"])
			case "default", "example":
				if len(v) > 0 {
					out[key] = v
				}
			default:
				out[key] = toJSONSchema(v)
			}
		case []any:
			out[key] = toList(v)
		case string:
			if key == "$ref" {
				v = strings.Replace(v, componentPrefix, "#/definitions/", 1)
			}
			out[key] = v
		default:
			out[key] = value
		}
	}
	if s["x-kubernetes-int-or-string"] == true || s["format"] == "int-or-string" {
		delete(out, "type")
		delete(out, "format")
		out["oneOf"] = []any{map[string]any{"type": "integer"}, map[string]any{"type": "string"}}
	}
	if s["nullable"] == true {
		allowNull(out)
	}
	if out["properties"] != nil && out["additionalProperties"] == nil && s["x-kubernetes-preserve-unknown-fields"] != true {
		out["additionalProperties"] = false
	}
	return out
}

func toList(list []any) []any {
	out := make([]any, len(list))
	for i, item := range list {
		if m, ok := item.(map[string]any); ok {
			item = toJSONSchema(m)
		}
		out[i] = item
	}
	return out
}

// toProperties converts properties. An optional one may be null, which the API server drops.
func toProperties(properties map[string]any, required any) map[string]any {
	needed, _ := required.([]any)
	out := map[string]any{}
	for name, value := range properties {
		of, ok := value.(map[string]any)
		if !ok {
			continue
		}
		p := toJSONSchema(of)
		if !slices.Contains(needed, any(name)) {
			allowNull(p)
		}
		out[name] = p
	}
	return out
}

func allowNull(s map[string]any) {
	if t, ok := s["type"].(string); ok && s["enum"] == nil {
		s["type"] = []any{t, "null"}
	}
}

// Kinds returns the kinds, sorted.
func (s *SchemaSet) Kinds() []schema.GroupVersionKind {
	return slices.SortedFunc(maps.Keys(s.kinds), func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
}

// root returns the schema of a kind's whole object: apiVersion and kind are required.
func (s *SchemaSet) root(gvk schema.GroupVersionKind, refs string) map[string]any {
	of, _ := s.definitions[s.kinds[gvk]].(map[string]any)
	out := maps.Clone(moveRefs(of, refs).(map[string]any))
	properties, _ := out["properties"].(map[string]any)
	properties = maps.Clone(properties)
	if properties == nil {
		properties = map[string]any{}
	}
	for name, value := range map[string]string{"apiVersion": gvk.GroupVersion().String(), "kind": gvk.Kind} {
		property, _ := properties[name].(map[string]any)
		property = maps.Clone(property)
		if property == nil {
			property = map[string]any{}
		}
		property["type"], property["enum"] = "string", []any{value}
		properties[name] = property
	}
	out["properties"] = properties
	required, _ := out["required"].([]any)
	for _, name := range []any{"apiVersion", "kind"} {
		if !slices.Contains(required, name) {
			required = append(slices.Clone(required), name)
		}
	}
	out["required"], out["type"] = required, "object"
	return out
}

// moveRefs puts a file's name before references.
func moveRefs(value any, file string) any {
	switch v := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, item := range v {
			if ref, ok := item.(string); ok && key == "$ref" {
				out[key] = file + ref
				continue
			}
			out[key] = moveRefs(item, file)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = moveRefs(item, file)
		}
		return out
	}
	return value
}

// All returns one schema for all kinds: it selects by apiVersion and kind.
func (s *SchemaSet) All() ([]byte, error) {
	var choices, apiVersions, kinds []any
	definitions := maps.Clone(s.definitions)
	for _, gvk := range s.Kinds() {
		apiVersion := gvk.GroupVersion().String()
		if !slices.Contains(apiVersions, any(apiVersion)) {
			apiVersions = append(apiVersions, apiVersion)
		}
		if !slices.Contains(kinds, any(gvk.Kind)) {
			kinds = append(kinds, gvk.Kind)
		}
		name := fileName(gvk, false)
		definitions[name] = s.root(gvk, "")
		choices = append(choices, map[string]any{
			"if": map[string]any{
				"properties": map[string]any{"apiVersion": map[string]any{"const": apiVersion}, "kind": map[string]any{"const": gvk.Kind}},
				"required":   []any{"apiVersion", "kind"},
			},
			"then": map[string]any{"$ref": "#/definitions/" + name},
		})
	}
	return encode(map[string]any{
		"$schema": draft, "title": "Kubernetes", "type": "object", "required": []any{"apiVersion", "kind"},
		"properties": map[string]any{
			"apiVersion": map[string]any{"type": "string", "enum": apiVersions},
			"kind":       map[string]any{"type": "string", "enum": kinds},
		},
		"allOf": choices, "definitions": definitions,
	})
}

// Files returns the content of a folder by file name: DefinitionsFile, all.json, and one file for
// each kind, named as kubeconform and editors look for it, such as deployment-apps-v1.json.
func (s *SchemaSet) Files() (map[string][]byte, error) {
	all, err := s.All()
	if err != nil {
		return nil, err
	}
	definitions, err := encode(map[string]any{"$schema": draft, "definitions": s.definitions})
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{"all.json": all, DefinitionsFile: definitions}
	for _, gvk := range s.Kinds() {
		name := fileName(gvk, true)
		if files[name] != nil { // two groups with the same first word
			name = fileName(gvk, false)
		}
		root := s.root(gvk, DefinitionsFile)
		root["$schema"] = draft
		if files[name], err = encode(root); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// fileName returns a kind's file name; short takes the first word of the group.
func fileName(gvk schema.GroupVersionKind, short bool) string {
	group := gvk.Group
	if short {
		group, _, _ = strings.Cut(group, ".")
	}
	parts := []string{gvk.Kind, gvk.Version}
	if group != "" {
		parts = []string{gvk.Kind, group, gvk.Version}
	}
	return strings.ToLower(strings.Join(parts, "-")) + ".json"
}

func encode(value any) ([]byte, error) {
	data, err := json.MarshalIndent(value, "", " ")
	return append(data, '\n'), err
}
