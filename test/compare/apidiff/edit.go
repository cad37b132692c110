package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// edit is one change of a JSON document: it sets value at path, or removes the path.
type edit struct {
	path   []any // keys and indexes; an index one past the end appends
	remove bool
	value  any
}

func (e edit) String() string {
	if e.remove {
		return "remove " + pathText(e.path)
	}
	text, _ := json.Marshal(e.value)
	return fmt.Sprintf("%s = %.80s", pathText(e.path), text)
}

func pathText(path []any) string {
	var b strings.Builder
	for _, p := range path {
		fmt.Fprintf(&b, ".%v", p)
	}
	return b.String()
}

func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, x := range v {
			out[k] = clone(x)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = clone(x)
		}
		return out
	}
	return v
}

// apply returns v with the edit; it may change v. ok is false if the path does not exist.
func (e edit) apply(v any) (out any, ok bool) { return e.at(v, e.path) }

func (e edit) at(v any, path []any) (any, bool) {
	if len(path) == 0 {
		return clone(e.value), true
	}
	switch key := path[0].(type) {
	case string:
		m, ok := v.(map[string]any)
		if !ok {
			return v, false
		}
		child, exists := m[key]
		if len(path) == 1 {
			if e.remove {
				delete(m, key)
				return m, exists
			}
			m[key] = clone(e.value)
			return m, true
		}
		if m[key], ok = e.at(child, path[1:]); !ok && !exists {
			delete(m, key)
		}
		return m, ok
	case int:
		list, ok := v.([]any)
		if !ok || key > len(list) || (key == len(list) && (e.remove || len(path) > 1)) {
			return v, false
		}
		if len(path) == 1 {
			switch {
			case e.remove:
				return slices.Delete(list, key, key+1), true
			case key == len(list):
				return append(list, clone(e.value)), true
			}
		}
		list[key], ok = e.at(list[key], path[1:])
		return list, ok
	}
	return v, false
}

// place is a value in a document with its schema, which is nil if unknown.
type place struct {
	path   []any
	value  any
	schema *schema
}

// places lists v and every value below it, in the order of the keys.
func (all *schemas) places(v any, s *schema, path []any, out []place) []place {
	s = all.resolve(s)
	out = append(out, place{slices.Clone(path), v, s})
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			var child *schema
			if s != nil {
				if child = s.Properties[k]; child == nil {
					child = s.additional()
				}
			}
			out = all.places(v[k], child, append(path, k), out)
		}
	case []any:
		var child *schema
		if s != nil {
			child = s.Items
		}
		for i, x := range v {
			out = all.places(x, child, append(path, i), out)
		}
	}
	return out
}

