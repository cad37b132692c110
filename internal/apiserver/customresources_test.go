package apiserver

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func body(spec string) string {
	return "{apiVersion: stable.example.com/v1, kind: CronTab, metadata: {name: x}, spec: " + spec + "}"
}

func TestCustomResourcesAreValidatedByTheirSchema(t *testing.T) {
	a := newAPI(t)
	a.define(crontabs)
	for name, tt := range map[string]struct{ body, message string }{
		"a required field is missing": {body("{}"), `CronTab.stable.example.com "x" is invalid: [spec.cronSpec: Required value, <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]`},
		"a number is too small":       {body("{cronSpec: a, replicas: -1}"), `CronTab.stable.example.com "x" is invalid: [spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or equal to 0, .spec.replicas: Invalid value: -1: should be a non-negative integer]`},
		"a rule fails":                {body("{cronSpec: a, replicas: 11}"), `CronTab.stable.example.com "x" is invalid: spec.replicas: Forbidden: too many`},
		"another kind":                {strings.Replace(body("{cronSpec: a}"), "CronTab", "CronTap", 1), `CronTap.stable.example.com "x" is invalid: [kind: Invalid value: "CronTap": must be CronTab, spec: Invalid value: "object": no such key: replicas evaluating rule: too many]`},
		"a label is a number":         {strings.Replace(body("{cronSpec: a}"), "name: x", "name: x, labels: {a: 1}", 1), `CronTab in version "v1" cannot be handled as a CronTab: json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string`},
		"another version":             {strings.Replace(body("{cronSpec: a}"), "/v1", "/v2", 1), `the API version in the data (stable.example.com/v2) does not match the expected API version (stable.example.com/v1)`},
		"the kind is missing":         {strings.Replace(body("{cronSpec: a}"), "kind: CronTab, ", "", 1), `the object provided is unrecognized (must be of type CronTab): Object 'Kind' is missing in`},
	} {
		t.Run(name, func(t *testing.T) {
			a.t = t
			code, out, _ := a.do("POST", crontabsPath, tt.body)
			if message, _ := out["message"].(string); code < 400 || !strings.HasPrefix(message, tt.message) {
				t.Errorf("%d %s\nwant %s", code, message, tt.message)
			}
		})
	}
}

func TestRulesAreNotEvaluatedOnInvalidMetadata(t *testing.T) {
	a := newAPI(t)
	a.define(crontabs)
	a.want(http.StatusCreated, "POST", crontabsPath, crontab)
	long := strings.Repeat("x", 300)
	code, out, _ := a.do("PATCH", crontabsPath+"/one", `{"metadata":{"managedFields":[{"manager":"m","operation":"Update","apiVersion":"stable.example.com/v1","time":"2024-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{}},"subresource":"`+long+`"}]}}`,
		"Content-Type", "application/merge-patch+json")
	message, _ := out["message"].(string)
	if code != http.StatusUnprocessableEntity || !strings.Contains(message, "metadata.managedFields[0].subresource: Too long: may not be more than 256 bytes") || !strings.Contains(message, "<nil>: Invalid value: null: some validation rules were not checked") {
		t.Errorf("%d %s", code, message)
	}
}

func TestUnknownFieldsOfEmbeddedObjectsAreReportedLast(t *testing.T) {
	a := newAPI(t)
	a.define(strings.Replace(crontabs, "              cronSpec:", "              pod: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}\n              cronSpec:", 1))
	code, out, _ := a.do("RAW", crontabsPath+"?fieldValidation=Strict",
		`{"apiVersion":"stable.example.com/v1","kind":"CronTab","metadata":{"name":"x","odd":1},"spec":{"pod":{"apiVersion":"v1","kind":"Pod","metadata":{"odd":1}},"cronSpec":"a","more":1}}`)
	want := `CronTab in version "v1" cannot be handled as a CronTab: strict decoding error: unknown field "metadata.odd", unknown field "spec.more", unknown field "spec.pod.metadata.odd"`
	if code != http.StatusBadRequest || out["message"] != want {
		t.Errorf("%d %v", code, out["message"])
	}
}

