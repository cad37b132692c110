package bounds

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestQuantitiesHaveLimitsOfDigitsAndExponent(t *testing.T) {
	long := strings.Repeat("1", MaxQuantityDigits)
	for _, text := range []string{"", "0", "1", "-1.5Gi", "1e3", "1E-9", "1E", "1Ei", "1e1000", "1e-1000", "1e+0000000000001", long, "0." + long[1:], "nonsense", "e", "1e000-100000000", strings.Repeat("x", 5000)} {
		if err := Quantity(text); err != nil {
			t.Errorf("%s: %v", shorten(text), err)
		}
	}
	for text, want := range map[string]string{
		"1e1001":             `"1e1001" has an exponent that is not between -1000 and 1000`,
		"1e-1000000000":      `"1e-1000000000" has an exponent that is not between -1000 and 1000`,
		"1E+00000001000000":  "exponent",
		"1e9999999999999999": "exponent",
		long + "1":           `"1111111111111111111111111111111111111111"... has 1001 digits: a quantity has at most 1000`,
		"." + long + "1Gi":   "1001 digits",
		long + "1e1":         "1001 digits",
	} {
		if err := Quantity(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, not %s", shorten(text), err, want)
		}
	}
}

func podOf(name, q string) string {
	return fmt.Sprintf(`{"metadata":{"name":"a","labels":{"e1e-1000000000":"1e-1000000000"}},"spec":{"volumes":[{"emptyDir":{"sizeLimit":"1"}}],"containers":[{"name":"c"},{"args":["1e-1000000000"],"resources":{%q:{"cpu":"1","memory":%s}}}]}}`, name, q)
}

func TestDocumentsWithCostlyQuantitiesAreRefused(t *testing.T) {
	const path = "spec.containers[1].resources.limits[memory]: "
	for doc, want := range map[string]string{
		podOf("limits", `"1Gi"`):                                                        "",
		podOf("limits", `"1e-1000000000"`):                                              path + `"1e-1000000000" has an exponent`,
		podOf("limits", `1e-1000000000`):                                                path,
		podOf("limits", `1e1000000000`):                                                 path,
		podOf("limits", `"1e-1000000000","cpu":"1"`):                                    path,
		podOf("limits", `"1"},"requests":{"cpu":"1","cpu":1`+strings.Repeat("0", 1000)): "spec.containers[1].resources.requests[cpu]: ",
		podOf("limits", `{"a":["1e-1000000000"]}`):                                      "",
		// Some decoders ignore the case of field names.
		podOf("Limits", `"1e-1000000000"`):              "spec.containers[1].resources.Limits[memory]: ",
		podOf("limits", `"1","memory":"1e-1000000000"`): path,
		// The quantity comes before the syntax error.
		`{"spec":{"overhead":{"cpu":"1e-1000000000"}`: "spec.overhead[cpu]: ",
		`"1e-1000000000"`: "", `[1e-1000000000]`: "", `{"spec":"1e-1000000000"}`: "", `{"a":1e-1000000000`: "", `{`: "",
		`{"spec":{"ephemeralContainers":[{"resources":{"limits":{"a":"1e-1000000000"}}}]}}`: "spec.ephemeralContainers[0].resources.limits[a]: ",
	} {
		err := Document([]byte(doc), &corev1.Pod{})
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%.200s: %v, not %s", doc, err, want)
		}
		var content map[string]any
		if json.Unmarshal([]byte(doc), &content) != nil || strings.Contains(doc, `"memory":1e`) || strings.Contains(doc, `"memory":"1"}`) {
			continue
		}
		// A decoded map keeps only the last value of a repeated field.
		if err := Fields(content, &corev1.Pod{}); (err != nil) != (want != "") {
			t.Errorf("as fields, %.200s: %v", doc, err)
		}
	}
}

// nines returns a quantity with so many digits that the library keeps its text.
func nines(n int) resource.Quantity {
	var q resource.Quantity
	if err := q.UnmarshalJSON([]byte(strings.Repeat("9", n))); err != nil {
		panic(err)
	}
	return q
}

