package check

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/api"
)

// Explanation is what a kind, or one of its fields, means.
type Explanation struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Path is the field's path without indexes; "" for the kind itself.
	Path        string `json:"path,omitempty"`
	Type        string `json:"type"`
	Required    bool   `json:"required,omitempty"`
	Description string `json:"description,omitempty"`
	// Allowed are the allowed values, if they are limited.
	Allowed []Value `json:"allowed,omitempty"`
	// Default is the value that the API server gives a missing field; nil if it gives none. It can
	// depend on other fields: it is that of the example.
	Default any `json:"default,omitempty"`
	// Limits are bounds of the value in words, such as "at least 1".
	Limits []string `json:"limits,omitempty"`
	Fields []Field  `json:"fields,omitempty"`
	// Example is YAML with the field; ExampleOf is the object that it is a part of.
	Example   string `json:"example,omitempty"`
	ExampleOf string `json:"exampleOf,omitempty"`
}

// Value is an allowed value.
type Value struct {
	Value       string `json:"value"`
	Description string `json:"description,omitempty"`
}

// Field is a field of an object.
type Field struct {
	Name        string `json:"name"`
	Type        string `json:"type"`
	Required    bool   `json:"required,omitempty"`
	Description string `json:"description,omitempty"` // the first sentence
}

// ErrUnknownKind marks a kind that is neither built in nor defined.
var ErrUnknownKind = errors.New("unknown kind")

// unknownKindError is an ErrUnknownKind with its own text.
type unknownKindError string

func (e unknownKindError) Error() string { return string(e) }

// Is makes it an ErrUnknownKind.
func (e unknownKindError) Is(target error) bool { return target == ErrUnknownKind }

// AddKind adds a custom kind by its schema in a cluster. names are its names on the command line.
func (s *SchemaSet) AddKind(gvk schema.GroupVersionKind, of *apiextensionsv1.JSONSchemaProps, names []string) error {
	data, err := json.Marshal(of)
	if err != nil {
		return err
	}
	var plain map[string]any
	if err := json.Unmarshal(data, &plain); err != nil {
		return err
	}
	name := "cluster." + gvk.String()
	s.definitions[name], s.kinds[gvk] = toJSONSchema(plain), name
	for _, n := range names {
		s.names[n] = append([]schema.GroupVersionKind{gvk}, s.names[n]...)
	}
	return nil
}

// kindNames returns the names of built-in kinds on the command line: kind, plural, singular and
// short names. The first kind of a name is the usual one.
func kindNames() map[string][]schema.GroupVersionKind {
	names := map[string][]schema.GroupVersionKind{}
	for i := range api.Kinds() {
		k := &api.Kinds()[i]
		for _, version := range served(k) {
			addNames(names, k, k.Kind.GroupKind().WithVersion(version))
		}
	}
	return names
}

func addNames(names map[string][]schema.GroupVersionKind, k *api.Kind, gvk schema.GroupVersionKind) {
	for _, name := range append([]string{strings.ToLower(gvk.Kind), k.Resource, k.Singular}, k.ShortNames...) {
		if name != "" && !slices.Contains(names[name], gvk) {
			names[name] = append(names[name], gvk)
		}
	}
}

// Kind finds a kind by a name of the command line; apiVersion selects among several, "" takes the
// usual one. The error wraps ErrUnknownKind if there is no such kind.
func (s *SchemaSet) Kind(name, apiVersion string) (schema.GroupVersionKind, error) {
	list := s.names[strings.ToLower(name)]
	if len(list) == 0 {
		text := fmt.Sprintf("there is no kind %q", name)
		if near := nearest(strings.ToLower(name), slices.Sorted(maps.Keys(s.names))); len(near) > 0 {
			text += fmt.Sprintf("; did you mean %s?", strings.Join(near, " or "))
		}
		return schema.GroupVersionKind{}, unknownKindError(text)
	}
	if apiVersion == "" {
		return list[0], nil
	}
	var have []string
	for _, gvk := range list {
		if gvk.GroupVersion().String() == apiVersion {
			return gvk, nil
		}
		have = append(have, gvk.GroupVersion().String())
	}
	return schema.GroupVersionKind{}, fmt.Errorf("%w: %s is not in %q; it is in %s", ErrUnknownKind, list[0].Kind, apiVersion, strings.Join(have, ", "))
}

