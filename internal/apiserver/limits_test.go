package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

// nested is a protobuf message with nested fields; the innermost one has the text.
func nested(text string, numbers ...protowire.Number) []byte {
	out := []byte(text)
	for i := len(numbers) - 1; i >= 0; i-- {
		out = protowire.AppendBytes(protowire.AppendTag(nil, numbers[i], protowire.BytesType), out)
	}
	return out
}

// wrapped is an envelope with the given parts of its message's kind.
func wrapped(apiVersion, kind string, message []byte) []byte {
	var typed []byte
	if apiVersion != "" {
		typed = append(typed, nested(apiVersion, 1)...)
	}
	if kind != "" {
		typed = append(typed, nested(kind, 2)...)
	}
	return slices.Concat([]byte(wire.ProtobufPrefix), nested(string(typed), 1), nested(string(message), 2))
}

// TestHugeExponentsOfQuantitiesAreRefused: each of these would compute 10^1000000000. The test only
// ends if all are refused.
func TestHugeExponentsOfQuantitiesAreRefused(t *testing.T) {
	s := newTestServer(t)
	const pods, endless = "/api/v1/namespaces/default/pods", "1e-1000000000"
	body := func(q string) string {
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":` + q + `}}}]}}`
	}
	if code, _, answer := do(t, s, "POST", pods, body(`"1e-1"`)); code != http.StatusCreated {
		t.Fatal(code, answer)
	}
	list := nested("", 1)
	list = append(list, nested(endless, 2, 2, 2, 8, 1, 2, 1)...)
	for name, c := range map[string]struct {
		method, path, media, body string
		code                      int
	}{
		"a create":                     {"POST", pods, wire.MediaJSON, body(`"` + endless + `"`), 400},
		"a number":                     {"POST", pods, wire.MediaJSON, body(endless), 400},
		"YAML":                         {"POST", pods, wire.MediaYAML, "spec: {overhead: {cpu: \"1\\x65-1000000000\"}}", 400},
		"a duplicate field":            {"POST", pods, wire.MediaJSON, body(`"` + endless + `","cpu":"1"`), 400},
		"many digits":                  {"POST", pods, wire.MediaJSON, body(`"0.` + strings.Repeat("1", 2_000_000) + `"`), 400},
		"protobuf":                     {"POST", pods, wire.MediaProtobuf, string(wire.Envelope(corev1.SchemeGroupVersion.WithKind("Pod"), nested(endless, 2, 2, 8, 1, 2, 1))), 400},
		"protobuf of another kind":     {"POST", pods, wire.MediaProtobuf, string(wire.Envelope(corev1.SchemeGroupVersion.WithKind("PodList"), list)), 400},
		"protobuf without a kind":      {"POST", pods, wire.MediaProtobuf, string(wrapped("", "", nested(endless, 2, 2, 8, 1, 2, 1))), 400},
		"protobuf without a version":   {"POST", pods, wire.MediaProtobuf, string(wrapped("", "Pod", nested(endless, 2, 2, 8, 1, 2, 1))), 400},
		"protobuf with only a version": {"POST", pods, wire.MediaProtobuf, string(wrapped("v1", "", nested(endless, 2, 2, 8, 1, 2, 1))), 400},
		"protobuf without a type":      {"POST", pods, wire.MediaProtobuf, wire.ProtobufPrefix + string(nested(endless, 2, 2, 2, 8, 1, 2, 1)), 400},
		"an update":                    {"PUT", pods + "/a", wire.MediaJSON, body(`"` + endless + `"`), 400},
		"a JSON patch":                 {"PATCH", pods + "/a", "application/json-patch+json", `[{"op":"add","path":"/spec/overhead","value":{"cpu":"` + endless + `"}}]`, 422},
		"a merge patch":                {"PATCH", pods + "/a", "application/merge-patch+json", `{"spec":{"overhead":{"cpu":"` + endless + `"}}}`, 422},
		"a strategic merge patch":      {"PATCH", pods + "/a", "application/strategic-merge-patch+json", `{"spec":{"overhead":{"cpu":"1\u0065-1000000000"}}}`, 422},
		"an apply":                     {"PATCH", pods + "/a?fieldManager=f&force=true", "application/apply-patch+yaml", body(`"` + endless + `"`), 400},
		"a resize":                     {"PATCH", pods + "/a/resize", "application/strategic-merge-patch+json", `{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"` + endless + `"}}}]}}`, 422},
		"a status":                     {"PATCH", "/api/v1/namespaces/default/resourcequotas/q/status?fieldManager=f", "application/apply-patch+yaml", `{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"q"},"status":{"used":{"cpu":"` + endless + `"}}}`, 404},
		"an annotation of an autoscaler": {"POST", "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers", wire.MediaJSON,
			`{"metadata":{"name":"a","annotations":{"autoscaling.alpha.kubernetes.io/metrics":"[{\"RESOURCE\":{\"targetAverageValue\":\"` + endless + `\"}}]","autoscaling.alpha.kubernetes.io/current-metrics":"[{\"resource\":{\"currentAverageValue\":\"` + endless + `\"}}]"}}}`, 0},
	} {
		code, _, answer := do(t, s, c.method, c.path, c.body, "Content-Type", c.media)
		if c.code != 0 && code != c.code || code < 400 {
			t.Errorf("%s is answered with %d: %.300s", name, code, answer)
		}
		if c.code != http.StatusNotFound && !strings.Contains(answer, "an exponent that is not between -1000 and 1000") && !strings.Contains(answer, "a quantity has at most 1000") {
			t.Errorf("%s does not tell why: %.300s", name, answer)
		}
	}
	if code, _, answer := do(t, s, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"a"},"data":{"cpu":"`+endless+`"}}`); code != http.StatusCreated {
		t.Errorf("an invalid quantity is refused: %d %s", code, answer)
	}
}

// TestInvalidRawJSONInObjectsIsRefused: with invalid JSON, the library of field owners panicked for
// any writer.
func TestInvalidRawJSONInObjectsIsRefused(t *testing.T) {
	s := newTestServer(t)
	const revisions, definitions = "/apis/apps/v1/namespaces/default/controllerrevisions", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	const huge = `{"a":[1e400]}`
	revision := func(data string) string { return `{"metadata":{"name":"a"},"data":` + data + `,"revision":1}` }
	if code, _, answer := do(t, s, "POST", revisions, revision(`{"a":[1e300]}`)); code != http.StatusCreated {
		t.Fatal(code, answer)
	}
	message := func(data string) string {
		return string(wire.Envelope(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ControllerRevision"}, append(nested("b", 1, 1), nested(data, 2, 1)...)))
	}
	for name, c := range map[string]struct {
		method, path, media, body string
		code                      int
	}{
		"a default in a schema": {"POST", definitions, wire.MediaJSON, `{"metadata":{"name":"widgets.example.com"},"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"widgets","kind":"Widget"},
			"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"a":{"type":"number","default":1e400}}}}}]}}`, 400},
		"a create":                           {"POST", revisions, wire.MediaJSON, revision(huge), 400},
		"an update":                          {"PUT", revisions + "/a", wire.MediaJSON, revision(huge), 400},
		"a message with a number":            {"POST", revisions, wire.MediaProtobuf, message(huge), 400},
		"a message with truncated JSON":      {"POST", revisions, wire.MediaProtobuf, message(`{"a":`), 400},
		"a message with empty JSON":          {"POST", revisions, wire.MediaProtobuf, message(""), 400},
		"a message with other text":          {"POST", revisions, wire.MediaProtobuf, message("k8s\x00"), 400},
		"a JSON patch":                       {"PATCH", revisions + "/a?fieldValidation=Ignore", "application/json-patch+json", `[{"op":"add","path":"/data","value":` + huge + `}]`, 422},
		"a JSON patch with field validation": {"PATCH", revisions + "/a", "application/json-patch+json", `[{"op":"add","path":"/data","value":` + huge + `}]`, 400},
		"a merge patch":                      {"PATCH", revisions + "/a", "application/merge-patch+json", `{"data":` + huge + `}`, 400},
		"a strategic merge patch":            {"PATCH", revisions + "/a", "application/strategic-merge-patch+json", `{"data":` + huge + `}`, 400},
	} {
		t.Run(name, func(t *testing.T) {
			if code, _, answer := do(t, s, c.method, c.path, c.body, "Content-Type", c.media); code != c.code {
				t.Errorf("%d %.300s, want %d", code, answer, c.code)
			}
		})
	}
}

