package custom

import (
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/knarr-project/knarr/internal/cel"
)

// Each rule would take an hour, so this test only ends if all of them are refused.
func TestRulesRefuseHugeQuantities(t *testing.T) {
	cel.BoundSharedEnvironments()
	for rule, want := range map[string]string{
		"quantity(self.q).isGreaterThan(quantity('1'))":             "has an exponent that is not between",
		"quantity('1e'+'-1000000000').isGreaterThan(quantity('1'))": "has an exponent that is not between",
		"isQuantity(self.q)": "failed rule",
		"quantity('1.5Gi').isGreaterThan(quantity('1e3'))": "",
		"!isQuantity(self.q) && isQuantity('1.5Gi')":       "",
	} {
		long := int64(20)
		d := defined(&apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"q": {Type: "string", MaxLength: &long}},
			XValidations: apiextensionsv1.ValidationRules{{Rule: rule}}})
		if c, _ := d.whole(); !valid(c) {
			t.Fatalf("%s is not valid", rule)
		}
		v, _ := d.Version("v1")
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "a", "namespace": "b"}, "q": "1e-1000000000"}}
		got := fmt.Sprint(v.validate(u))
		if want == "" && got != "[]" || !strings.Contains(got, want) {
			t.Errorf("%s: %s", rule, got)
		}
	}
}