func TestUnknownAndDuplicateFieldsOfCustomResources(t *testing.T) {
	a := newAPI(t)
	a.define(crontabs)
	const double = `{"apiVersion":"stable.example.com/v1","kind":"CronTab","metadata":{"name":"x","odd":1},"spec":{"cronSpec":"a","cronSpec":"b","more":1}}`
	code, out, _ := a.do("RAW", crontabsPath+"?fieldValidation=Strict", double)
	want := `CronTab in version "v1" cannot be handled as a CronTab: strict decoding error: duplicate field "spec.cronSpec", unknown field "metadata.odd", unknown field "spec.more"`
	if code != http.StatusBadRequest || out["message"] != want {
		t.Errorf("strict: %d %v", code, out["message"])
	}
	code, out, header := a.do("RAW", crontabsPath, double)
	if code != http.StatusCreated || at(out, "spec", "more") != nil || len(header.Values("Warning")) != 3 {
		t.Errorf("warn: %d %v %v", code, out, header.Values("Warning"))
	}
	patch := []string{"Content-Type", "application/merge-patch+json"}
	code, out, _ = a.do("PATCH", crontabsPath+"/x?fieldValidation=Strict", "{spec: {none: 1}}", patch...)
	if message, _ := out["message"].(string); code != http.StatusUnprocessableEntity || !strings.HasSuffix(message, `strict decoding error: unknown field "spec.none"`) {
		t.Errorf("patch: %d %v", code, message)
	}
	code, out, _ = a.do("PATCH", crontabsPath+"/x", "{spec: {none: 1}}", "Content-Type", "application/strategic-merge-patch+json")
	if code != http.StatusUnsupportedMediaType {
		t.Errorf("strategic merge patch: %d %v", code, out["message"])
	}
}

func TestStatusScaleAndGeneration(t *testing.T) {
	a := newAPI(t)
	a.define(crontabs)
	a.want(http.StatusCreated, "POST", crontabsPath, crontab)
	merge := []string{"Content-Type", "application/merge-patch+json"}
	out := a.want(http.StatusOK, "PATCH", crontabsPath+"/one/status", "{spec: {replicas: 9}, status: {replicas: 3, selector: a=b}}", merge...)
	if at(out, "spec", "replicas") != 1.0 || at(out, "status", "replicas") != 3.0 || at(out, "metadata", "generation") != 1.0 {
		t.Errorf("status: %v", out)
	}
	out = a.want(http.StatusOK, "PATCH", crontabsPath+"/one", "{spec: {replicas: 2}, status: {replicas: 9}}", merge...)
	if at(out, "spec", "replicas") != 2.0 || at(out, "status", "replicas") != 3.0 || at(out, "metadata", "generation") != 2.0 {
		t.Errorf("main: %v", out)
	}
	out = a.want(http.StatusOK, "PATCH", crontabsPath+"/one", "{metadata: {labels: {c: d}}}", merge...)
	if at(out, "metadata", "generation") != 2.0 {
		t.Errorf("metadata changes the generation: %v", out)
	}
	scale := a.want(http.StatusOK, "GET", crontabsPath+"/one/scale", "")
	if at(scale, "spec", "replicas") != 2.0 || at(scale, "status", "replicas") != 3.0 || at(scale, "status", "selector") != "a=b" {
		t.Errorf("scale: %v", scale)
	}
	a.want(http.StatusOK, "PUT", crontabsPath+"/one/scale", "{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: one, namespace: default}, spec: {replicas: 5}}")
	if out = a.want(http.StatusOK, "GET", crontabsPath+"/one", ""); at(out, "spec", "replicas") != 5.0 || at(out, "metadata", "generation") != 3.0 {
		t.Errorf("scaled: %v", out)
	}
	code, refused, _ := a.do("PUT", crontabsPath+"/one/scale", "{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: one, namespace: default}, spec: {replicas: 50}}")
	if code != http.StatusUnprocessableEntity || refused["message"] != `CronTab.stable.example.com "one" is invalid: spec.replicas: Forbidden: too many` {
		t.Errorf("a scale beyond the maximum: %d %v", code, refused["message"])
	}
}