// TestDeeplyNestedMessagesAreRefused: any user may send a self review, and a body is
// decoded before its kind is checked. A stack overflow would end the process.
func TestDeeplyNestedMessagesAreRefused(t *testing.T) {
	s := newTestServer(t)
	var heads [][]byte
	size := 0
	for range 500_000 {
		// No string, which would be another schema.
		head := protowire.AppendVarint(protowire.AppendTag(nil, 28, protowire.BytesType), uint64(size))
		heads = append(heads, head)
		size += len(head)
	}
	slices.Reverse(heads)
	definition := nested(string(slices.Concat(heads...)), 2, 7, 4, 1)
	const path, group, kind = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "apiextensions.k8s.io/v1", "CustomResourceDefinition"
	for _, c := range []struct{ path, apiVersion, kind string }{
		{"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", group, kind},
		{path, group, kind}, {path, "", kind}, {path, group, ""}, {path, "", ""},
	} {
		body := wrapped(c.apiVersion, c.kind, definition)
		if len(body) > wire.MaxBody {
			t.Fatal("the body exceeds maxBody")
		}
		code, _, answer := do(t, s, "POST", c.path, string(body), "Content-Type", wire.MediaProtobuf)
		if code != http.StatusBadRequest || !strings.Contains(answer, "messages are nested deeper than ") {
			t.Errorf("%+v: %d %.300s", c, code, answer)
		}
	}
}

