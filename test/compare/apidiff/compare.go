package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// difference is one difference between two answers. Its shape is counted; the values are examples.
type difference struct{ shape, upstream, knarr string }

// compare returns the differences between two answers. Shapes contain no indexes and no values of
// the request.
func compare(a, b *answer) []difference {
	if a.code != b.code {
		return []difference{{fmt.Sprintf("code %d, ours %d: %s", a.code, b.code, brief(a, b)), a.text, b.text}}
	}
	var out []difference
	if a.kind != b.kind {
		out = append(out, difference{"content type " + a.kind + ", ours " + b.kind, a.kind, b.kind})
	}
	if wa, wb := warnings(a), warnings(b); wa != wb {
		out = append(out, difference{"warnings: " + general(wa) + " | ours: " + general(wb), wa, wb})
	}
	if a.object == nil || b.object == nil {
		if a.text != b.text {
			out = append(out, difference{"text", a.text, b.text})
		}
		return out
	}
	x, y := normalize(clone(a.object), ""), normalize(clone(b.object), "")
	if a.code >= 400 {
		if causes := compareCauses(x, y); len(causes) > 0 {
			return append(out, causes...)
		}
		if m, n := sortCauses(x), sortCauses(y); m != n {
			out = append(out, difference{"the same causes, said more than once by one side", fmt.Sprint(m), fmt.Sprint(n)})
		}
	}
	if dig(x, "kind") == "TokenReview" && dig(dig(dig(x, "status"), "user"), "username") == "system:anonymous" && dig(dig(y, "status"), "authenticated") == nil {
		return append(out, difference{"a blank token authenticates a user, in ours none", compact(x), compact(y)})
	}
	if told, ok := x.([]any); ok && a.watched {
		if ours, ok := y.([]any); ok {
			return append(out, compareEvents(told, ours, a.late)...)
		}
	}
	return append(out, compareValues(x, y, "")...)
}

// warnings returns an answer's warnings. Those about formats are sorted, since upstream visits
// properties in random order.
func warnings(a *answer) string {
	list := slices.Clone(a.warnings)
	if len(list) > 0 && strings.Contains(list[0], "unrecognized format") {
		slices.Sort(list)
	}
	return text(strings.Join(list, "\n"))
}

func brief(a, b *answer) string {
	m := a
	if b.code >= 400 {
		m = b
	}
	if obj, ok := m.object.(map[string]any); ok {
		if message, ok := obj["message"].(string); ok {
			return fmt.Sprintf("%s says %.230s", map[bool]string{true: "upstream", false: "ours"}[m == a], general(text(message)))
		}
	}
	return ""
}

// compareCauses compares the causes of validation errors as sets. Their order is compared with the
// message.
func compareCauses(x, y any) []difference {
	a, b := causes(x), causes(y)
	var out []difference
	for c := range a {
		if len(a) == 1 && strings.Contains(c, "failed to allocate IP: IPAddress.") {
			// Upstream reports nothing else then.
			return []difference{{"an unwritable address, with the reason in ours", fmt.Sprint(a), fmt.Sprint(b)}}
		}
	}
	for _, c := range slices.Sorted(maps.Keys(a)) {
		if _, ok := b[c]; !ok {
			out = append(out, difference{"missing cause: " + c, a[c], ""})
		}
	}
	for _, c := range slices.Sorted(maps.Keys(b)) {
		if _, ok := a[c]; !ok {
			out = append(out, difference{"extra cause: " + c, "", b[c]})
		}
	}
	return out
}

func causes(v any) map[string]string {
	out := map[string]string{}
	details, _ := dig(v, "details").(map[string]any)
	list, _ := dig(details, "causes").([]any)
	for _, c := range list {
		data, _ := json.Marshal(c)
		out[fmt.Sprintf("%s %v %s", general(fmt.Sprint(dig(c, "field"))), dig(c, "reason"), general(maskObjects(fmt.Sprint(dig(c, "message")))))] = string(data)
	}
	return out
}

