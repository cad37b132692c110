package check

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// shape is what a decoder expects at one place: a Go type, or a part of a definition's schema.
type shape struct {
	goType reflect.Type
	schema *apiextensionsv1.JSONSchemaProps
}

// fields returns the names of the fields that are allowed; nil if any are.
func (s shape) fields() []string {
	switch {
	case s.schema != nil:
		return slices.Sorted(maps.Keys(s.schema.Properties))
	case s.goType != nil && s.goType.Kind() == reflect.Struct:
		var names []string
		eachField(s.goType, func(name string, _ reflect.Type) { names = append(names, name) })
		slices.Sort(names)
		return names
	}
	return nil
}

// field returns the shape of a field, or of a map's values.
func (s shape) field(name string) (shape, bool) {
	switch {
	case s.schema != nil:
		if p, ok := s.schema.Properties[name]; ok {
			return shape{schema: &p}, true
		}
		if a := s.schema.AdditionalProperties; a != nil && a.Schema != nil {
			return shape{schema: a.Schema}, true
		}
	case s.goType == nil:
	case s.goType.Kind() == reflect.Map:
		return shape{goType: plainType(s.goType.Elem())}, true
	case s.goType.Kind() == reflect.Struct:
		var found reflect.Type
		eachField(s.goType, func(have string, t reflect.Type) {
			if have == name {
				found = plainType(t)
			}
		})
		return shape{goType: found}, found != nil
	}
	return shape{}, false
}

// item returns the shape of a list's items.
func (s shape) item() (shape, bool) {
	switch {
	case s.schema != nil:
		if s.schema.Items != nil && s.schema.Items.Schema != nil {
			return shape{schema: s.schema.Items.Schema}, true
		}
	case s.goType != nil && s.goType.Kind() == reflect.Slice:
		return shape{goType: plainType(s.goType.Elem())}, true
	}
	return shape{}, false
}

// at follows a path.
func (s shape) at(path string) (shape, bool) {
	for path != "" {
		var ok bool
		if path[0] == '[' {
			_, rest, closed := strings.Cut(path, "]")
			if s, ok = s.item(); !ok || !closed {
				return shape{}, false
			}
			path = strings.TrimPrefix(rest, ".")
			continue
		}
		name := path
		if i := strings.IndexAny(path, ".["); i >= 0 {
			name = path[:i]
		}
		if s, ok = s.field(name); !ok {
			return shape{}, false
		}
		path = strings.TrimPrefix(path[len(name):], ".")
	}
	return s, true
}

// maxElsewhere is how many levels below a place a field's name is searched.
const maxElsewhere = 3

// elsewhere returns the paths below a place where a field of exactly this name is allowed; the
// shallowest ones only. Lists are searched as well.
func (s shape) elsewhere(name string) (paths []string) {
	type at struct {
		shape
		path string
	}
	level := []at{{s, ""}}
	for range maxElsewhere {
		var next []at
		for _, from := range level {
			for _, field := range from.fields() {
				to, ok := from.field(field)
				if !ok || field == "status" || field == "metadata" {
					continue
				}
				path := join(from.path, field)
				if item, ok := to.item(); ok {
					to, path = item, path+"[]"
				}
				if _, ok := to.field(name); ok && slices.Contains(to.fields(), name) {
					paths = append(paths, join(path, name))
				}
				next = append(next, at{to, path})
			}
		}
		if len(paths) > 0 {
			return paths
		}
		level = next
	}
	return nil
}

func plainType(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// eachField calls fn for each field of a struct by its JSON name, those of embedded structs
// included.
func eachField(t reflect.Type, fn func(name string, t reflect.Type)) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case name == "" && (f.Anonymous || options == "inline"):
			if embedded := plainType(f.Type); embedded.Kind() == reflect.Struct {
				eachField(embedded, fn)
			}
		case name != "":
			fn(name, f.Type)
		}
	}
}

var (
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// mismatch is a value of the wrong type.
type mismatch struct{ path, found, want string }

// mismatches returns the values that a Go type cannot hold. It explains an error of the decoder,
// which names one of them without its place.
func mismatches(value any, t reflect.Type, path string) (out []mismatch) {
	t = plainType(t)
	wrong := func(want string) []mismatch { return []mismatch{{path, described(value), want}} }
	if value == nil {
		return nil
	}
	if p := reflect.PointerTo(t); p.Implements(jsonUnmarshaler) || p.Implements(textUnmarshaler) {
		raw, err := json.Marshal(value)
		if err == nil {
			err = json.Unmarshal(raw, reflect.New(t).Interface())
		}
		if err != nil {
			return wrong(wantedBy(t))
		}
		return nil
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		m, ok := value.(map[string]any)
		if !ok {
			return wrong("an object")
		}
		for _, name := range slices.Sorted(maps.Keys(m)) {
			if field, ok := (shape{goType: t}).field(name); ok {
				out = append(out, mismatches(m[name], field.goType, join(path, name))...)
			}
		}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			if _, ok := value.(string); !ok {
				return wrong("a text in base64")
			}
			return nil
		}
		list, ok := value.([]any)
		if !ok {
			return wrong("a list")
		}
		for i, item := range list {
			out = append(out, mismatches(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i))...)
		}
	case reflect.String:
		if _, ok := value.(string); !ok {
			return wrong("a text (in quotes)")
		}
	case reflect.Bool:
		if _, ok := value.(bool); !ok {
			return wrong("true or false")
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n, ok := value.(int64)
		if !ok || reflect.New(t).Elem().CanInt() && reflect.New(t).Elem().OverflowInt(n) {
			return wrong("a whole number (without quotes)")
		}
	case reflect.Float32, reflect.Float64:
		if _, ok := value.(string); ok {
			return wrong("a number (without quotes)")
		}
	}
	return out
}

// wantedBy describes the values of a type with a decoder of its own.
func wantedBy(t reflect.Type) string {
	switch t.Name() {
	case "Quantity":
		return `a quantity such as "500m" or 128Mi`
	case "IntOrString":
		return "a whole number or a text"
	case "Time", "MicroTime":
		return "a time such as 2026-01-02T15:04:05Z"
	case "Duration":
		return "a duration such as 30s"
	}
	return "a " + t.Name()
}

// described shows a value in an error.
func described(value any) string {
	const longest = 40
	switch v := value.(type) {
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case string:
		if len(v) > longest {
			v = strings.ToValidUTF8(v[:longest], "") + "..."
		}
		return fmt.Sprintf("the text %q", v)
	case bool:
		return fmt.Sprintf("the boolean %v", v)
	}
	return fmt.Sprintf("the number %v", value)
}