// Each of these would make the patch library hold gigabytes: it keeps the content of a level once
// per level.
func TestPatchesAreLimitedByTheSizeOfTheirLevels(t *testing.T) {
	s := newTestServer(t)
	const maps = "/api/v1/namespaces/default/configmaps"
	if code, _, answer := do(t, s, "POST", maps, `{"metadata":{"name":"a"},"data":{"a":"1"}}`); code != http.StatusCreated {
		t.Fatal(code, answer)
	}
	deep := func(levels, size int) string {
		return strings.Repeat(`{"a":`, levels) + `"` + strings.Repeat("x", size) + `"` + strings.Repeat("}", levels)
	}
	const large = 1 << 20
	path := strings.Repeat("/a", 3000)
	var moves []string
	for i := range 3000 {
		moves = append(moves, fmt.Sprintf(`{"op":"add","path":"/%d","value":{}},{"op":"move","from":"/%d","path":"/%d/a"}`, i+1, i, i+1))
	}
	// A new first element makes the next move undo the last one; spelt has two ways to write one
	// key.
	var shifts, spelt []string
	for range 3000 {
		shifts = append(shifts, `{"op":"move","from":"/L/1","path":"/L/0/b"},{"op":"add","path":"/L/0","value":{}}`)
		spelt = append(spelt, `{"op":"add","path":"/q","value":{}},{"op":"move","from":"/p~","path":"/q/b"},{"op":"move","from":"/q","path":"/p~0"}`)
	}
	var copies, within []string
	for i := range 100 {
		copies = append(copies, fmt.Sprintf(`{"op":"copy","from":"/data/a","path":"/data/copy-%d"}`, i), fmt.Sprintf(`{"op":"copy","from":"/metadata","path":"/far/away/from/here/m%d"}`, i))
		within = append(within, `{"op":"copy","from":"/l/0/a","path":"/l/-"},{"op":"copy","from":"/l/0","path":"/l/1"}`)
	}
	for name, c := range map[string]struct {
		media, body string
		code        int
	}{
		"a JSON patch of many copies":              {"json-patch", `[{"op":"add","path":"/far","value":{"away":{"from":{"here":{}}}}},` + strings.Join(copies, ",") + `]`, 200},
		"a JSON patch of copies in a list":         {"json-patch", `[{"op":"add","path":"/l","value":[{"a":"b"}]},` + strings.Join(within, ",") + `]`, 200},
		"a deep merge patch":                       {"merge-patch", `{"x":` + deep(3000, large) + `}`, 413},
		"a large merge patch":                      {"merge-patch", `{"x":` + deep(30, 2*large) + `}`, 200},
		"a merge patch with many levels":           {"merge-patch", `{"x":` + deep(5000, 10) + `}`, 200},
		"a JSON patch with a deep value":           {"json-patch", `[{"op":"test","path":"/x","value":` + deep(3000, large) + `}]`, 413},
		"a JSON patch with a deep path":            {"json-patch", `[{"op":"add","path":"/x","value":` + deep(3000, 1) + `},{"op":"add","path":"/x` + path + `","value":` + deep(1, large) + `}]`, 413},
		"a JSON patch with many levels":            {"json-patch", `[{"op":"add","path":"/x","value":` + deep(3000, 1) + `},{"op":"add","path":"/x` + path + `","value":1}]`, 200},
		"a JSON patch that moves down":             {"json-patch", `[{"op":"add","path":"/0","value":` + deep(1, large) + `},` + strings.Join(moves, ",") + `]`, 413},
		"a JSON patch that shifts a list":          {"json-patch", `[{"op":"add","path":"/L","value":[{},` + deep(1, large) + `]},` + strings.Join(shifts, ",") + `]`, 413},
		"a JSON patch with two spellings of a key": {"json-patch", `[{"op":"add","path":"/p~","value":` + deep(1, large) + `},` + strings.Join(spelt, ",") + `]`, 413},
		"a JSON patch that copies a deep value":    {"json-patch", `[{"op":"add","path":"/x","value":` + deep(200, 500_000) + `},{"op":"copy","from":"/x","path":"/y"}]`, 413},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, answer := do(t, s, "PATCH", maps+"/a?fieldValidation=Ignore", c.body, "Content-Type", "application/"+c.media+"+json")
			if code != c.code || code == 413 && !strings.Contains(answer, "nested too deep for its size") {
				t.Errorf("%s: %d %.300s", name, code, answer)
			}
		})
	}
	definition := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","spec":{"versions":[{"schema":{"openAPIV3Schema":` +
		strings.Repeat(`{"items":`, 3000) + `{"description":"` + strings.Repeat("x", large) + `"}` + strings.Repeat("}", 3000) + `}}]}}`
	if code, _, answer := do(t, s, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition); code != 400 || !strings.Contains(answer, "nested too deep for its size") {
		t.Errorf("a schema: %d %.300s", code, answer)
	}
}

