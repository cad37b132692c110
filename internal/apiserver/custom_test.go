package apiserver

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// testAPI is a server to which a test talks over HTTP.
type testAPI struct {
	t *testing.T
	*httptest.Server
}

// newAPI is a server in which definitions become established.
func newAPI(t *testing.T) testAPI {
	t.Helper()
	s := newTestServer(t)
	s.runInBackground(s.custom.Run)
	h := httptest.NewServer(s.Handler())
	t.Cleanup(h.Close)
	return testAPI{t, h}
}

type object = map[string]any

// do sends YAML and returns the response's code, object and headers.
func (a testAPI) do(method, path, body string, headers ...string) (int, object, http.Header) {
	a.t.Helper()
	var reader io.Reader
	if body != "" {
		data, err := yaml.YAMLToJSON([]byte(body))
		if err != nil {
			a.t.Fatal(err)
		}
		if method == "RAW" {
			method, data = http.MethodPost, []byte(body)
		}
		reader = strings.NewReader(string(data))
	}
	r, err := http.NewRequestWithContext(a.t.Context(), method, a.URL+path, reader)
	if err != nil {
		a.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		a.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	var out object
	if err := json.Unmarshal(data, &out); err != nil {
		out = object{"message": string(data)}
	}
	return response.StatusCode, out, response.Header
}

// want is do with an expected code.
func (a testAPI) want(code int, method, path, body string, headers ...string) object {
	a.t.Helper()
	got, out, _ := a.do(method, path, body, headers...)
	if got != code {
		a.t.Fatalf("%s %s: %d instead of %d: %v", method, path, got, code, out["message"])
	}
	return out
}

// define creates a definition and waits until it is established.
func (a testAPI) define(crd string) {
	a.t.Helper()
	out := a.want(http.StatusCreated, "POST", definitionsPath, crd)
	name := at(out, "metadata", "name").(string)
	a.eventually(name+" is established", func() bool {
		return condition(a.want(http.StatusOK, "GET", definitionsPath+"/"+name, ""), "Established") == "True"
	})
}

const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

func (a testAPI) eventually(what string, fn func() bool) {
	a.t.Helper()
	for range 6000 {
		if fn() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	a.t.Fatalf("not within the time limit: %s", what)
}

func at(v any, path ...any) any {
	for _, p := range path {
		switch key := p.(type) {
		case string:
			m, _ := v.(object)
			v = m[key]
		case int:
			list, _ := v.([]any)
			if key >= len(list) {
				return nil
			}
			v = list[key]
		}
	}
	return v
}

func condition(crd object, kind string) string {
	conditions, _ := at(crd, "status", "conditions").([]any)
	for _, c := range conditions {
		if at(c, "type") == kind {
			return at(c, "status").(string)
		}
	}
	return ""
}

const crontabs = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: crontabs.stable.example.com}
spec:
  group: stable.example.com
  scope: Namespaced
  names: {plural: crontabs, singular: crontab, kind: CronTab, shortNames: [ct], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .status.selector}
    selectableFields:
    - jsonPath: .spec.cronSpec
    additionalPrinterColumns:
    - {name: Spec, type: string, jsonPath: .spec.cronSpec}
    - {name: Replicas, type: integer, jsonPath: .spec.replicas}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            x-kubernetes-validations:
            - {rule: "self.replicas <= 10", message: "too many", reason: FieldValueForbidden, fieldPath: .replicas}
            - {rule: "self.cronSpec == oldSelf.cronSpec || self.cronSpec != 'never'", messageExpression: "'not ' + self.cronSpec"}
            required: [cronSpec]
            properties:
              cronSpec: {type: string, maxLength: 30}
              replicas: {type: integer, default: 1, minimum: 0}
          status:
            type: object
            properties:
              replicas: {type: integer}
              selector: {type: string}
`

const crontab = `
apiVersion: stable.example.com/v1
kind: CronTab
metadata: {name: one, labels: {a: b}}
spec: {cronSpec: "* * *"}
status: {replicas: 7}
`

const crontabsPath = "/apis/stable.example.com/v1/namespaces/default/crontabs"

func TestCustomResourceIsServedByItsSchema(t *testing.T) {
	a := newAPI(t)
	a.want(http.StatusNotFound, "GET", crontabsPath, "")
	a.define(crontabs)
	created := a.want(http.StatusCreated, "POST", crontabsPath, crontab)
	if at(created, "spec", "replicas") != 1.0 || created["status"] != nil || at(created, "metadata", "generation") != 1.0 {
		t.Errorf("defaults, no status, generation 1: %v", created)
	}
	if manager := at(created, "metadata", "managedFields", 0, "fieldsV1", "f:spec", "f:cronSpec"); manager == nil {
		t.Errorf("fields are not tracked: %v", at(created, "metadata", "managedFields"))
	}
	got := a.want(http.StatusOK, "GET", crontabsPath+"/one", "")
	if got["kind"] != "CronTab" || at(got, "metadata", "uid") != at(created, "metadata", "uid") {
		t.Errorf("got %v", got)
	}
	list := a.want(http.StatusOK, "GET", "/apis/stable.example.com/v1/crontabs?labelSelector=a=b", "")
	if list["kind"] != "CronTabList" || at(list, "items", 0, "kind") != "CronTab" || at(list, "items", 1) != nil {
		t.Errorf("list %v", list)
	}
}