func TestFieldsOfCustomResourcesAreOwnedBySchema(t *testing.T) {
	a := newAPI(t)
	a.define(crontabs)
	apply := []string{"Content-Type", "application/apply-patch+yaml"}
	const config = `{apiVersion: stable.example.com/v1, kind: CronTab, metadata: {name: one}, spec: {cronSpec: %s, replicas: 3}}`
	a.want(http.StatusCreated, "PATCH", crontabsPath+"/one?fieldManager=first", fmt.Sprintf(config, "a"), apply...)
	out := a.want(http.StatusConflict, "PATCH", crontabsPath+"/one?fieldManager=second", fmt.Sprintf(config, "b"), apply...)
	if out["message"] != `Apply failed with 1 conflict: conflict with "first": .spec.cronSpec` {
		t.Errorf("%v", out["message"])
	}
	out = a.want(http.StatusOK, "PATCH", crontabsPath+"/one?fieldManager=second&force=true", fmt.Sprintf(config, "b"), apply...)
	if at(out, "spec", "cronSpec") != "b" || at(out, "spec", "replicas") != 3.0 {
		t.Errorf("forced: %v", out)
	}
}

func TestDefinitionIsAppliedByItsSchema(t *testing.T) {
	a := newAPI(t)
	apply := []string{"Content-Type", "application/apply-patch+yaml"}
	path := definitionsPath + "/crontabs.stable.example.com?fieldManager=me"
	a.want(http.StatusCreated, "PATCH", path, crontabs, apply...)
	out := a.want(http.StatusOK, "PATCH", path, crontabs, apply...)
	if at(out, "metadata", "managedFields", 0, "fieldsV1", "f:spec", "f:versions", `k:{"name":"v1"}`) != nil {
		t.Errorf("versions have no key in the published schema: %v", at(out, "metadata", "managedFields"))
	}
	a.eventually("conditions are keyed by their type", func() bool {
		out := a.want(http.StatusOK, "GET", definitionsPath+"/crontabs.stable.example.com", "")
		entries, _ := at(out, "metadata", "managedFields").([]any)
		for _, e := range entries {
			if at(e, "subresource") == "status" && at(e, "fieldsV1", "f:status", "f:conditions", `k:{"type":"Established"}`) != nil {
				return true
			}
		}
		return false
	})
}