func TestMessagesWithCostlyQuantitiesAreRefused(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": strings.Repeat("9", 2000)}}}
	pod.Spec.Containers = make([]corev1.Container, 2)
	raw, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := Message(raw, &corev1.Pod{}); err != nil {
		t.Error(err)
	}
	pod.Spec.Containers[1].Resources.Limits = corev1.ResourceList{"memory": nines(1001)}
	if raw, err = pod.Marshal(); err != nil {
		t.Fatal(err)
	}
	if err := Message(raw, &corev1.Pod{}); err == nil || !strings.HasPrefix(err.Error(), "spec.containers[1].resources.limits[memory]: ") {
		t.Error(err)
	}
	pod = &corev1.Pod{}
	size := nines(1001)
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &size}}}}
	if raw, err = pod.Marshal(); err != nil {
		t.Fatal(err)
	}
	if err := Message(raw, &corev1.Pod{}); err == nil || !strings.HasPrefix(err.Error(), "spec.volumes[0].emptyDir.sizeLimit: ") {
		t.Error(err)
	}
	// A map entry may contain its value twice; both are checked.
	twice := []byte("\x12\x00") // spec: empty
	if err := Message(append(twice, raw...), &corev1.Pod{}); err == nil {
		t.Error("the second spec is not checked")
	}
	// c: 1e-1000000000, then an empty value.
	entry := []byte("\x0a\x01c\x12\x0f\x0a\x0d1e-1000000000\x12\x00")
	message := append([]byte{0x0a, byte(len(entry))}, entry...)
	if err := Message(message, &corev1.ResourceRequirements{}); err == nil {
		t.Error("the first value of an entry is not checked")
	}
}

func mapsOf(key string, n int) []any {
	var out []any
	for i := range n {
		out = append(out, map[string]any{key: fmt.Sprint(i)})
	}
	return out
}

func TestCostlyStrategicMergesAreRefused(t *testing.T) {
	container := func(n int) []any { return []any{map[string]any{"name": "c", "env": mapsOf("name", n)}} }
	object := func(ports, finalizers, env int) map[string]any {
		return map[string]any{"metadata": map[string]any{"finalizers": mapsOf("x", finalizers)},
			"spec": map[string]any{"hostAliases": mapsOf("ip", ports), "containers": container(env)}}
	}
	many := func(n, env int) []any {
		var out []any
		for range n {
			out = append(out, container(env)...)
		}
		return out
	}
	for name, c := range map[string]struct {
		original, patch map[string]any
		refused         string
	}{
		"few elements into many":                      {object(100000, 0, 0), map[string]any{"spec": map[string]any{"hostAliases": mapsOf("ip", 100)}}, ""},
		"many elements into an empty list":            {map[string]any{}, map[string]any{"spec": map[string]any{"hostAliases": mapsOf("ip", 100000)}}, ""},
		"4,000 elements into 4,000":                   {object(4000, 0, 0), map[string]any{"spec": map[string]any{"hostAliases": mapsOf("ip", 4000)}}, ""},
		"10,000 elements into one":                    {object(1, 0, 0), map[string]any{"spec": map[string]any{"hostAliases": mapsOf("ip", 10000)}}, ".spec.hostAliases has 1 elements, the patch 10000, and their order 0"},
		"an order of 100,000 elements":                {object(1, 0, 0), map[string]any{"spec": map[string]any{"$setElementOrder/hostAliases": mapsOf("ip", 100000)}}, "their order 100000"},
		"an order of 100,000 elements without a list": {map[string]any{}, map[string]any{"spec": map[string]any{"$setElementOrder/hostAliases": mapsOf("ip", 100000)}}, "their order 100000"},
		"many finalizers":                             {object(0, 8000, 0), map[string]any{"metadata": map[string]any{"finalizers": mapsOf("x", 8000)}}, ".metadata.finalizers"},
		"many deleted finalizers":                     {object(0, 8000, 0), map[string]any{"metadata": map[string]any{"$deleteFromPrimitiveList/finalizers": mapsOf("x", 8000)}}, ".metadata.finalizers"},
		"a replaced list":                             {map[string]any{"spec": map[string]any{"tolerations": mapsOf("key", 50000)}}, map[string]any{"spec": map[string]any{"tolerations": mapsOf("key", 50000)}}, ""},
		"a repeated container":                        {object(0, 0, 10), map[string]any{"spec": map[string]any{"containers": many(100, 200)}}, ".spec.containers[].env has 10 elements, the patch 20000"},
		"an unknown field":                            {map[string]any{"a": mapsOf("b", 50000)}, map[string]any{"a": mapsOf("b", 50000)}, ""},
	} {
		err := StrategicMerge(c.original, c.patch, &corev1.Pod{})
		if c.refused == "" && err != nil || c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// within makes a message that nests in itself, in a field, the given number of times.
func within(levels int, number protowire.Number) []byte {
	var heads [][]byte
	size := 0
	for range levels {
		head := protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.BytesType), uint64(size))
		heads = append(heads, head)
		size += len(head)
	}
	slices.Reverse(heads)
	return slices.Concat(heads...)
}

