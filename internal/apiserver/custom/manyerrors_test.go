package custom

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// wide is a definition with strings in a list, in a map, in maps of a list and in lists of a list.
// Its status has a list of strings too.
func wide(t *testing.T) *Version {
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	list := func(of apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
		return apiextensionsv1.JSONSchemaProps{Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &of}}
	}
	named := apiextensionsv1.JSONSchemaProps{Type: "object", Required: []string{"name"}, Properties: map[string]apiextensionsv1.JSONSchemaProps{"name": text}}
	d := defined(&apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
		"list": list(text), "named": list(named), "lists": list(list(text)),
		"map":    {Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: &text}},
		"status": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"list": list(text)}},
	}}, func(c *apiextensionsv1.CustomResourceDefinition) {
		c.Spec.Versions[0].Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
	})
	v, ok := d.Version("v1")
	if !ok {
		t.Fatal("no version")
	}
	return v
}

func holding(v *Version, name string, value any) *unstructured.Unstructured {
	u := v.New()
	u.SetName("a")
	u.SetNamespace("default")
	u.Object[name] = value
	return u
}

func many(n int, item func(int) any) []any {
	list := make([]any, n)
	for i := range list {
		list[i] = item(i)
	}
	return list
}

func number(i int) any { return int64(i) }
func word(int) any     { return "a" }

// Comparing all errors with each other would take hours.
func TestAtMostAThousandErrorsAreReported(t *testing.T) {
	const n = 300_000
	v := wide(t)
	numbers := map[string]any{}
	for i := range n {
		numbers[fmt.Sprintf("k%06d", i)] = int64(i)
	}
	for name, tt := range map[string]struct {
		field string
		value any
		first string
	}{
		"a list":                        {"list", many(n, number), `list[0]: Invalid value: "integer": list[0] in body must be of type string: "integer"`},
		"the end of a list":             {"list", append(many(n, word), many(n, number)...), `list[300000]: Invalid value: "integer": list[300000] in body must be of type string: "integer"`},
		"a map":                         {"map", numbers, `map.k000000: Invalid value: "integer": map.k000000 in body must be of type string: "integer"`},
		"maps without a required field": {"named", many(n, func(int) any { return map[string]any{} }), `named[0].name: Required value`},
		"short lists in a list":         {"lists", many(n/100, func(int) any { return many(100, number) }), `lists[0][0]: Invalid value: "integer": lists[0][0] in body must be of type string: "integer"`},
		"long lists in a list":          {"lists", many(10, func(int) any { return many(n/10, number) }), `lists[0][0]: Invalid value: "integer": lists[0][0] in body must be of type string: "integer"`},
	} {
		t.Run(name, func(t *testing.T) {
			u := holding(v, tt.field, tt.value)
			for what, errs := range map[string]field.ErrorList{"create": v.validate(u), "update": v.validateUpdate(u, holding(v, "list", nil))} {
				if len(errs) != maxErrors+1 || errs[0].Error() != tt.first || !strings.Contains(errs[maxErrors].Error(), "at least 1000 errors") {
					t.Errorf("%s: %d: %v", what, len(errs), errs[:min(2, len(errs))])
				}
			}
		})
	}
	t.Run("a status", func(t *testing.T) {
		before := holding(v, "status", map[string]any{})
		errs := v.validateStatus(holding(v, "status", map[string]any{"list": many(n, number)}), before)
		if len(errs) != maxErrors+1 || errs[0].Error() != `status.list[0]: Invalid value: "integer": list[0] in body must be of type string: "integer"` {
			t.Errorf("%d: %v", len(errs), errs[:min(2, len(errs))])
		}
	})
}

func TestFewErrorsAreReportedAsTheLibraryDoes(t *testing.T) {
	v := wide(t)
	for _, u := range []*unstructured.Unstructured{
		holding(v, "list", many(maxUnsplit+500, func(i int) any {
			if i%10 == 0 {
				return int64(i)
			}
			return "a"
		})),
		holding(v, "list", many(maxUnsplit+500, word)),
		holding(v, "list", "a"), holding(v, "lists", map[string]any{"a": many(maxUnsplit+500, number)}), holding(v, "unknown", many(maxUnsplit+500, number)),
	} {
		errs := v.validate(u)
		if slices.ContainsFunc(errs, func(e *field.Error) bool { return e.Type == field.ErrorTypeForbidden }) {
			t.Errorf("%d errors: %v", len(errs), errs[len(errs)-1])
		}
	}
	// Ratcheting still excuses as many old errors.
	long := holding(v, "map", map[string]any{})
	for i := range maxUnsplit + 500 {
		long.Object["map"].(map[string]any)[fmt.Sprint(i)] = int64(i)
	}
	if errs := v.validateUpdate(long.DeepCopy(), long); len(errs) != 0 {
		t.Errorf("%d errors: %v", len(errs), errs[0])
	}
}
