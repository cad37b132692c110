package aggregation

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

func TestIncompleteOpenAPIDocumentIsRefused(t *testing.T) {
	part, err := groupVersionPart([]byte(`{"paths":{"/apis/a.example.com/v1/":{"get":{}}}}`), schema.GroupVersion{Group: "a.example.com", Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	if doc, err := toVersion3(part); err == nil {
		t.Errorf("an operation without responses became %+v", doc)
	}
}

// FuzzDocuments handles arbitrary documents of an extension server: each is refused, or can be
// served.
func FuzzDocuments(f *testing.F) {
	for _, text := range []string{
		`{"paths":{"apis/a.example.com/v1":{"serverRelativeURL":"/openapi/v3/apis/a.example.com/v1?hash=A"}}}`, `{"paths":{"apis/a.example.com/v1":{"serverRelativeURL":"://"}}}`,
		`{"swagger":"2.0","info":{"title":"t"},"paths":{"/apis/a.example.com/v1/widgets":{"get":{"operationId":"list","consumes":["*/*"],"produces":["application/json"],"parameters":[{"name":"a","in":"query","type":"string","uniqueItems":true},{"$ref":"#/parameters/p"},
{"name":"body","in":"body","schema":{"$ref":"#/definitions/x.Widget"}}],"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/x.Widget"}},"default":{"$ref":"#/responses/r"}},"x-kubernetes-action":"list"}}},
"parameters":{"p":{"name":"p","in":"path","type":"array","items":{"type":"string"}}},"definitions":{"x.Widget":{"type":"object","properties":{"self":{"$ref":"#/definitions/x.Widget"},"spec":{"type":"array","items":{"type":"string"}}},
"x-kubernetes-group-version-kind":[{"group":"a.example.com","kind":"Widget","version":"v1"}]}},"securityDefinitions":{"s":{"type":"apiKey","in":"header","name":"a"}},"security":[{"s":[]}]}`,
		`{"swagger":"2.0","paths":{"/apis/a.example.com/v1/":{"get":{"responses":{}}}},"definitions":{"io.k8s.api.core.v1.Pod":{"allOf":[null,{"$ref":"#/definitions/nothing"}]}}}`,
		`{"openapi":"3.0.0","paths":{"/apis/a.example.com/v1/widgets":{"get":{"parameters":[{"$ref":"#/components/parameters/p"}],"responses":{"200":{"content":{"*/*":{"schema":{"$ref":"#/components/schemas/x"}}}}}}}},"components":{"schemas":{"x":{"type":"object"}}}}`,
		`{"paths":null,"definitions":{"a":null}}`, `{"paths":{"/apis/a.example.com/v1/":null}}`, `{}`, `null`, `[]`,
	} {
		f.Add([]byte(text))
	}
	gv := schema.GroupVersion{Group: "a.example.com", Version: "v1"}
	const ours = `{"swagger":"2.0","info":{"title":"t"},"paths":{"/apis/apps/v1/":{"get":{"responses":{}}}},"definitions":{"io.k8s.api.core.v1.Pod":{"type":"object"},"x.Widget":{"type":"string"}}}`
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = findInIndex(data, gv)
		three := &spec3.OpenAPI{}
		if json.Unmarshal(data, three) == nil {
			_, _ = three.MarshalJSON()
		}
		part, err := groupVersionPart(data, gv)
		if err != nil {
			return
		}
		if doc, err := toVersion3(part); err == nil {
			if _, err := doc.MarshalJSON(); err != nil {
				t.Errorf("what was read as version 2 can not be written as version 3: %v", err)
			}
		}
		whole := &spec.Swagger{}
		if err := json.Unmarshal([]byte(ours), whole); err != nil {
			t.Fatal(err)
		}
		if err := mergePart(whole, part); err != nil {
			return
		}
		if _, err := whole.MarshalJSON(); err != nil {
			t.Errorf("the whole can not be written any more: %v", err)
		}
	})
}
