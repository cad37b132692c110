package custom

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The paths with nil would find more values than fit into memory.
func TestColumnsWithTooManyMatchesAreEmpty(t *testing.T) {
	nested := any("x")
	for range 100 {
		nested = map[string]any{"a": nested}
	}
	var lists any = "x"
	for range 60 {
		lists = []any{lists}
	}
	anything := true
	for path, want := range map[string]any{
		"..b":                                  "", // any value, since maps have no order
		"..spec..b":                            "y",
		"..a..b":                               "z",
		strings.Repeat("..a", 30):              nil,
		".lists[0]":                            "[[",
		".lists[0,0]":                          "[[",
		".few[0,1]":                            "1",
		".lists" + strings.Repeat("[0,0]", 60): nil,
		".lists" + strings.Repeat("[0]", 60):   "x",
		".lists[?(@" + strings.Repeat("[0,0]", 30) + ")]":     nil,
		`.lists[?("]]"=="]]")]` + strings.Repeat("[0,0]", 30): nil,
		`.lists[?("[["=="[[")]` + strings.Repeat("[0,0]", 30): nil,
		".deep" + strings.Repeat("['a','a','\\[']", 30):       nil,
		".deep" + strings.Repeat("['.a']", 30):                nil,
		".deep" + strings.Repeat("['.a', '.a']", 30):          nil,
		".deep" + strings.Repeat("['a']", 100):                "x",
		".spec" + strings.Repeat("}{range @", 60):             nil,
		".spec.b}{range .few[*]}{@}{end":                      nil,
		".spec.b}{.range":                                     "y",
		`.few[?(@=="2")]`:                                     "2",
		`.few[?(@!="],[,2")]`:                                 "1",
	} {
		d := defined(&apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &anything}, func(c *apiextensionsv1.CustomResourceDefinition) {
			c.Spec.Versions[0].AdditionalPrinterColumns = []apiextensionsv1.CustomResourceColumnDefinition{{Name: "c", Type: "string", JSONPath: path}}
		})
		v, _ := d.Version("v1")
		u := &unstructured.Unstructured{Object: map[string]any{"deep": nested, "lists": lists, "few": []any{"1", "2"}, "spec": map[string]any{"b": "y"}, "a": map[string]any{"b": "z"}}}
		got := v.Row(u, metav1.Now())[1]
		if text, ok := got.(string); want == nil && got != nil || want != nil && (!ok || !strings.HasPrefix(text, want.(string))) {
			t.Errorf("%.30s shows %.40v", path, got)
		}
	}
}
