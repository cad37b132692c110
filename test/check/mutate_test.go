package check

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// mutation changes one value of an object.
type mutation struct {
	name string
	// change returns the new value of a field; false if the mutation does not fit.
	change func(r *rand.Rand, value any) (any, bool)
}

// Special results of a change.
type (
	renamed string   // the field gets another name
	removed struct{} // the field goes
)

func fixed(kind string, values ...any) func(*rand.Rand, any) (any, bool) {
	return func(r *rand.Rand, value any) (any, bool) {
		return values[r.IntN(len(values))], kind == "any" || kind == typeName(value)
	}
}

func typeName(value any) string {
	switch value.(type) {
	case string:
		return "text"
	case float64:
		return "number"
	case bool:
		return "boolean"
	case []any:
		return "list"
	case map[string]any:
		return "object"
	}
	return "null"
}

// mutations are all kinds of mutations. Each is as likely as the others.
var mutations = []mutation{
	{"a wrong type", func(r *rand.Rand, value any) (any, bool) {
		values := []any{"text", 7, true, []any{"item"}, map[string]any{"key": "value"}, 1.5}
		return values[r.IntN(len(values))], true
	}},
	{"another text", fixed("text", "Wrong", "", "a b", "UPPER_case", "-dash", "x/y/z", strings.Repeat("long", 80), "1x", "..", "/a/../b", "*")},
	{"another number", fixed("number", -1, 0, 1, 65536, 1<<40, 100_000)},
	{"another truth", fixed("boolean", true, false)},
	{"an empty value", func(_ *rand.Rand, value any) (any, bool) {
		switch value.(type) {
		case []any:
			return []any{}, true
		case map[string]any:
			return map[string]any{}, true
		}
		return "", typeName(value) == "text"
	}},
	{"a null", func(*rand.Rand, any) (any, bool) { return nil, true }},
	{"a missing field", func(*rand.Rand, any) (any, bool) { return removed{}, true }},
	{"a repeated item", func(_ *rand.Rand, value any) (any, bool) {
		list, ok := value.([]any)
		if !ok || len(list) == 0 {
			return nil, false
		}
		return append(slices.Clone(list), list[0]), true
	}},
	{"a misspelt field", func(r *rand.Rand, _ any) (any, bool) {
		return renamed([]string{"x", "s", "_", "Of"}[r.IntN(4)]), true
	}},
}

// kept are fields that name the object and its kind: the request's path comes from them.
var kept = []string{"apiVersion", "kind", "metadata", "metadata.name", "metadata.namespace", "metadata.generateName"}

// mutate changes one field of a copy of the object, and says what it did.
func mutate(r *rand.Rand, object map[string]any) (changed map[string]any, what string) {
	data, err := json.Marshal(object)
	if err != nil {
		panic(err) // it comes from JSON
	}
	if err := json.Unmarshal(data, &changed); err != nil {
		panic(err)
	}
	type spot struct {
		path   string
		parent map[string]any
		field  string
	}
	var spots []spot
	var collect func(value any, path string)
	collect = func(value any, path string) {
		switch v := value.(type) {
		case map[string]any:
			for _, field := range slices.Sorted(maps.Keys(v)) {
				at := strings.TrimPrefix(path+"."+field, ".")
				if !slices.Contains(kept, at) {
					spots = append(spots, spot{at, v, field})
				}
				collect(v[field], at)
			}
		case []any:
			for i, item := range v {
				collect(item, fmt.Sprintf("%s[%d]", path, i))
			}
		}
	}
	collect(changed, "")
	if len(spots) == 0 {
		changed["speck"] = "unknown"
		return changed, "an unknown field"
	}
	for {
		s, m := spots[r.IntN(len(spots))], mutations[r.IntN(len(mutations))]
		value, ok := m.change(r, s.parent[s.field])
		if !ok {
			continue
		}
		switch v := value.(type) {
		case removed:
			delete(s.parent, s.field)
		case renamed:
			s.parent[s.field+string(v)] = s.parent[s.field]
			delete(s.parent, s.field)
		default:
			s.parent[s.field] = value
		}
		return changed, fmt.Sprintf("%s at %s: %v", m.name, s.path, value)
	}
}