func TestCustomResourcesAsATable(t *testing.T) {
	a := newAPI(t)
	a.define(crontabs)
	a.want(http.StatusCreated, "POST", crontabsPath, crontab)
	out := a.want(http.StatusOK, "GET", crontabsPath, "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	cells := at(out, "rows", 0, "cells").([]any)
	if len(cells) != 4 || cells[0] != "one" || cells[1] != "* * *" || cells[2] != 1.0 || at(out, "columnDefinitions", 1, "name") != "Spec" {
		t.Errorf("%v", out)
	}
	if code, _, _ := a.do("GET", crontabsPath, "", "Accept", "application/vnd.kubernetes.protobuf"); code != http.StatusNotAcceptable {
		t.Errorf("protobuf: %d", code)
	}
	if code, _, header := a.do("GET", crontabsPath, "", "Accept", "application/vnd.kubernetes.protobuf, application/json"); code != http.StatusOK || header.Get("Content-Type") != "application/json" {
		t.Errorf("protobuf or JSON: %d %s", code, header.Get("Content-Type"))
	}
}

// stream is an open watch.
type stream struct {
	t *testing.T
	r *bufio.Reader
}

func (a testAPI) watch(path string) stream {
	a.t.Helper()
	r, err := http.NewRequestWithContext(a.t.Context(), http.MethodGet, a.URL+path, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { _ = response.Body.Close() })
	return stream{a.t, bufio.NewReader(response.Body)}
}

func (s stream) next() (kind, name string) {
	s.t.Helper()
	line, err := s.r.ReadBytes('\n')
	if err != nil {
		return err.Error(), ""
	}
	var event object
	if err := json.Unmarshal(line, &event); err != nil {
		s.t.Fatal(err)
	}
	name, _ = at(event, "object", "metadata", "name").(string)
	return event["type"].(string), name
}

func TestSelectableFieldsOfCustomResources(t *testing.T) {
	a := newAPI(t)
	a.define(crontabs)
	make := func(name, spec string) {
		a.want(http.StatusCreated, "POST", crontabsPath, "{apiVersion: stable.example.com/v1, kind: CronTab, metadata: {name: "+name+"}, spec: {cronSpec: "+spec+"}}")
	}
	make("one", "a")
	make("two", "b")
	list := a.want(http.StatusOK, "GET", crontabsPath+"?fieldSelector=spec.cronSpec%3Da", "")
	if at(list, "items", 0, "metadata", "name") != "one" || at(list, "items", 1) != nil {
		t.Errorf("%v", list)
	}
	code, out, _ := a.do("GET", crontabsPath+"?fieldSelector=spec.replicas%3D1", "")
	if code != http.StatusBadRequest || out["message"] != "field label not supported: spec.replicas" {
		t.Errorf("%d %v", code, out["message"])
	}
	rv := at(list, "metadata", "resourceVersion").(string)
	w := a.watch(crontabsPath + "?watch=1&fieldSelector=spec.cronSpec%3Da&resourceVersion=" + rv)
	merge := []string{"Content-Type", "application/merge-patch+json"}
	a.want(http.StatusOK, "PATCH", crontabsPath+"/two", "{spec: {cronSpec: a}}", merge...)
	// Now the watch has no pending events, as most watches most of the time.
	if kind, name := w.next(); kind+" "+name != "ADDED two" {
		t.Errorf("%s %s at first", kind, name)
	}
	a.want(http.StatusOK, "PATCH", crontabsPath+"/two", "{spec: {replicas: 2}}", merge...)
	a.want(http.StatusOK, "PATCH", crontabsPath+"/two", "{spec: {cronSpec: c}}", merge...)
	a.want(http.StatusOK, "PATCH", crontabsPath+"/two", "{spec: {replicas: 3}}", merge...)
	a.want(http.StatusOK, "DELETE", crontabsPath+"/one", "")
	for _, want := range []string{"MODIFIED two", "DELETED two", "DELETED one"} {
		if kind, name := w.next(); kind+" "+name != want {
			t.Errorf("%s %s instead of %s", kind, name, want)
		}
	}
}

const twoVersions = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: hosts.two.example.com}
spec:
  group: two.example.com
  scope: Namespaced
  names: {plural: hosts, singular: host, kind: Host}
  %s
  versions:
  - name: v1
    served: true
    storage: true
    selectableFields: [{jsonPath: .hostPort}]
    schema: {openAPIV3Schema: {type: object, properties: {hostPort: {type: string}, old: {type: string, default: x}}}}
  - name: v2
    served: true
    storage: false
    deprecated: true
    selectableFields: [{jsonPath: .host}]
    schema: {openAPIV3Schema: {type: object, properties: {host: {type: string}, port: {type: string}}}}