// Explain explains a kind, or the field at a path such as spec.containers.image. Indexes of lists
// may be left out.
func (s *SchemaSet) Explain(gvk schema.GroupVersionKind, path string) (*Explanation, error) {
	at, err := s.at(gvk, path)
	if err != nil {
		return nil, err
	}
	e := &Explanation{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Path: strings.Join(at.path, "."), Required: at.required}
	e.Type = s.typeOf(at.schema)
	description, _ := at.schema["description"].(string)
	if description == "" {
		description, _ = s.target(at.schema)["description"].(string)
	}
	e.Description, e.Allowed = splitValues(description)
	inner := s.item(s.target(at.schema))
	if len(e.Allowed) == 0 {
		e.Allowed = allowedBy(s.target(at.schema))
	}
	if len(e.Allowed) == 0 {
		e.Allowed = allowedBy(inner)
	}
	if e.Default = at.schema["default"]; e.Default == "" {
		e.Default = nil // what a decoder leaves in a missing text
	}
	e.Limits = limitsOf(s.target(at.schema))
	properties, _ := inner["properties"].(map[string]any)
	required, _ := inner["required"].([]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		of, _ := properties[name].(map[string]any)
		text, _ := of["description"].(string)
		text, _ = splitValues(text)
		e.Fields = append(e.Fields, Field{name, s.typeOf(of), slices.Contains(required, any(name)), sentence(text)})
	}
	s.addExample(e, gvk, at)
	return e, nil
}

// located is a field's schema with its way through the schemas.
type located struct {
	path     []string
	schema   map[string]any
	owner    string // the definition that has the field, "" for an anonymous object
	field    string
	required bool
}

// at follows a path.
func (s *SchemaSet) at(gvk schema.GroupVersionKind, path string) (located, error) {
	name, ok := s.kinds[gvk]
	if !ok {
		return located{}, fmt.Errorf("%w: %s", ErrUnknownKind, gvk)
	}
	of, _ := s.definitions[name].(map[string]any)
	at := located{schema: of}
	owner := name
	for _, field := range fieldsOf(path) {
		inner := s.item(s.target(at.schema))
		if ref := s.reference(at.schema); ref != "" {
			owner = ref
		} else if len(at.path) > 0 {
			owner = ""
		}
		properties, _ := inner["properties"].(map[string]any)
		next, ok := properties[field].(map[string]any)
		if !ok {
			if next, ok = inner["additionalProperties"].(map[string]any); !ok || properties != nil {
				return located{}, s.noField(gvk, strings.Join(at.path, "."), field, properties)
			}
			owner = ""
		}
		required, _ := inner["required"].([]any)
		at = located{append(slices.Clone(at.path), field), next, owner, field, slices.Contains(required, any(field))}
	}
	return at, nil
}

// noField is the error of a field that does not exist.
func (s *SchemaSet) noField(gvk schema.GroupVersionKind, parent, field string, properties map[string]any) error {
	where := gvk.Kind
	if parent != "" {
		where += "." + parent
	}
	allowed := slices.Sorted(maps.Keys(properties))
	text := fmt.Sprintf("%s has no field %q", where, field)
	switch near := nearest(field, allowed); {
	case len(near) > 0:
		text += fmt.Sprintf("; did you mean %s?", strings.Join(near, " or "))
	case len(allowed) == 0:
		text += "; it has no fields"
	default:
		text += "; allowed are " + strings.Join(allowed, ", ")
	}
	return errors.New(text)
}

// fieldsOf splits a path at its dots, and leaves indexes out.
func fieldsOf(path string) (fields []string) {
	for part := range strings.SplitSeq(path, ".") {
		part, _, _ = strings.Cut(part, "[")
		if part != "" {
			fields = append(fields, part)
		}
	}
	return fields
}
