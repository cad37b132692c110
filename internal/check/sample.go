package check

import (
	"maps"
	"regexp/syntax"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// sampleOf makes an object of a custom kind with the required fields and the one at the path. Rules
// in CEL are not looked at, so it may break them.
func (s *SchemaSet) sampleOf(gvk schema.GroupVersionKind, path []string) string {
	of, _ := s.definitions[s.kinds[gvk]].(map[string]any)
	object := map[string]any{
		"apiVersion": gvk.GroupVersion().String(), "kind": gvk.Kind,
		"metadata": map[string]any{"name": "example"},
	}
	properties, _ := of["properties"].(map[string]any)
	required, _ := of["required"].([]any)
	for name, value := range properties {
		inner, _ := value.(map[string]any)
		onPath := len(path) > 0 && path[0] == name
		if name == "apiVersion" || name == "kind" || name == "metadata" || name == "status" && !onPath {
			continue
		}
		if onPath || len(path) == 0 || slices.Contains(required, any(name)) {
			var rest []string
			if onPath {
				rest = path[1:]
			}
			object[name] = s.sample(inner, rest, len(path) == 0 || onPath && len(rest) == 0, 0)
		}
	}
	return encodeYAML(object)
}

// maxSample bounds the nesting of samples.
const maxSample = 8

// sample makes a value of a schema: its default, its example, its first allowed value, or a plain
// value. whole takes optional fields as well.
func (s *SchemaSet) sample(of map[string]any, path []string, whole bool, depth int) any {
	of = s.target(of)
	if depth > maxSample {
		return map[string]any{}
	}
	for _, key := range []string{"example", "default"} {
		if v, ok := of[key]; ok && len(path) == 0 {
			return v
		}
	}
	if values, ok := of["enum"].([]any); ok && len(values) > 0 {
		return values[0]
	}
	kind := of["type"]
	if list, ok := kind.([]any); ok && len(list) > 0 {
		kind = list[0]
	}
	switch kind {
	case "array":
		inner, _ := of["items"].(map[string]any)
		return []any{s.sample(inner, path, whole, depth+1)}
	case "string":
		return sampleText(of)
	case "integer", "number":
		return sampleNumber(of)
	case "boolean":
		return true
	}
	if of["oneOf"] != nil && of["properties"] == nil {
		return 1
	}
	out := map[string]any{}
	properties, _ := of["properties"].(map[string]any)
	required, _ := of["required"].([]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		inner, _ := properties[name].(map[string]any)
		switch onPath := len(path) > 0 && path[0] == name; {
		case onPath:
			out[name] = s.sample(inner, path[1:], len(path) == 1, depth+1)
		case whole || slices.Contains(required, any(name)):
			out[name] = s.sample(inner, nil, whole, depth+1)
		}
	}
	if inner, ok := of["additionalProperties"].(map[string]any); ok && len(properties) == 0 {
		key := "key"
		if len(path) > 0 {
			key, path = path[0], path[1:]
		}
		out[key] = s.sample(inner, path, whole, depth+1)
	}
	return out
}

func sampleNumber(of map[string]any) any {
	n := 1.0
	if low, ok := of["minimum"].(float64); ok && n < low {
		n = low
		if of["exclusiveMinimum"] == true {
			n++
		}
	}
	if high, ok := of["maximum"].(float64); ok && n > high {
		n = high
		if of["exclusiveMaximum"] == true {
			n--
		}
	}
	if step, ok := of["multipleOf"].(float64); ok && step > n {
		n = step
	}
	if n == float64(int64(n)) {
		return int64(n)
	}
	return n
}

// formats are values of the formats that the API server checks.
var formats = map[any]string{
	"date-time": "2026-01-02T15:04:05Z", "date": "2026-01-02", "duration": "30s", "ipv4": "192.0.2.1", "ipv6": "2001:db8::1",
	"cidr": "192.0.2.0/24", "uri": "https://example.com", "email": "jane@example.com", "hostname": "example.com", "byte": "dGV4dA==",
	"uuid": "2d4e8f3a-0d8c-4a55-9c1c-4ad6f4c3ab36",
}

func sampleText(of map[string]any) string {
	if text, ok := formats[of["format"]]; ok {
		return text
	}
	text := "text"
	if pattern, ok := of["pattern"].(string); ok {
		if re, err := syntax.Parse(pattern, syntax.Perl); err == nil {
			text = matching(re.Simplify(), 0)
		}
	}
	if low, ok := of["minLength"].(float64); ok && of["pattern"] == nil {
		text += strings.Repeat("t", max(0, int(min(low, 100))-len(text)))
	}
	if high, ok := of["maxLength"].(float64); ok && high >= 0 && int(high) < len(text) {
		text = text[:int(high)]
	}
	return text
}

// matching returns a short text that matches a pattern.
func matching(re *syntax.Regexp, depth int) string {
	if depth > maxDepth {
		return ""
	}
	switch re.Op {
	case syntax.OpLiteral:
		return string(re.Rune)
	case syntax.OpCharClass:
		for _, wish := range "a1A-" {
			for i := 0; i+1 < len(re.Rune); i += 2 {
				if re.Rune[i] <= wish && wish <= re.Rune[i+1] {
					return string(wish)
				}
			}
		}
		if len(re.Rune) > 0 {
			return string(re.Rune[0])
		}
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return "a"
	case syntax.OpCapture, syntax.OpPlus:
		return matching(re.Sub[0], depth+1)
	case syntax.OpRepeat:
		return strings.Repeat(matching(re.Sub[0], depth+1), min(re.Min, 100))
	case syntax.OpConcat:
		var text strings.Builder
		for _, sub := range re.Sub {
			text.WriteString(matching(sub, depth+1))
		}
		return text.String()
	case syntax.OpAlternate:
		return matching(re.Sub[0], depth+1)
	}
	return ""
}
