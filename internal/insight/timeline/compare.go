package timeline

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// MaxChanges bounds the fields of an Item.
	MaxChanges = 40
	// maxText bounds a value, in bytes.
	maxText = 240
)

// noisy are fields that change with every write, or only repeat what another field says.
var noisy = map[string]bool{
	"apiVersion": true, "kind": true,
	"metadata.managedFields": true, "metadata.resourceVersion": true, "metadata.generation": true, "metadata.selfLink": true,
	"metadata.annotations[kubectl.kubernetes.io/last-applied-configuration]": true,
	"status.observedGeneration": true,
}

// beats are names of fields, anywhere, that tell when a component last looked or wrote.
var beats = map[string]bool{"lastHeartbeatTime": true, "lastProbeTime": true, "lastTransitionTime": true, "lastUpdateTime": true, "observedGeneration": true}

// identities are the fields by which elements of a list are recognized, in order of preference.
var identities = []string{"name", "type", "uid", "containerPort", "port", "ip", "mountPath", "key", "topologyKey", "manager"}

// Compare returns the fields that differ between two documents, without noise, in the order of
// their paths. A nil document does not exist. more counts the fields beyond MaxChanges.
func Compare(before, after map[string]any) (changes []Change, more int) {
	c := comparison{}
	c.objects("", before, after)
	if n := len(c.found); n > MaxChanges {
		return c.found[:MaxChanges], n - MaxChanges
	}
	return c.found, 0
}

type comparison struct{ found []Change }

func (c *comparison) add(path string, from, to any) {
	c.found = append(c.found, Change{Path: path, From: shorten(from), To: shorten(to)})
}

func (c *comparison) values(path string, from, to any) {
	switch from := from.(type) {
	case map[string]any:
		if to, ok := to.(map[string]any); ok {
			c.objects(path, from, to)
			return
		}
	case []any:
		if to, ok := to.([]any); ok {
			c.lists(path, from, to)
			return
		}
	}
	if !equal(from, to) {
		c.add(path, from, to)
	}
}

func (c *comparison) objects(path string, from, to map[string]any) {
	names := maps.Clone(from)
	if names == nil {
		names = map[string]any{}
	}
	maps.Copy(names, to)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		at := join(path, name)
		if noisy[at] || beats[name] {
			continue
		}
		was, had := from[name]
		is, has := to[name]
		switch {
		case had && has:
			c.values(at, was, is)
		case had:
			c.one(at, was, nil)
		default:
			c.one(at, nil, is)
		}
	}
}

// one adds a field that one side lacks. A small object is shown field by field.
func (c *comparison) one(path string, from, to any) {
	was, _ := from.(map[string]any)
	is, _ := to.(map[string]any)
	if n := len(was) + len(is); n > 0 && strings.Count(path, ".") < 2 {
		c.objects(path, was, is)
		return
	}
	if isEmpty(from) && isEmpty(to) {
		return
	}
	before, _ := from.([]any)
	now, _ := to.([]any)
	if identityOf(before, now) != "" {
		c.lists(path, before, now)
		return
	}
	c.add(path, from, to)
}

func isEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

func (c *comparison) lists(path string, from, to []any) {
	identity := identityOf(from, to)
	if identity == "" {
		if len(from) == len(to) {
			for i := range from {
				c.values(fmt.Sprintf("%s[%d]", path, i), from[i], to[i])
			}
		} else {
			c.add(path, from, to)
		}
		return
	}
	is := map[string]any{}
	for _, v := range to {
		is[fmt.Sprint(v.(map[string]any)[identity])] = v
	}
	seen := map[string]bool{}
	for _, v := range from {
		id := fmt.Sprint(v.(map[string]any)[identity])
		seen[id] = true
		at := fmt.Sprintf("%s[%s]", path, id)
		if now, ok := is[id]; ok {
			c.values(at, v, now)
		} else {
			c.add(at, v, nil)
		}
	}
	for _, v := range to {
		if id := fmt.Sprint(v.(map[string]any)[identity]); !seen[id] {
			c.add(fmt.Sprintf("%s[%s]", path, id), nil, v)
		}
	}
}

// identityOf returns the field that all elements of both lists have, each with another value within
// its list; "" if there is none.
func identityOf(lists ...[]any) string {
	if len(slices.Concat(lists...)) == 0 {
		return ""
	}
next:
	for _, field := range identities {
		for _, list := range lists {
			seen := map[string]bool{}
			for _, v := range list {
				object, ok := v.(map[string]any)
				if !ok {
					return ""
				}
				value, ok := object[field]
				if !ok || isComposite(value) || seen[fmt.Sprint(value)] {
					continue next
				}
				seen[fmt.Sprint(value)] = true
			}
		}
		return field
	}
	return ""
}

func isComposite(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}

func equal(a, b any) bool {
	return reflect.DeepEqual(a, b) || isNumber(a) && isNumber(b) && fmt.Sprint(a) == fmt.Sprint(b)
}

func isNumber(v any) bool {
	switch v.(type) {
	case int64, float64, json.Number:
		return true
	}
	return false
}

// join adds a field's name to a path. A name with a dot or slash stands in brackets.
func join(path, name string) string {
	switch {
	case strings.ContainsAny(name, "./[]"):
		return path + "[" + name + "]"
	case path == "":
		return name
	}
	return path + "." + name
}

// shorten bounds a value: long texts are cut, large objects become the beginning of their JSON.
func shorten(v any) any {
	switch v := v.(type) {
	case string:
		return Cut(v)
	case map[string]any, []any:
		doc, err := json.Marshal(withoutBeats(v))
		if err != nil {
			return nil
		}
		if len(doc) <= maxText {
			return withoutBeats(v)
		}
		return Cut(string(doc))
	}
	return v
}

// withoutBeats returns a copy without the fields that are noise.
func withoutBeats(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, value := range v {
			if !beats[name] {
				out[name] = withoutBeats(value)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, value := range v {
			out[i] = withoutBeats(value)
		}
		return out
	}
	return v
}

// Cut bounds a text for an answer.
func Cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	end := maxText
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// Quiet returns a copy of a document without noise.
func Quiet(doc map[string]any) map[string]any {
	if doc == nil {
		return nil
	}
	return quiet("", doc).(map[string]any)
}

func quiet(path string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, value := range v {
			at := join(path, name)
			if noisy[at] && at != "apiVersion" && at != "kind" || beats[name] {
				continue
			}
			if kept := quiet(at, value); at != "metadata.annotations" || !isEmpty(kept) {
				out[name] = kept
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, value := range v {
			out[i] = quiet(path+"[]", value)
		}
		return out
	}
	return v
}
