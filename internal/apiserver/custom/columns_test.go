package custom

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// withColumns returns a version with these printer columns that keeps unknown fields.
func withColumns(t *testing.T, columns ...apiextensionsv1.CustomResourceColumnDefinition) *Version {
	t.Helper()
	anything := true
	schema := &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &anything}
	d := defined(schema, func(c *apiextensionsv1.CustomResourceDefinition) {
		c.Spec.Versions[0].AdditionalPrinterColumns = columns
	})
	v, ok := d.Version("v1")
	if !ok {
		t.Fatal("an established definition is not served")
	}
	return v
}

func TestAColumnShowsAValueAsItsType(t *testing.T) {
	now := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	values := map[string]any{
		"text": "x", "empty": "", "int": int64(7), "negative": int64(-7), "fraction": 2.75, "minus": -2.75, "yes": true, "no": false, "null": nil,
		"json": json.Number("12"), "jsonFraction": json.Number("1.5"), "jsonHuge": json.Number("1e400"),
		"list": []any{"a", int64(1)}, "map": map[string]any{"b": "c"}, "numeral": "7",
		"hourAgo": "2026-03-02T11:00:00Z", "zoned": "2026-03-02T13:59:00+02:00", "future": "2026-03-03T12:00:00Z", "zero": "0001-01-01T00:00:00Z",
		"days": "2025-11-02T12:00:00Z", "nullText": "null", "fractional": "2026-03-02T11:59:30.5Z", "day": "2026-03-02",
	}
	for _, tc := range []struct {
		kind, field string
		want        any
	}{
		{"string", "text", "x"}, {"string", "empty", ""}, {"string", "int", "7"}, {"string", "fraction", "2.75"}, {"string", "yes", "true"},
		{"string", "null", "null"}, {"string", "list", `["a",1]`}, {"string", "map", `{"b":"c"}`}, {"string", "hourAgo", "2026-03-02T11:00:00Z"},
		{"string", "json", "12"},

		{"integer", "int", int64(7)}, {"integer", "negative", int64(-7)}, {"integer", "fraction", int64(2)}, {"integer", "minus", int64(-2)},
		{"integer", "json", int64(12)}, {"integer", "jsonFraction", nil}, {"integer", "jsonHuge", nil}, {"integer", "numeral", nil},
		{"integer", "yes", nil}, {"integer", "null", nil}, {"integer", "list", nil}, {"integer", "map", nil},

		{"number", "int", 7.0}, {"number", "fraction", 2.75}, {"number", "json", 12.0}, {"number", "jsonFraction", 1.5}, {"number", "jsonHuge", nil},
		{"number", "numeral", nil}, {"number", "no", nil}, {"number", "null", nil}, {"number", "list", nil},

		{"boolean", "yes", true}, {"boolean", "no", false}, {"boolean", "text", nil}, {"boolean", "int", nil}, {"boolean", "null", nil},

		{"date", "hourAgo", "60m"}, {"date", "zoned", "60s"}, {"date", "days", "120d"}, {"date", "fractional", "29s"}, {"date", "future", "0s"},
		{"date", "zero", "<unknown>"}, {"date", "empty", "<unknown>"}, {"date", "nullText", "<unknown>"},
		{"date", "text", "<invalid>"}, {"date", "day", "<invalid>"}, {"date", "int", nil}, {"date", "null", nil}, {"date", "map", nil},

		{"object", "map", nil}, {"", "text", nil},
	} {
		t.Run(tc.kind+" of "+tc.field, func(t *testing.T) {
			v := withColumns(t, apiextensionsv1.CustomResourceColumnDefinition{Name: "c", Type: tc.kind, JSONPath: ".spec." + tc.field})
			row := v.Row(&unstructured.Unstructured{Object: map[string]any{"spec": values}}, metav1.NewTime(now))
			if len(row) != 2 || row[1] != tc.want {
				t.Errorf("got %#v, want %#v", row[1:], tc.want)
			}
		})
	}
}

