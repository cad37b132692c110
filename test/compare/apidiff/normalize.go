package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// emptyAsNull writes null where b has an empty list or map and a has null. Answers may show empty
// values differently (docs/reference/differences.md), but requests built from them should not
// differ.
func emptyAsNull(a, b any) {
	switch y := b.(type) {
	case map[string]any:
		x, _ := a.(map[string]any)
		for k, v := range y {
			if was, ok := x[k]; ok && was == nil && isEmpty(v) {
				y[k] = nil
			} else {
				emptyAsNull(was, v)
			}
		}
	case []any:
		if x, _ := a.([]any); len(x) == len(y) {
			for i, v := range y {
				emptyAsNull(x[i], v)
			}
		}
	}
}

func isEmpty(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

// sortManagers sorts the entries of managedFields: they are ordered by their times, and a second
// may end between the two servers.
func sortManagers(v any) {
	list, _ := v.([]any)
	slices.SortStableFunc(list, func(a, b any) int { return strings.Compare(compact(a), compact(b)) })
}

// orderManagers sorts the entries of an object's managedFields without regard to their times. Then
// an edit of the n-th entry means the same entry on both servers.
func orderManagers(obj map[string]any) {
	meta, _ := obj["metadata"].(map[string]any)
	list, _ := meta["managedFields"].([]any)
	timeless := func(v any) string {
		entry, _ := v.(map[string]any)
		entry = maps.Clone(entry)
		delete(entry, "time")
		return compact(entry)
	}
	slices.SortStableFunc(list, func(a, b any) int { return strings.Compare(timeless(a), timeless(b)) })
}

// own replaces the values of the server that text was made for by another server's own: addresses,
// uids, generated names.
func own(text []byte, from, to map[string]any) []byte {
	for _, value := range []*regexp.Regexp{uuid, token, quoted} {
		a, b := value.FindAllString(compact(from), -1), value.FindAllString(compact(to), -1)
		if len(a) != len(b) {
			continue
		}
		for i := range a {
			text = bytes.ReplaceAll(text, []byte(a[i]), []byte(b[i]))
		}
	}
	return text
}

var (
	uuid   = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	moment = regexp.MustCompile(`20[2-9][0-9]-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	token  = regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`)
	// The slash comes from broken values of generateName.
	suffixed = regexp.MustCompile(`(\bgen-|/[abx])[bcdfghjklmnpqrstvwxz2456789]{5}\b`)
	revision = regexp.MustCompile(`(StorageError: |ResourceVersion|resourceVersion|resource version)[^"]{0,40}?\d+`)
	port     = regexp.MustCompile(`\b3[0-2]\d{3}\b`)
	twice    = regexp.MustCompile(`^Duplicate value: 3\d{4}$`)
	quoted   = regexp.MustCompile(`10\.47\.\d+\.\d+`)
	age      = regexp.MustCompile(`^\d+s$`)
	tooOld   = regexp.MustCompile(`too old resource version: \d+ \(\d+\)`)
	jwt      = regexp.MustCompile(`\beyJ[\w-]+\.[\w-]+\.[\w-]+`)
	address  = regexp.MustCompile(`127\.0\.0\.1:\d+`)
)

// normalize removes values that must differ between two servers. It changes v.
func normalize(v any, key string) any {
	switch v := v.(type) {
	case map[string]any:
		if base, _ := v["generateName"].(string); base != "" {
			if name, _ := v["name"].(string); len(name) == len(base)+5 && strings.HasPrefix(name, base) {
				v["name"] = base + "<random>"
			}
		}
		// One of the servers knows the user by a certificate, and names it.
		if v["signerName"] != nil && v["request"] != nil {
			delete(v, "extra")
		}
		sortFinalizers(v)
		dropStoredAnnotation(v)
		maskOwnedNames(v)
		for k, x := range v {
			switch k {
			case "uid", "resourceVersion", "selfLink", "remainingItemCount":
				if s, ok := x.(string); ok && s != "" {
					v[k] = "<" + k + ">"
				}
			case "continue":
				v[k] = "<continue>"
			case "userInfo":
				v[k] = "<user>"
			case "resourceRules", "nonResourceRules": // upstream collects them in random order
				sortManagers(x)
				v[k] = normalize(x, k)
			case "creationTimestamp", "deletionTimestamp", "time":
				if x != nil {
					v[k] = "<time>"
				}
			default:
				v[k] = normalize(x, k)
				if k == "managedFields" {
					sortManagers(v[k])
				}
			}
		}
	case []any:
		for i, x := range v {
			v[i] = normalize(x, key)
		}
	case string:
		if key == "cells" {
			return port.ReplaceAllString(age.ReplaceAllString(text(v), "<age>"), "<port>")
		}
		return text(v)
	case json.Number:
		if key == "nodePort" || key == "healthCheckNodePort" {
			return port.ReplaceAllString(v.String(), "<port>")
		}
	}
	return v
}

// sortFinalizers sorts the finalizers of a namespace that is being deleted: upstream's order is
// random.
func sortFinalizers(v map[string]any) {
	meta, _ := v["metadata"].(map[string]any)
	list, _ := meta["finalizers"].([]any)
	if status, _ := v["status"].(map[string]any); status["phase"] != "Terminating" {
		return
	}
	slices.SortFunc(list, func(a, b any) int { return strings.Compare(compact(a), compact(b)) })
}

// maskOwnedNames masks random names in the keys of managedFields.
func maskOwnedNames(v map[string]any) {
	for _, k := range slices.Collect(maps.Keys(v)) {
		if masked := token.ReplaceAllString(k, "kube-api-access-<random>"); masked != k {
			v[masked] = v[k]
			delete(v, k)
		}
	}
}

// dropStoredAnnotation removes an annotation that upstream adds to a DaemonSet when it converts the
// whole object (docs/reference/differences.md).
func dropStoredAnnotation(v map[string]any) {
	meta, _ := v["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	if v["kind"] != "PartialObjectMetadata" || annotations == nil {
		return
	}
	if delete(annotations, "deprecated.daemonset.template.generation"); len(annotations) == 0 {
		delete(meta, "annotations")
	}
}

func text(s string) string {
	s = uuid.ReplaceAllString(s, "<uid>")
	s = token.ReplaceAllString(s, "kube-api-access-<random>")
	s = suffixed.ReplaceAllString(s, "$1<random>")
	s = twice.ReplaceAllString(s, "Duplicate value: <port>")
	s = tooOld.ReplaceAllString(s, "too old resource version: <revision>")
	s = jwt.ReplaceAllString(s, "<token>")
	s = revision.ReplaceAllString(s, "$1<revision>")
	s = typedErrors(s)
	if !strings.HasPrefix(s, "2024-") {
		s = moment.ReplaceAllString(s, "<time>")
	}
	if a, err := netip.ParseAddr(s); err == nil && netip.MustParsePrefix(serviceRange).Contains(a) {
		return "<ip>"
	}
	return quoted.ReplaceAllString(address.ReplaceAllString(s, "<server>"), "<ip>")
}

// typedErrors sorts the errors of an applied object. The library on both servers visits fields in
// random order, and stops at the first unknown field: the errors before that are random.
func typedErrors(s string) string {
	head, list, ok := strings.Cut(s, ": errors:\n")
	if !ok || !strings.HasPrefix(head, "failed to create typed patch object (") {
		return s
	}
	errs := strings.Split(list, "\n")
	slices.Sort(errs)
	unknown := slices.DeleteFunc(slices.Clone(errs), func(e string) bool { return !strings.HasSuffix(e, ": field not declared in schema") })
	switch len(unknown) {
	case 0:
		return head + ": errors:\n" + strings.Join(errs, "\n")
	case 1:
		return head + ": " + strings.TrimSpace(unknown[0])
	}
	return head + ": errors:\n" + strings.Join(unknown, "\n")
}
