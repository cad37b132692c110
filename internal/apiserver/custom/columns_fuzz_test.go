package custom

import (
	"encoding/json"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"
)

// FuzzColumns prints objects with columns of any path. A row must have one cell for each column,
// and each cell must be encodable.
func FuzzColumns(f *testing.F) {
	for _, path := range []string{".spec.a", ".spec['a']", ".spec.l[*].x", ".spec.l[?(@.x==1)].x", ".spec.l[-1:]", "..x", ".spec.a,.spec.l", ".metadata.creationTimestamp", "}{range .spec.l[*]}{.x", ".spec.l[0:9:0]", "..x..x..x", ".spec.l[0,0]"} {
		for _, kind := range []string{"string", "integer", "number", "boolean", "date"} {
			f.Add(path, kind, []byte(`{"metadata":{"name":"n","creationTimestamp":"2020-01-01T00:00:00Z"},"spec":{"a":"x","l":[{"x":1},{"x":2.5},{"x":null}]}}`))
		}
	}
	anything := true
	f.Fuzz(func(t *testing.T, path, kind string, object []byte) {
		d := defined(&apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &anything}, func(c *apiextensionsv1.CustomResourceDefinition) {
			c.Spec.Versions[0].AdditionalPrinterColumns = []apiextensionsv1.CustomResourceColumnDefinition{{Name: "c", Type: kind, JSONPath: path}}
		})
		v, ok := d.Version("v1")
		if !ok {
			t.Fatal("an established definition is not served")
		}
		u := &unstructured.Unstructured{}
		if kjson.UnmarshalCaseSensitivePreserveInts(object, &u.Object) != nil || u.Object == nil {
			return
		}
		cells := v.Row(u, metav1.Now())
		if len(cells) != len(v.Columns()) {
			t.Errorf("%d cells in %d columns", len(cells), len(v.Columns()))
		}
		if _, err := json.Marshal(cells); err != nil {
			t.Errorf("cannot encode %v: %v", cells, err)
		}
	})
}
