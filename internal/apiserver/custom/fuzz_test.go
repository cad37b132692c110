package custom

import (
	"context"
	"encoding/json"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"github.com/knarr-project/knarr/internal/cel"
)

// defined returns an established definition of one version with this schema.
func defined(props *apiextensionsv1.JSONSchemaProps, change ...func(*apiextensionsv1.CustomResourceDefinition)) *Definition {
	c := &apiextensionsv1.CustomResourceDefinition{}
	c.Name, c.UID, c.ResourceVersion, c.Generation = "widgets.example.com", "u", "1", 1
	names := apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"}
	c.Spec = apiextensionsv1.CustomResourceDefinitionSpec{Group: "example.com", Scope: apiextensionsv1.NamespaceScoped, Names: names,
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: props}}}}
	c.Status = apiextensionsv1.CustomResourceDefinitionStatus{AcceptedNames: names, StoredVersions: []string{"v1"},
		Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}}
	for _, fn := range change {
		fn(c)
	}
	return NewDefinition(Outline(c), func() (*apiextensionsv1.CustomResourceDefinition, error) { return c, nil }, nil, nil)
}

// valid reports whether the API would accept the definition.
func valid(c *apiextensionsv1.CustomResourceDefinition) bool {
	internal := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(c.DeepCopy(), internal, nil); err != nil {
		return false
	}
	return len(validation.ValidateCustomResourceDefinition(context.Background(), internal)) == 0
}

// exercise handles an object as requests do.
func exercise(t *testing.T, v *Version, data []byte) {
	t.Helper()
	u := &unstructured.Unstructured{}
	if kjson.UnmarshalCaseSensitivePreserveInts(data, &u.Object) != nil || u.Object == nil {
		return
	}
	u.SetGroupVersionKind(v.GVK())
	if _, err := v.Take(u); err != nil {
		return
	}
	again := u.DeepCopy()
	if unknown, err := v.Take(again); err != nil || len(unknown) > 0 {
		t.Errorf("an accepted object was refused the second time: %v %v", unknown, err)
	}
	v.prepareCreate(u)
	_ = v.validate(u)
	_ = v.validateUpdate(again, u)
	_ = v.validateStatus(again, u)
	stored, err := v.EncodeStored(u)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := DecodeStored(stored, 7)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.FromStored(raw); err != nil {
		t.Fatal(err)
	}
	v.Row(u, u.GetCreationTimestamp())
	v.Fields(u)
}

func FuzzSchemas(f *testing.F) {
	f.Add([]byte(`{"type":"object","properties":{"spec":{"type":"object","properties":{"n":{"type":"integer","default":1},"l":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}}}}}}`), []byte(`{"spec":{"l":["a","a"],"x":1}}`))
	f.Add([]byte(`{"type":"object","x-kubernetes-preserve-unknown-fields":true}`), []byte(`{"a":{"b":[1,2.5,null]},"metadata":{"name":"x"}}`))
	f.Add([]byte(`{"type":"object","properties":{"e":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true},"p":{"x-kubernetes-int-or-string":true}}}`), []byte(`{"e":{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"a":1}}},"p":"1%"}`))
	f.Fuzz(func(t *testing.T, schema, object []byte) {
		props := &apiextensionsv1.JSONSchemaProps{}
		if json.Unmarshal(schema, props) != nil {
			return
		}
		d := defined(props)
		c, _ := d.whole()
		if !valid(c) {
			return
		}
		v, ok := d.Version("v1")
		if !ok {
			t.Fatal("an established definition is not served")
		}
		exercise(t, v, object)
		v.OpenAPI()
	})
}

func FuzzRules(f *testing.F) {
	cel.BoundSharedEnvironments()
	for _, rule := range []string{"self.n > 1", "self.l.all(x, x.startsWith('a'))", "oldSelf.n <= self.n", "self.m['a'] == 'b'", "quantity('1Gi').isGreaterThan(quantity('1'))",
		"has(self.n) ? self.n % 2 == 0 : true", "self.l.map(x, x + x).size() < 3", "ip('10.0.0.1').family() == 4"} {
		f.Add(rule, []byte(`{"spec":{"n":2,"l":["a"],"m":{"a":"b"}}}`))
	}
	ten := int64(10)
	f.Fuzz(func(t *testing.T, rule string, object []byte) {
		text := apiextensionsv1.JSONSchemaProps{Type: "string", MaxLength: &ten}
		spec := apiextensionsv1.JSONSchemaProps{Type: "object", XValidations: apiextensionsv1.ValidationRules{{Rule: rule, MessageExpression: "'it is ' + " + rule}},
			Properties: map[string]apiextensionsv1.JSONSchemaProps{
				"n": {Type: "integer"},
				"l": {Type: "array", MaxItems: &ten, Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &text}},
				"m": {Type: "object", MaxProperties: &ten, AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: &text}},
			}}
		d := defined(&apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec}})
		c, _ := d.whole()
		if !valid(c) {
			c.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].XValidations[0].MessageExpression = ""
			if !valid(c) {
				return
			}
		}
		v, _ := d.Version("v1")
		exercise(t, v, object)
	})
}

func FuzzConversionResponses(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{"uid":"1","result":{"status":"Success"},"convertedObjects":[{"apiVersion":"example.com/v2","kind":"Widget","metadata":{"name":"a"}}]}}`))
	f.Add([]byte(`{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"ConversionReview","response":{"convertedObjects":[null]}}`))
	before := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "a", "uid": "x"}}}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, version := range []string{"v1beta1", "v1"} {
			objects, err := conversionResponse(data, version, types.UID("1"))
			if err != nil || len(objects) == 0 {
				continue
			}
			out, err := readConverted(objects[0].Raw)
			if err != nil {
				continue
			}
			if err := checkConverted(before, out, schema.GroupVersion{Group: "example.com", Version: "v2"}); err == nil && (out.GetName() != "a" || out.GetUID() != "x") {
				t.Errorf("metadata was changed: %v", out.Object)
			}
		}
	})
}