// Values that are wrong, or at a limit, for some field.
var (
	strange = []string{"", " ", "a", "UPPER", "under_score", "-dash", "dash-", "a.b.c", "a..b", "a/b", "a/b/c", "/abs/path", "/a/../b", "../x", "$(A)", "héé", "a b", "1", "0", "-1", "1.5", "100%", "101%", "-5%",
		"10.0.0.1", "010.0.0.1", "127.0.0.1", "0.0.0.0", "::1", "fe80::1", "10.0.0.0/8", "10.0.0.1/8", "2001:db8::/32", "http://a.example", "https://a.example/x", "*.a.example", "a.example.", "kubernetes.io/x", "example.com/x",
		"100Mi", "1e3", "abc123!", "12h", "*", "None", "True", "Always", "Never", "TCP", "2024-01-01T00:00:00Z", "YQ==", "@hourly", "61 * * * *", "TZ=UTC * * * * *", "0-5,7", "5-2", "system:x", "metadata.name",
		strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a", 253), strings.Repeat("a", 254), strings.Repeat("a.", 130), strings.Repeat("a", 1025)}
	numbers = []json.Number{"-1", "0", "1", "2", "7", "100", "101", "256", "65535", "65536", "100000", "2147483647", "2147483648", "-2147483649", "9223372036854775808", "1.5"}
)

func oneOf[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

// editAt returns a random edit of one place.
func (all *schemas) editAt(r *rand.Rand, p place) edit {
	e := edit{path: p.path}
	switch roll := r.IntN(20); {
	case roll == 0 && len(p.path) > 0:
		e.value = nil
		return e
	case roll == 1 && len(p.path) > 0:
		e.value = oneOf(r, []any{"text", json.Number("3"), true, []any{}, map[string]any{}, []any{"a"}, map[string]any{"a": "b"}})
		return e
	case roll <= 4 && len(p.path) > 0:
		e.remove = true
		return e
	}
	switch v := p.value.(type) {
	case string:
		e.value = all.text(r, p.schema)
		if r.IntN(6) == 0 {
			e.value = v + oneOf(r, []string{"x", "-", ".", "_", "/", " ", "9", "X"})
		}
	case json.Number:
		e.value = oneOf(r, numbers)
	case bool:
		e.value = !v
	case nil:
		e.value = map[string]any{}
	case []any:
		return all.editList(r, p, v)
	case map[string]any:
		return all.editMap(r, p, v)
	}
	return e
}

func (all *schemas) text(r *rand.Rand, s *schema) any {
	if s != nil && len(s.Enum) > 0 && r.IntN(4) > 0 {
		return oneOf(r, s.Enum)
	}
	return oneOf(r, strange)
}

func (all *schemas) editList(r *rand.Rand, p place, list []any) edit {
	end := append(slices.Clone(p.path), len(list))
	switch roll := r.IntN(6); {
	case roll == 0:
		return edit{path: p.path, value: []any{}}
	case roll < 3 && len(list) > 0:
		return edit{path: end, value: oneOf(r, list)} // a duplicate
	case p.schema != nil && p.schema.Items != nil:
		return edit{path: end, value: all.value(r, p.schema.Items, 3)}
	}
	return edit{path: p.path, value: []any{}}
}

func (all *schemas) editMap(r *rand.Rand, p place, m map[string]any) edit {
	at := func(key string, v any) edit { return edit{path: append(slices.Clone(p.path), key), value: v} }
	if p.schema != nil {
		if of := p.schema.additional(); of != nil {
			return at(all.text(r, nil).(string), all.value(r, of, 3))
		}
		var missing []string
		for _, k := range slices.Sorted(maps.Keys(p.schema.Properties)) {
			if _, ok := m[k]; !ok && k != "managedFields" {
				missing = append(missing, k)
			}
		}
		if len(missing) > 0 && r.IntN(8) > 0 {
			k := oneOf(r, missing)
			return at(k, all.value(r, p.schema.Properties[k], 4))
		}
	}
	if r.IntN(3) == 0 && len(p.path) > 0 {
		return edit{path: p.path, value: map[string]any{}}
	}
	return at("unknownField", "x")
}

// value returns a random value that mostly fits the schema.
func (all *schemas) value(r *rand.Rand, s *schema, depth int) any {
	s = all.resolve(s)
	if s == nil {
		return oneOf(r, []any{"a", json.Number("1"), "10%", map[string]any{"a": "b"}})
	}
	switch s.Type {
	case "string":
		switch {
		case s.Format == "date-time":
			return "2024-01-01T00:00:00Z"
		case s.Format == "byte":
			return oneOf(r, []any{"YQ==", "", "x!"})
		case len(s.Enum) == 0 && r.IntN(2) == 0:
			return oneOf(r, []any{"a", "b", "a.example", "1", "10.0.0.1", "/a", "example.com/a"})
		}
		return all.text(r, s)
	case "integer", "number":
		return oneOf(r, numbers)
	case "boolean":
		return r.IntN(2) == 0
	case "array":
		list := []any{}
		for range r.IntN(3) {
			if depth > 0 {
				list = append(list, all.value(r, s.Items, depth-1))
			}
		}
		return list
	}
	out := map[string]any{}
	if of := s.additional(); of != nil {
		out[oneOf(r, []string{"a", "b.example/c", "cpu", "memory", "Bad Key", "storage"})] = all.value(r, of, depth-1)
		return out
	}
	for _, k := range slices.Sorted(maps.Keys(s.Properties)) {
		required := slices.Contains(s.Required, k) && r.IntN(10) > 0
		if depth > 0 && k != "managedFields" && (required || r.IntN(len(s.Properties)+1) < 2) {
			out[k] = all.value(r, s.Properties[k], depth-1)
		}
	}
	return out
}