`

func hostsIn(version string) string {
	return "/apis/two.example.com/" + version + "/namespaces/default/hosts"
}

func TestVersionsWithoutConversion(t *testing.T) {
	a := newAPI(t)
	a.define(fmt.Sprintf(twoVersions, "preserveUnknownFields: false"))
	a.want(http.StatusCreated, "POST", hostsIn("v1"), "{apiVersion: two.example.com/v1, kind: Host, metadata: {name: h}, hostPort: 'a:1'}")
	code, out, header := a.do("GET", hostsIn("v2")+"/h", "")
	if code != http.StatusOK || out["apiVersion"] != "two.example.com/v2" || out["hostPort"] != nil || out["old"] != nil {
		t.Errorf("%d %v", code, out)
	}
	if got := header.Get("Warning"); got != `299 - "two.example.com/v2 Host is deprecated"` {
		t.Errorf("warning %q", got)
	}
	if out = a.want(http.StatusOK, "GET", hostsIn("v1")+"/h", ""); out["hostPort"] != "a:1" || out["old"] != "x" {
		t.Errorf("%v", out)
	}
	// Fields that the storage version lacks are lost, and the storage version's defaults apply.
	out = a.want(http.StatusCreated, "POST", hostsIn("v2"), "{apiVersion: two.example.com/v2, kind: Host, metadata: {name: i}, host: b}")
	if out["host"] != nil {
		t.Errorf("the answer differs from the stored object: %v", out)
	}
	if out = a.want(http.StatusOK, "GET", hostsIn("v1")+"/i", ""); out["old"] != "x" || out["host"] != nil {
		t.Errorf("%v", out)
	}
}

// convertHosts is a conversion webhook between v1's hostPort and v2's host and port.
func convertHosts(w http.ResponseWriter, r *http.Request) {
	if r.UserAgent() != "kube-apiserver-admission" {
		http.Error(w, "who is "+r.UserAgent()+"?", http.StatusForbidden)
		return
	}
	var review object
	data, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(data, &review)
	var out []any
	for _, o := range at(review, "request", "objects").([]any) {
		o := o.(object)
		if o["apiVersion"] != at(review, "request", "desiredAPIVersion") {
			if hostPort, ok := o["hostPort"].(string); ok {
				o["host"], o["port"], _ = strings.Cut(hostPort, ":")
				delete(o, "hostPort")
			} else if o["host"] != nil {
				o["hostPort"] = o["host"].(string) + ":" + o["port"].(string)
				delete(o, "host")
				delete(o, "port")
			}
			o["apiVersion"] = at(review, "request", "desiredAPIVersion")
		}
		out = append(out, o)
	}
	_ = json.NewEncoder(w).Encode(object{"apiVersion": review["apiVersion"], "kind": "ConversionReview", "response": object{
		"uid": at(review, "request", "uid"), "result": object{"status": "Success"}, "convertedObjects": out}})
}

func TestVersionsWithAConversionWebhook(t *testing.T) {
	a := newAPI(t)
	hook := httptest.NewTLSServer(http.HandlerFunc(convertHosts))
	defer hook.Close()
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw}))
	a.define(fmt.Sprintf(twoVersions, fmt.Sprintf(
		"conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: %q, caBundle: %s}}}", hook.URL, ca)))
	a.want(http.StatusCreated, "POST", hostsIn("v1"), "{apiVersion: two.example.com/v1, kind: Host, metadata: {name: h}, hostPort: 'a:1'}")
	a.want(http.StatusCreated, "POST", hostsIn("v2"), "{apiVersion: two.example.com/v2, kind: Host, metadata: {name: i}, host: b, port: '2'}")
	if out := a.want(http.StatusOK, "GET", hostsIn("v2")+"/h", ""); out["host"] != "a" || out["port"] != "1" {
		t.Errorf("v2: %v", out)
	}
	if out := a.want(http.StatusOK, "GET", hostsIn("v1")+"/i", ""); out["hostPort"] != "b:2" {
		t.Errorf("v1: %v", out)
	}
	list := a.want(http.StatusOK, "GET", hostsIn("v2")+"?fieldSelector=host%3Da", "")
	if at(list, "items", 0, "metadata", "name") != "h" || at(list, "items", 1) != nil {
		t.Errorf("the fields of v2 are not those of converted objects: %v", list)
	}
	hook.Close()
	if out := a.want(http.StatusOK, "GET", hostsIn("v2")+"/h", ""); out["host"] != "a" {
		t.Errorf("a converted object was converted again: %v", out)
	}
	code, out, _ := a.do("PATCH", hostsIn("v2")+"/h", "{port: '3'}", "Content-Type", "application/merge-patch+json")
	if message, _ := out["message"].(string); code != http.StatusInternalServerError || !strings.HasPrefix(message, "conversion webhook for two.example.com/v1, Kind=Host failed: Post ") {
		t.Errorf("without webhook: %d %v", code, message)
	}
	_, page := fetch(t, a.URL+"/metrics")
	for _, want := range []string{
		`apiserver_conversion_webhook_request_total{failure_type="",result="success"} `, `apiserver_conversion_webhook_duration_seconds_count{failure_type="",result="success"} `,
		`apiserver_conversion_webhook_request_total{failure_type="conversion_webhook_call_failure",result="failure"} `,
		`apiserver_crd_conversion_webhook_duration_seconds_count{crd_name="hosts.two.example.com",from_version="v1",succeeded="true",to_version="v2"} `,
		`apiserver_crd_conversion_webhook_duration_seconds_count{crd_name="hosts.two.example.com",from_version="v1",succeeded="false",to_version="v2"} `,
	} {
		if !strings.Contains(page, "\n"+want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

func TestNamesOfDefinitionsAreUnique(t *testing.T) {
	a := newAPI(t)
	a.define(crontabs)
	other := strings.NewReplacer("crontabs", "cronlists", "kind: CronTab", "kind: CronList").Replace(crontabs)
	a.want(http.StatusCreated, "POST", definitionsPath, other)
	const path = definitionsPath + "/cronlists.stable.example.com"
	a.eventually("the second definition is refused its names", func() bool {
		crd := a.want(http.StatusOK, "GET", path, "")
		return condition(crd, "NamesAccepted") == "False" && condition(crd, "Established") == "False" && at(crd, "status", "conditions", 0, "reason") == "ShortNamesConflict"
	})
	a.want(http.StatusNotFound, "GET", "/apis/stable.example.com/v1/cronlists", "")
	a.want(http.StatusOK, "DELETE", definitionsPath+"/crontabs.stable.example.com", "")
	a.eventually("it gets them when they are free", func() bool {
		return condition(a.want(http.StatusOK, "GET", path, ""), "Established") == "True"
	})
	a.want(http.StatusOK, "GET", "/apis/stable.example.com/v1/cronlists", "")
}

func TestDeletingADefinitionDeletesItsObjects(t *testing.T) {
	a := newAPI(t)
	a.define(crontabs)
	a.want(http.StatusCreated, "POST", crontabsPath, strings.Replace(crontab, "name: one", "name: one, finalizers: [example.com/stay]", 1))
	w := a.watch(crontabsPath + "?watch=1")
	if kind, _ := w.next(); kind != "ADDED" {
		t.Fatal(kind)
	}
	out := a.want(http.StatusOK, "DELETE", definitionsPath+"/crontabs.stable.example.com", "")
	if condition(out, "Terminating") != "True" || at(out, "metadata", "deletionTimestamp") == nil || at(out, "metadata", "finalizers", 0) != "customresourcecleanup.apiextensions.k8s.io" {
		t.Errorf("%v", out)
	}
	a.eventually("the object is being deleted", func() bool {
		code, out, _ := a.do("GET", crontabsPath+"/one", "")
		return code == http.StatusOK && at(out, "metadata", "deletionTimestamp") != nil
	})
	code, refused, _ := a.do("POST", crontabsPath, strings.Replace(crontab, "name: one", "name: two", 1))
	if code != http.StatusMethodNotAllowed || refused["message"] != "create not allowed while custom resource definition is terminating" {
		t.Errorf("%d %v", code, refused["message"])
	}
	code, refused, _ = a.do("PATCH", crontabsPath+"/two?fieldManager=m&dryRun=All", strings.Replace(crontab, "name: one", "name: two", 1), "Content-Type", "application/apply-patch+yaml")
	if code != http.StatusMethodNotAllowed || refused["message"] != "create not allowed while custom resource definition is terminating" {
		t.Errorf("%d %v", code, refused["message"])
	}
	if out := a.want(http.StatusOK, "GET", "/apis/stable.example.com/v1", ""); fmt.Sprint(at(out, "resources", 0, "verbs")) != "[delete deletecollection get list watch]" {
		t.Errorf("discovery: %v", out)
	}
	a.want(http.StatusOK, "PATCH", crontabsPath+"/one", "{metadata: {finalizers: null}}", "Content-Type", "application/merge-patch+json")
	a.eventually("the definition is gone", func() bool {
		code, _, _ := a.do("GET", definitionsPath+"/crontabs.stable.example.com", "")
		return code == http.StatusNotFound
	})
	a.want(http.StatusNotFound, "GET", crontabsPath, "")
	for kind := ""; kind != "ERROR" && kind != "EOF"; { // the watch ends
		kind, _ = w.next()
	}
	a.define(crontabs)
	if list := a.want(http.StatusOK, "GET", crontabsPath, ""); at(list, "items", 0) != nil {
		t.Errorf("objects are left: %v", list)
	}
}

func TestDocumentsOfCustomKinds(t *testing.T) {
	a := newAPI(t)
	a.define(crontabs)
	gv := a.want(http.StatusOK, "GET", "/apis/stable.example.com/v1", "")
	names := ""
	for i := range 4 {
		if name, ok := at(gv, "resources", i, "name").(string); ok {
			names += name + " "
		}
	}
	if names != "crontabs crontabs/status crontabs/scale " || at(gv, "resources", 0, "shortNames", 0) != "ct" {
		t.Errorf("%v", gv)
	}
	doc := a.want(http.StatusOK, "GET", "/openapi/v3/apis/stable.example.com/v1", "")
	if at(doc, "components", "schemas", "com.example.stable.v1.CronTab", "properties", "spec", "properties", "cronSpec", "maxLength") != 30.0 {
		t.Errorf("version 3: %v", at(doc, "components", "schemas", "com.example.stable.v1.CronTab"))
	}
	doc = a.want(http.StatusOK, "GET", "/openapi/v2", "")
	if at(doc, "definitions", "com.example.stable.v1.CronTab", "properties", "spec", "required", 0) != "cronSpec" ||
		at(doc, "definitions", "com.example.stable.v1.CronTab", "properties", "spec", "properties", "replicas", "default") != nil ||
		at(doc, "paths", "/apis/stable.example.com/v1/namespaces/{namespace}/crontabs/{name}/scale") == nil {
		t.Errorf("version 2: %v", at(doc, "definitions", "com.example.stable.v1.CronTab"))
	}
	a.want(http.StatusOK, "DELETE", definitionsPath+"/crontabs.stable.example.com", "")
	a.eventually("the documents forget the kind", func() bool {
		code, _, _ := a.do("GET", "/openapi/v3/apis/stable.example.com/v1", "")
		gone, _, _ := a.do("GET", "/apis/stable.example.com", "")
		return code == http.StatusNotFound && gone == http.StatusNotFound
	})
}

func TestUnchangedInvalidFieldsAreAccepted(t *testing.T) {
	a := newAPI(t)
	a.define(strings.Replace(crontabs, "maxLength: 30", "maxLength: 60", 1))
	long := strings.Repeat("x", 50)
	a.want(http.StatusCreated, "POST", crontabsPath, "{apiVersion: stable.example.com/v1, kind: CronTab, metadata: {name: one}, spec: {cronSpec: "+long+"}}")
	merge := []string{"Content-Type", "application/json-patch+json"}
	a.want(http.StatusOK, "PATCH", definitionsPath+"/crontabs.stable.example.com",
		`[{"op":"replace","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/cronSpec/maxLength","value":30}]`, merge...)
	a.want(http.StatusOK, "PATCH", crontabsPath+"/one", `[{"op":"replace","path":"/spec/replicas","value":3}]`, merge...)
	code, out, _ := a.do("PATCH", crontabsPath+"/one", `[{"op":"replace","path":"/spec/cronSpec","value":"`+long+`y"}]`, merge...)
	if message, _ := out["message"].(string); code != http.StatusUnprocessableEntity || !strings.Contains(message, "spec.cronSpec: Too long: may not be more than 30 bytes") {
		t.Errorf("%d %v", code, message)
	}
}

func TestUnknownFormatsAreWarnedAbout(t *testing.T) {
	a := newAPI(t)
	code, out, header := a.do("POST", definitionsPath, strings.Replace(crontabs, "maxLength: 30", "format: odd", 1))
	if code != http.StatusCreated || header.Get("Warning") != `299 - "unrecognized format \"odd\""` {
		t.Errorf("%d %v %v", code, out["message"], header)
	}
}

func TestDefinitionsAreValidated(t *testing.T) {
	a := newAPI(t)
	for name, tt := range map[string]struct{ from, to, message string }{
		"the name is not plural.group": {"name: crontabs.stable", "name: crontab.stable", `metadata.name: Invalid value: "crontab.stable.example.com": must be spec.names.plural+"."+spec.group`},
		"a schema is not structural":   {"type: object\n        properties:\n          spec:", "properties:\n          spec:", `spec.validation.openAPIV3Schema.type: Required value: must not be empty at the root`},
		"a rule does not compile":      {"self.replicas <= 10", "self.replicaz <= 10", `undefined field 'replicaz'`},
		"no version is stored":         {"storage: true", "storage: false", `spec.versions: Invalid value`},
		"a protected group":            {"stable.example.com", "stable.k8s.io", `metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation`},
	} {
		t.Run(name, func(t *testing.T) {
			a.t = t
			code, out, _ := a.do("POST", definitionsPath, strings.ReplaceAll(crontabs, tt.from, tt.to))
			if message, _ := out["message"].(string); code != http.StatusUnprocessableEntity || !strings.Contains(message, tt.message) {
				t.Errorf("%d %v", code, message)
			}
		})
	}
}
