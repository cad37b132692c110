package check

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const definitionPrefix = "#/definitions/"

// reference returns the name of the definition that a schema, or the schema of its items, refers
// to; "" if there is none.
func (s *SchemaSet) reference(of map[string]any) string {
	if ref, ok := of["$ref"].(string); ok {
		return strings.TrimPrefix(ref, definitionPrefix)
	}
	if all, ok := of["allOf"].([]any); ok && len(all) == 1 {
		if only, ok := all[0].(map[string]any); ok {
			return s.reference(only)
		}
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if inner, ok := of[key].(map[string]any); ok {
			return s.reference(inner)
		}
	}
	return ""
}

// target follows the reference of a schema.
func (s *SchemaSet) target(of map[string]any) map[string]any {
	ref, _ := of["$ref"].(string)
	if all, ok := of["allOf"].([]any); ok && len(all) == 1 {
		if only, ok := all[0].(map[string]any); ok {
			ref, _ = only["$ref"].(string)
		}
	}
	if ref != "" {
		if found, ok := s.definitions[strings.TrimPrefix(ref, definitionPrefix)].(map[string]any); ok {
			return found
		}
	}
	return of
}

// item returns the schema of a list's items or of a map's objects, and other schemas as they are.
func (s *SchemaSet) item(of map[string]any) map[string]any {
	for range maxDepth {
		next, ok := of["items"].(map[string]any)
		if !ok && of["properties"] == nil {
			if next, ok = of["additionalProperties"].(map[string]any); ok && s.target(next)["properties"] == nil {
				return of
			}
		}
		if !ok {
			return of
		}
		of = s.target(next)
	}
	return of
}

// typeOf names the type of a value.
func (s *SchemaSet) typeOf(of map[string]any) string {
	target := s.target(of)
	name := s.reference(of)
	if target["items"] == nil && target["additionalProperties"] == nil || target["properties"] != nil {
		switch short := name[strings.LastIndexByte(name, '.')+1:]; short {
		case "Quantity", "Time", "MicroTime", "Duration":
			return strings.ToLower(short)
		}
	}
	switch {
	case target["oneOf"] != nil && target["type"] == nil:
		return "integer or text"
	case target["items"] != nil:
		inner, _ := target["items"].(map[string]any)
		return "list of " + s.typeOf(inner)
	case target["properties"] != nil || target["type"] == "object" && target["additionalProperties"] == nil:
		return "object"
	case target["additionalProperties"] != nil:
		if inner, ok := target["additionalProperties"].(map[string]any); ok {
			return "map of " + s.typeOf(inner)
		}
	}
	types, ok := target["type"].([]any)
	if !ok {
		types = []any{target["type"]}
	}
	for _, t := range types {
		switch t {
		case "string":
			if target["format"] == "byte" {
				return "text in base64"
			}
			return "text"
		case "integer", "number", "boolean", "object":
			return t.(string)
		}
	}
	return "any"
}

// valueText is a line of a description with an allowed value.
var valueText = regexp.MustCompile("^ - `\"(.*?)\"`(?: (.*))?$")

// splitValues cuts the list of allowed values off a description.
func splitValues(description string) (text string, values []Value) {
	text, list, ok := strings.Cut(description, "Possible enum values:")
	if !ok {
		return strings.TrimSpace(description), nil
	}
	for line := range strings.SplitSeq(list, "\n") {
		if m := valueText.FindStringSubmatch(line); m != nil {
			values = append(values, Value{m[1], m[2]})
		}
	}
	return strings.TrimSpace(text), values
}

func allowedBy(of map[string]any) (values []Value) {
	list, _ := of["enum"].([]any)
	for _, v := range list {
		values = append(values, Value{Value: fmt.Sprint(v)})
	}
	return values
}

// limits are the bounds of a schema in words.
var limits = []struct{ key, text string }{
	{"minimum", "at least %s"}, {"maximum", "at most %s"},
	{"minLength", "at least %s characters"}, {"maxLength", "at most %s characters"},
	{"minItems", "at least %s items"}, {"maxItems", "at most %s items"},
	{"minProperties", "at least %s entries"}, {"maxProperties", "at most %s entries"},
	{"multipleOf", "a multiple of %s"}, {"pattern", "matches %s"},
}

func limitsOf(of map[string]any) (list []string) {
	for _, l := range limits {
		switch v := of[l.key].(type) {
		case float64:
			list = append(list, fmt.Sprintf(l.text, strconv.FormatFloat(v, 'f', -1, 64)))
		case string:
			list = append(list, fmt.Sprintf(l.text, v))
		}
	}
	return list
}

// sentence returns the first sentence of a description.
func sentence(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	for at := 0; ; {
		i := strings.Index(text[at:], ". ")
		if i < 0 {
			return text
		}
		at += i
		if word := text[strings.LastIndexByte(text[:at], ' ')+1 : at]; !slices.Contains([]string{"e.g", "i.e", "etc", "vs"}, word) {
			return text[:at+1]
		}
		at++
	}
}