func TestStrategicMergePatchesAreLimitedByTheirComparisons(t *testing.T) {
	s := newTestServer(t, withServices)
	const services = "/api/v1/namespaces/default/services"
	if code, _, answer := do(t, s, "POST", services, `{"metadata":{"name":"a"},"spec":{"ports":[{"name":"p","port":80}]}}`); code != http.StatusCreated {
		t.Fatal(code, answer)
	}
	var order []any
	for i := range 20000 {
		order = append(order, map[string]any{"port": i})
	}
	data, err := json.Marshal(map[string]any{"spec": map[string]any{"$setElementOrder/ports": order, "ports": []any{map[string]any{"port": 80, "name": "q"}}}})
	if err != nil {
		t.Fatal(err)
	}
	code, _, answer := do(t, s, "PATCH", services+"/a", string(data), "Content-Type", "application/strategic-merge-patch+json")
	if want := "merging takes 400060002 comparisons of list elements, at most 50000000 are allowed: .spec.ports has 1 elements, the patch 1, and their order 20000"; code != http.StatusRequestEntityTooLarge || !strings.Contains(answer, want) {
		t.Errorf("%d %s", code, answer)
	}
	if data, err = json.Marshal(map[string]any{"spec": map[string]any{"$setElementOrder/ports": order[79:1000], "ports": []any{map[string]any{"port": 80, "name": "q"}}}}); err != nil {
		t.Fatal(err)
	}
	if code, _, answer = do(t, s, "PATCH", services+"/a", string(data), "Content-Type", "application/strategic-merge-patch+json"); code != http.StatusOK || !strings.Contains(answer, `"name":"q"`) {
		t.Errorf("%d %s", code, answer)
	}
}