// sortCauses sorts several causes of a validation error, and removes duplicates: upstream visits
// maps in random order, and validates parts of many kinds twice. The message gets the same list. It
// returns the number of causes with duplicates.
func sortCauses(v any) int {
	details, _ := dig(v, "details").(map[string]any)
	list, _ := dig(details, "causes").([]any)
	for _, c := range list {
		if m, ok := c.(map[string]any); ok {
			m["message"] = maskObjects(fmt.Sprint(m["message"]))
		}
	}
	if len(list) == 0 {
		if m, ok := v.(map[string]any); ok && m["message"] != nil {
			m["message"] = maskObjects(fmt.Sprint(m["message"]))
		}
		return 0
	}
	v.(map[string]any)["message"] = "<causes>"
	sorted := slices.SortedFunc(slices.Values(list), func(a, b any) int { return strings.Compare(compact(a), compact(b)) })
	details["causes"] = slices.CompactFunc(sorted, func(a, b any) bool { return compact(a) == compact(b) })
	return len(list)
}

// maskObjects removes whole objects from a message, since upstream prints internal types with Go's
// names. It also removes lines with the differences of two objects.
func maskObjects(s string) string {
	if before, _, ok := strings.Cut(s, "immutable after creation\n"); ok {
		s = before + "immutable after creation"
	}
	s, _, _ = strings.Cut(s, "\n@@ ")
	for _, word := range []string{"Invalid", "Duplicate", "Unsupported"} {
		for masked := ""; masked != s; { // values contain values
			masked, s = s, maskValue(s, word+" value: ")
		}
	}
	return s
}

func maskValue(s, label string) string {
	for _, pair := range []struct{ open, closing string }{{`"{`, `}"`}, {"{", "}"}, {"[", "]"}} {
		closing := pair.closing
		start := strings.Index(s, label+pair.open)
		if start < 0 {
			continue
		}
		rest := s[start+len(label):]
		if strings.HasSuffix(rest, closing) {
			return s[:start] + label + "{}"
		}
		if end := strings.LastIndex(rest, closing+": "); end > 0 {
			return s[:start] + label + "{}" + rest[end+len(closing):]
		}
	}
	return s
}

func dig(v any, key string) any {
	m, _ := v.(map[string]any)
	return m[key]
}

// compareValues visits two documents and returns each place where they differ.
func compareValues(a, b any, path string) []difference {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok {
			break
		}
		keys := maps.Clone(x)
		maps.Copy(keys, y)
		var out []difference
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			xv, inX := x[k]
			yv, inY := y[k]
			at := path + "." + k
			if strings.HasPrefix(k, "k:") || strings.HasPrefix(k, "v:") {
				at = path + ".k:"
			}
			switch {
			case !inX:
				out = append(out, difference{"extra " + at + " " + short(yv), "", compact(yv)})
			case !inY:
				out = append(out, difference{"missing " + at + " " + short(xv), compact(xv), ""})
			default:
				out = append(out, compareValues(xv, yv, at)...)
			}
		}
		return out
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			break
		}
		var out []difference
		for i := range x {
			out = append(out, compareValues(x[i], y[i], path+"[]")...)
		}
		return out
	}
	if p, q := compact(a), compact(b); p != q {
		return []difference{{path + ": " + short(a) + ", ours " + short(b), p, q}}
	}
	return nil
}

func compact(v any) string {
	data, _ := json.Marshal(v)
	return string(data)
}

// short returns a value in the form for a shape.
func short(v any) string {
	s := compact(v)
	if t, ok := v.(string); ok {
		s = general(t)
	}
	if len(s) > 160 {
		s = s[:160] + "…"
	}
	return s
}

var (
	inQuotes = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	indexed  = regexp.MustCompile(`\[[^\]]*\]`)
	digits   = regexp.MustCompile(`\d+`)
	names    = regexp.MustCompile(`\b(gen|case)-[a-z0-9-]+`)
)

// general removes the parts of a message that are specific to one request.
func general(s string) string {
	s = names.ReplaceAllString(s, "NAME")
	s = inQuotes.ReplaceAllString(s, "Q")
	s = indexed.ReplaceAllString(s, "[]")
	s = digits.ReplaceAllString(s, "0")
	return s
}
