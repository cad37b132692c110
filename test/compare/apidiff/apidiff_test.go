package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestAnEditChangesOnePlace(t *testing.T) {
	cases := []struct {
		name, in string
		edit     edit
		want     string
		ok       bool
	}{
		{"a value", `{"a":{"b":1}}`, edit{path: []any{"a", "b"}, value: "x"}, `{"a":{"b":"x"}}`, true},
		{"a new key", `{"a":{}}`, edit{path: []any{"a", "b"}, value: "x"}, `{"a":{"b":"x"}}`, true},
		{"an element", `{"a":[1,2]}`, edit{path: []any{"a", 1}, value: json.Number("3")}, `{"a":[1,3]}`, true},
		{"one element more", `{"a":[1]}`, edit{path: []any{"a", 1}, value: json.Number("3")}, `{"a":[1,3]}`, true},
		{"one element less", `{"a":[1,2]}`, edit{path: []any{"a", 0}, remove: true}, `{"a":[2]}`, true},
		{"a place that is not there", `{"a":{}}`, edit{path: []any{"b", "c"}, value: "x"}, `{"a":{}}`, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			out, ok := c.edit.apply(decode([]byte(c.in)))
			if got := compact(out); got != c.want || ok != c.ok {
				t.Errorf("%s, %v; want %s, %v", got, ok, c.want, c.ok)
			}
		})
	}
}

func TestExpectedDifferencesAreIgnored(t *testing.T) {
	body := func(uid, time, ip string) *answer {
		return &answer{code: 200, object: decode([]byte(`{"metadata":{"uid":"` + uid + `","creationTimestamp":"` + time + `"},"spec":{"clusterIP":"` + ip + `"}}`))}
	}
	if d := compare(body("a", "2025-01-01T00:00:00Z", "10.47.0.9"), body("b", "2025-02-01T00:00:00Z", "10.47.3.1")); len(d) != 0 {
		t.Errorf("%v", d)
	}
	if d := compare(body("a", "", "10.47.0.9"), body("a", "", "None")); len(d) != 1 || d[0].shape != `.spec.clusterIP: <ip>, ours None` {
		t.Errorf("%+v", d)
	}
}

func TestNestedValuesInErrorsAreMasked(t *testing.T) {
	for _, text := range []string{
		`Invalid value: {"a":{"b":"c"}}: spec.x: Invalid value: {"d":"e"}: must be a string`, `Invalid value: "{\"a\":1}": spec.x: Invalid value: {"d":"e"}: must be a string`, `Invalid value: {}: must be a string`,
	} {
		if got := maskObjects(text); got != "Invalid value: {}: must be a string" {
			t.Errorf("%s: %s", text, got)
		}
	}
}

func TestABlankTokenIsOneDifference(t *testing.T) {
	review := func(status string) *answer {
		return &answer{code: 201, object: decode([]byte(`{"kind":"TokenReview","status":` + status + `}`))}
	}
	refused := review(`{"error":"invalid bearer token","user":{}}`)
	if d := compare(review(`{"authenticated":true,"user":{"username":"system:anonymous"}}`), refused); len(d) != 1 || d[0].shape != "a blank token authenticates a user, in ours none" {
		t.Errorf("%v", d)
	}
	if d := compare(review(`{"authenticated":true,"user":{"username":"somebody"}}`), refused); len(d) != 3 {
		t.Errorf("%v", d)
	}
}

func TestGeneratedNamesAreNoDifference(t *testing.T) {
	body := func(name string) *answer {
		return &answer{code: 201, object: decode([]byte(`{"metadata":{"generateName":"a","name":"` + name + `"}}`))}
	}
	if d := compare(body("a267dq"), body("apwkzf")); len(d) != 0 {
		t.Errorf("%v", d)
	}
	if d := compare(body("a267dq"), body("b")); len(d) != 1 {
		t.Errorf("%v", d)
	}
}

func TestManagersAreSortedWithoutTheirTimes(t *testing.T) {
	object := func(entries string) map[string]any {
		obj := decode([]byte(`{"metadata":{"managedFields":[` + entries + `]}}`)).(map[string]any)
		orderManagers(obj)
		return obj
	}
	const one, two = `{"manager":"one","time":"2026-01-01T00:00:01Z"}`, `{"manager":"two","time":"2026-01-01T00:00:00Z"}`
	if a, b := compact(object(one+","+two)), compact(object(two+","+one)); a != b {
		t.Errorf("%s and %s", a, b)
	}
	orderManagers(map[string]any{})
	orderManagers(map[string]any{"metadata": map[string]any{"managedFields": []any{1, nil}}})
}

