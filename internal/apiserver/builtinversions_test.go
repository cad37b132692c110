package apiserver

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// TestDefinitionsInABuiltInVersionAreNotServed: such a definition changes neither the version's
// built-in kinds nor its documents.
func TestDefinitionsInABuiltInVersionAreNotServed(t *testing.T) {
	a := newAPI(t)
	definition := func(plural, group, kind, version string) string {
		return `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ` + plural + `.` + group + `, annotations: {api-approved.kubernetes.io: "unapproved, test-only"}}
spec:
  group: ` + group + `
  scope: Cluster
  names: {plural: ` + plural + `, kind: ` + kind + `}
  versions: [{name: ` + version + `, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {probe: {type: boolean}}}}}]`
	}
	const v1, v9 = "/apis/networking.k8s.io/v1", "/apis/networking.k8s.io/v9"
	documents := []string{v1, "/openapi/v3" + v1, "/openapi/v3/apis/apiextensions.k8s.io/v1"}
	before := map[string]object{}
	for _, path := range documents {
		before[path] = a.want(http.StatusOK, "GET", path, "")
	}
	a.define(definition("foos", "networking.k8s.io", "Foo", "v1"))
	a.define(definition("customresourcedefinitions", "apiextensions.k8s.io", "CustomResourceDefinition", "v1"))
	a.define(definition("bars", "networking.k8s.io", "Bar", "v9"))
	for _, path := range documents {
		if now := a.want(http.StatusOK, "GET", path, ""); !reflect.DeepEqual(now, before[path]) {
			t.Errorf("%s has changed", path)
		}
	}
	all, err := json.Marshal([]object{a.want(http.StatusOK, "GET", "/openapi/v2", ""), a.want(http.StatusOK, "GET", "/apis", "", "Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")})
	if err != nil {
		t.Fatal(err)
	}
	if text := string(all); strings.Contains(text, "foos") || !strings.Contains(text, "/apis/networking.k8s.io/v9/bars") || !strings.Contains(text, `"resource":"bars"`) {
		t.Error("the documents include a definition in a built-in version, or lack one in another version")
	}
	a.want(http.StatusNotFound, "GET", v1+"/foos", "")
	a.want(http.StatusNotFound, "POST", v1+"/foos", "{apiVersion: networking.k8s.io/v1, kind: Foo, metadata: {name: f}}")
	a.want(http.StatusCreated, "POST", v9+"/bars", "{apiVersion: networking.k8s.io/v9, kind: Bar, metadata: {name: b}}")

	// Its objects would be all definitions.
	a.want(http.StatusOK, "DELETE", definitionsPath+"/customresourcedefinitions.apiextensions.k8s.io", "")
	a.eventually("the definition is gone", func() bool {
		code, _, _ := a.do("GET", definitionsPath+"/customresourcedefinitions.apiextensions.k8s.io", "")
		return code == http.StatusNotFound
	})
	a.want(http.StatusOK, "GET", v9+"/bars/b", "")
	a.want(http.StatusOK, "GET", definitionsPath+"/foos.networking.k8s.io", "")
}