func TestMessagesHaveTheDepthLimitOfDocuments(t *testing.T) {
	type schema = apiextensionsv1.JSONSchemaProps
	for levels, refused := range map[int]bool{0: false, 5000: false, MaxDepth + 1: true, 400_000: true} {
		// Field 28 is "not".
		if err := Message(within(levels, 28), &schema{}); (err != nil) != refused {
			t.Errorf("%d levels: %v", levels, err)
		}
	}
	item := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), within(400_000, 28))
	property := append([]byte{0x0a, 1, 'a'}, item...) // properties: {a: ...}
	if err := Message(protowire.AppendBytes(protowire.AppendTag(nil, 29, protowire.BytesType), property), &schema{}); err == nil {
		t.Error("a map's entries are not checked")
	}
	if endless(reflect.TypeFor[corev1.Pod]()) || !endless(reflect.TypeFor[apiextensionsv1.CustomResourceDefinitionList]()) {
		t.Error("definitions hold schemas, which hold schemas; pods hold nothing of the kind")
	}
}

// Three megabytes hold more than a million fields.
func TestATypesTagsAreReadOnce(t *testing.T) {
	// The type has no field 15.
	many := []byte(strings.Repeat("\x7a\x00", 50_000) + "\x7a\x0d1e-1000000000")
	for _, like := range []any{&corev1.Pod{}, &apiextensionsv1.CustomResourceDefinition{}} {
		allocated := testing.AllocsPerRun(5, func() {
			if err := Message(many, like); err != nil {
				t.Error(err)
			}
		})
		if allocated > 1000 {
			t.Errorf("%T: %v allocations for %d fields", like, allocated, len(many)/2)
		}
	}
}

func TestLevelsReturnsDepthAndBytes(t *testing.T) {
	for doc, want := range map[string]string{
		``: "0 0", `1`: "0 0", `{}`: "1 1", `{"a":1}`: "1 6", `{"a":[1,2]}`: "2 14", `["{[\"{"]`: "1 8", `"{`: "0 0", `]]`: "0 -3",
	} {
		if deepest, bytes := Levels([]byte(doc)); fmt.Sprint(deepest, bytes) != want {
			t.Errorf("%s: %d %d, want %s", doc, deepest, bytes, want)
		}
	}
}

func TestLongestListFindsTheLongestList(t *testing.T) {
	for doc, want := range map[string]int{
		``: 0, `1`: 0, `{"a":1,"b":2,"c":3}`: 0, `[]`: 1, `[1,2]`: 2, `[[1,2,3],{"a":[1,2,3,4],"b":",,,,,,,"}]`: 4, `["\"],,,,,,,"]`: 1, `]],,`: 0, `[,,`: 0, `["`: 0,
	} {
		if longest := LongestList([]byte(doc)); longest != want {
			t.Errorf("%s: %d, want %d", doc, longest, want)
		}
	}
}