func TestListsWithOwnedElementsAreLimited(t *testing.T) {
	s := newTestServer(t)
	many := func(n int) string { return strings.Repeat(`"%d",`, n-1) + `"%d"` }
	count := func(format string) string {
		var out strings.Builder
		for i, part := range strings.Split(format, "%d") {
			if i > 0 {
				fmt.Fprint(&out, 100000+i)
			}
			out.WriteString(part)
		}
		return out.String()
	}
	apply := func(kind, name, rest string) (int, string) {
		code, _, answer := do(t, s, "PATCH", "/api/v1/namespaces/default/"+name+"?fieldManager=f&force=true&dryRun=All", `{"apiVersion":"v1","kind":"`+kind+`","metadata":{"name":"a"`+rest+`}`,
			"Content-Type", "application/apply-patch+yaml")
		return code, answer
	}
	if code, answer := apply("ConfigMap", "configmaps/a", count(`,"finalizers":[`+many(50001)+`]}`)); code != http.StatusRequestEntityTooLarge || !strings.Contains(answer, ".metadata.finalizers has 50001 elements, at most 50000 can have owners") {
		t.Errorf("%d %.300s", code, answer)
	}
	if code, answer := apply("ConfigMap", "configmaps/a", `},"data":{`+strings.ReplaceAll(count(many(50001)), `",`, `":"",`)+`:""}`); code != http.StatusRequestEntityTooLarge || !strings.Contains(answer, ".data has 50001 elements") {
		t.Errorf("%d %.300s", code, answer)
	}
	if code, answer := apply("Pod", "pods/a", count(`},"spec":{"containers":[{"name":"c","image":"i","args":[`+many(60000)+`]}]}`)); code != http.StatusCreated {
		t.Errorf("an atomic list: %d %.300s", code, answer)
	}
}

// TestVeryManyErrorsAreReportedInTime: the library copies all earlier errors for each new one. For
// so many this would take an hour of CPU time.
func TestVeryManyErrorsAreReportedInTime(t *testing.T) {
	s := newTestServer(t)
	finalizers := `"A_B"` + strings.Repeat(`,"A_B"`, 400_000)
	code, _, answer := do(t, s, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"a","finalizers":[`+finalizers+`]}}`)
	if code != http.StatusUnprocessableEntity || !strings.Contains(answer, "in all, is not told") {
		t.Errorf("%d %.300s", code, answer)
	}
	code, _, answer = do(t, s, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"a"}}`)
	if code != http.StatusCreated {
		t.Fatal(code, answer)
	}
	longs := `[{"op":"add","path":"/x","value":[0` + strings.Repeat(",0", 700_000) + `]}` + strings.Repeat(`,{"op":"add","path":"/x/0","value":1}`, 9_000) + `]`
	code, _, answer = do(t, s, "PATCH", "/api/v1/namespaces/default/configmaps/a", longs, "Content-Type", "application/json-patch+json")
	if code != http.StatusRequestEntityTooLarge || !strings.Contains(answer, "too many operations on long lists") {
		t.Errorf("%d %.300s", code, answer)
	}
}