func TestErrorsOfAnApplyAreSorted(t *testing.T) {
	const head = "failed to create typed patch object (a/b; v1, Kind=ConfigMap): "
	for message, want := range map[string]string{
		head + "errors:\n  .b: expected map, got &{[1]}\n  .a: expected map, got &{[1]}":           head + "errors:\n  .a: expected map, got &{[1]}\n  .b: expected map, got &{[1]}",
		head + "errors:\n  .b: expected map, got &{[1]}\n  .unknown: field not declared in schema": head + ".unknown: field not declared in schema",
		"errors:\n  b\n  a": "errors:\n  b\n  a",
	} {
		if got := typedErrors(message); got != want {
			t.Errorf("%q: got %q, want %q", message, got, want)
		}
	}
}

func TestExplainedDifferencesAreAccepted(t *testing.T) {
	refused := func(message string) *answer {
		return &answer{code: 422, object: map[string]any{"message": message}}
	}
	for message, want := range map[string]bool{
		`ResourceSlice.resource.k8s.io "gen-bcdfg" is invalid: spec.devices[0].capacity[mem].requestPolicy.validRange.step: Invalid value: "0": must not be zero`: true,
		`ResourceSlice.resource.k8s.io "gen-bcdfg" is invalid: spec.driver: Required value`:                                                                       false,
	} {
		r := newReport()
		r.add("create ResourceSlice v1beta1", compare(&answer{}, refused(message)), func() string { return "" })
		for _, s := range r.sorted() {
			if s.stands != want {
				t.Errorf("%s: explained is %v, want %v", s.name, s.stands, want)
			}
		}
	}
}

func TestEventsOfWatches(t *testing.T) {
	event := func(kind, name string) string {
		return `{"type":"` + kind + `","object":{"metadata":{"name":"` + name + `"}}}`
	}
	added, modified := event("ADDED", "a"), event("MODIFIED", "a")
	const (
		over = `{"type":"ERROR","object":{"kind":"Status","reason":"InternalError","message":"context deadline exceeded","code":500}}`
		gone = `{"type":"ERROR","object":{"kind":"Status","reason":"Expired","code":410}}`
	)
	cases := []struct {
		name           string
		upstream, ours string
		late           bool
		want           string
	}{
		{"the same", added + modified, added + modified, false, ""},
		{"a missing event", added + modified, added, false, "events ADDED MODIFIED, ours ADDED"},
		{"other events", added, gone, false, "events ADDED, ours ERROR 410"},
		{"none at all", "", added, false, "events none, ours ADDED"},
		{"other objects", added, event("ADDED", "b"), false, "[].object.metadata.name: a, ours b"},
		{"upstream's time was over at once", over, added, false, ""},
		{"upstream's time was over in between", added + over, added + modified, false, ""},
		{"events before upstream's timeout count", added + over, event("ADDED", "b"), false, "[].object.metadata.name: a, ours b"},
		{"events before upstream's timeout are missing in ours", added + over, "", false, "events ADDED, ours none"},
		{"the time was over before", "", added, true, ""},
		{"different events although the time was over before", added, modified, true, "events ADDED, ours MODIFIED"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			watch := func(told string) *answer {
				list, _ := documentsIn([]byte(told)).([]any)
				return &answer{code: 200, object: list, watched: true, late: c.late}
			}
			var got []string
			for _, d := range compare(watch(c.upstream), watch(c.ours)) {
				got = append(got, d.shape)
			}
			if strings.Join(got, "; ") != c.want {
				t.Errorf("%v, want %q", got, c.want)
			}
		})
	}
}

func TestEveryObjectOfTheCorpusHasAKind(t *testing.T) {
	list, err := readCorpus("")
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 60 {
		t.Errorf("%d objects", len(list))
	}
	one, err := readCorpus("Pod,ConfigMap")
	if err != nil || len(one) != 2 {
		t.Errorf("%d objects of two kinds, %v", len(one), err)
	}
}