func TestAColumnShowsTheFirstValueThatItsPathFinds(t *testing.T) {
	object := map[string]any{
		"metadata": map[string]any{"name": "n", "annotations": map[string]any{"example.com/a": "annotated"}},
		"spec": map[string]any{"l": []any{
			map[string]any{"x": int64(1), "ready": "yes"}, map[string]any{"x": int64(2)}, map[string]any{"x": "text"},
		}, "none": []any{}},
	}
	for path, want := range map[string]any{
		".spec.l[*].x":                             "1",
		".spec.l[1].x":                             "2",
		".spec.l[-1].x":                            "text",
		".spec.l[5].x":                             nil,
		".spec.none[*].x":                          nil,
		".spec.none[0]":                            nil,
		".spec.absent.deeper":                      nil,
		`.spec.l[?(@.x=="text")].x`:                nil, // the numbers before cannot be compared
		".spec.l[?(@.x==1)].x":                     nil,
		`.spec.l[?(@.ready=="yes")].x`:             "1",
		".spec.l[?(@.ready)].x":                    "1",
		".spec.l[?(@.x==9)].x":                     nil,
		".metadata.name":                           "n",
		`.metadata.annotations.example\.com/a`:     "annotated",
		".metadata.annotations['example\\.com/a']": "annotated",
		".metadata.name.deeper":                    nil,
		".spec.none":                               "[]",
		"":                                         `{"metadata":{"annotations":{"example.com/a":"annotated"},"name":"n"},"spec":{"l":[{"ready":"yes","x":1},{"x":2},{"x":"text"}],"none":[]}}`,
	} {
		t.Run(path, func(t *testing.T) {
			v := withColumns(t, apiextensionsv1.CustomResourceColumnDefinition{Name: "c", Type: "string", JSONPath: path})
			if row := v.Row(&unstructured.Unstructured{Object: object}, metav1.Now()); len(row) != 2 || row[1] != want {
				t.Errorf("got %#v, want %#v", row[1:], want)
			}
		})
	}
}

func TestColumnsAreDescribed(t *testing.T) {
	docs := metav1.ObjectMeta{}.SwaggerDoc()
	name := metav1.TableColumnDefinition{Name: "Name", Type: "string", Format: "name", Description: docs["name"]}
	for title, tc := range map[string]struct {
		columns []apiextensionsv1.CustomResourceColumnDefinition
		want    []metav1.TableColumnDefinition
	}{
		"a kind without columns shows its age": {nil, []metav1.TableColumnDefinition{
			name, {Name: "Age", Type: "date", Description: docs["creationTimestamp"]}}},
		"a kind with columns shows no age of its own": {
			[]apiextensionsv1.CustomResourceColumnDefinition{{Name: "A", Type: "integer", Format: "int32", Description: "a", Priority: 1, JSONPath: ".a"}},
			[]metav1.TableColumnDefinition{name, {Name: "A", Type: "integer", Format: "int32", Description: "a", Priority: 1}}},
		"a column without a description names its path": {
			[]apiextensionsv1.CustomResourceColumnDefinition{{Name: "A", Type: "string", JSONPath: ".a"}, {Name: "B", Type: "string", JSONPath: ".b"}},
			[]metav1.TableColumnDefinition{name,
				{Name: "A", Type: "string", Description: "Custom resource definition column (in JSONPath format): .a"},
				{Name: "B", Type: "string", Description: "Custom resource definition column (in JSONPath format): .b"}}},
		"a column whose path cannot be read is left out": {
			[]apiextensionsv1.CustomResourceColumnDefinition{{Name: "bad", Type: "string", JSONPath: ".a["}, {Name: "two", Type: "string", JSONPath: ".a,.b"}, {Name: "B", Type: "string", JSONPath: ".b", Description: "b"}},
			[]metav1.TableColumnDefinition{name, {Name: "B", Type: "string", Description: "b"}}},
		"a column with a loop stays, and is empty": {
			[]apiextensionsv1.CustomResourceColumnDefinition{{Name: "A", Type: "string", JSONPath: ".a}{range .b[*]}{@}{end", Description: "a"}},
			[]metav1.TableColumnDefinition{name, {Name: "A", Type: "string", Description: "a"}}},
	} {
		t.Run(title, func(t *testing.T) {
			v := withColumns(t, tc.columns...)
			if got, want := fmt.Sprintf("%+v", v.Columns()), fmt.Sprintf("%+v", tc.want); got != want {
				t.Errorf("\ngot  %s\nwant %s", got, want)
			}
			if row := v.Row(&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "n"}}}, metav1.Now()); len(row) != len(tc.want) || row[0] != "n" {
				t.Errorf("the row is %v", row)
			}
		})
	}
}

func TestTheDefaultColumnShowsTheAge(t *testing.T) {
	now := metav1.Now()
	for created, want := range map[string]any{now.Add(-90 * time.Second).UTC().Format(time.RFC3339): "90s", "": nil} {
		u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "n"}}}
		if created != "" {
			u.Object["metadata"].(map[string]any)["creationTimestamp"] = created
		}
		if row := withColumns(t).Row(u, metav1.NewTime(now.Truncate(time.Second))); row[1] != want {
			t.Errorf("created %q: the age is %v, want %v", created, row[1], want)
		}
	}
}
