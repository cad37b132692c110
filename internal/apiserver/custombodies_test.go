package apiserver

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func TestBodiesOfOtherKindsAreRefusedForCustomResources(t *testing.T) {
	a := newAPI(t)
	a.define(crontabs)
	const other = `{"apiVersion":"stable.example.com/v1","kind":"Other","metadata":{"name":"x"},"spec":`
	for _, c := range []struct {
		name, query, body string
		code              int
		has, hasNot       string
	}{
		{"no kind", "", `{"apiVersion":"stable.example.com/v1"}`, 400, "the object provided is unrecognized (must be of type CronTab): Object 'Kind' is missing in", ""},
		{"no kind, without field validation", "?fieldValidation=Ignore", `{"apiVersion":"stable.example.com/v1"}`, 400, `CronTab in version "v1" cannot be handled as a CronTab: Object 'Kind' is missing in`, "unrecognized"},
		{"an empty body", "?fieldValidation=Ignore", `null`, 400, "Object 'Kind' is missing in 'null'", "unrecognized"},
		{"a kind that is a number", "", `{"apiVersion":"stable.example.com/v1","kind":3}`, 400, "json: cannot unmarshal number into Go struct field .kind of type string", ""},
		{"a version that is an object", "", `{"apiVersion":{},"kind":"CronTab"}`, 400, "json: cannot unmarshal object into Go struct field .apiVersion of type string", ""},
		{"a version with too many parts", "", `{"apiVersion":"a/b/c","kind":"CronTab"}`, 400, "unexpected GroupVersion string: a/b/c", ""},
		{"a version that is null", "", `{"apiVersion":null,"kind":"CronTab"}`, 400, `CronTab in version "" cannot be handled as a CronTab: .apiVersion accessor error: <nil> is of the type <nil>, expected string`, ""},
		{"another version", "", `{"apiVersion":"stable.example.com/v9","kind":"CronTab"}`, 400, "the API version in the data (stable.example.com/v9) does not match", ""},
		{"another version with broken metadata", "", `{"apiVersion":"stable.example.com/v9","kind":"CronTab","metadata":[]}`, 400, `CronTab in version "v9" cannot be handled as a CronTab: json: cannot unmarshal array`, ""},
		{"another kind is not defaulted, so a rule fails", "", other + `{"cronSpec":"a"}}`, 422, "no such key: replicas evaluating rule: too many", ""},
		{"another kind is not validated by the schema", "", other + `{"cronSpec":"a","replicas":-1}}`, 422, "kind: Invalid value: \"Other\": must be CronTab", "greater than or equal"},
		{"unknown fields of another kind are not reported", "?fieldValidation=Strict", other + `{"cronSpec":"a","replicas":1,"nope":1}}`, 422, "must be CronTab", "nope"},
		{"unknown fields in its metadata are", "?fieldValidation=Strict", strings.Replace(other, `"name":"x"`, `"name":"x","nope":1`, 1) + `{}}`, 400, `Other in version "v1" cannot be handled as a Other: strict decoding error: unknown field "metadata.nope"`, ""},
		{"unknown fields of another version are", "?fieldValidation=Strict", `{"apiVersion":"a.example/v1","kind":"CronTab","metadata":{"nope":1},"spec":{"more":1}}`, 400, `CronTab in version "v1" cannot be handled as a CronTab: strict decoding error: unknown field "metadata.nope"`, "more"},
		{"a missing version is reported first", "?fieldValidation=Strict", `{"kind":"CronTab","metadata":{"nope":1}}`, 400, "Object 'apiVersion' is missing in 'object has no apiVersion field'", ""},
		{"metadata of another kind is not validated", "", strings.Replace(other, `"name":"x"`, `"name":"x","labels":{"a b":""}`, 1) + `{"cronSpec":"a","replicas":1}}`, 422, "must be CronTab", "metadata.labels"},
		{"metadata of another kind must decode", "", strings.Replace(other, `"name":"x"`, `"name":[]`, 1) + `{"cronSpec":"a"}}`, 400, `Other in version "v1" cannot be handled as a CronTab: json: cannot unmarshal array`, ""},
	} {
		code, got, _ := a.do("RAW", crontabsPath+c.query, c.body)
		message := fmt.Sprint(got["message"])
		if code != c.code || !strings.Contains(message, c.has) || c.hasNot != "" && strings.Contains(message, c.hasNot) {
			t.Errorf("%s: got %d %s", c.name, code, message)
		}
	}
	a.want(http.StatusCreated, "POST", crontabsPath, crontab)
}

const gadgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.stable.example.com}
spec:
  group: stable.example.com
  scope: Cluster
  names: {plural: gadgets, singular: gadget, kind: Gadget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: &schema {type: object, properties: {spec: {type: object, properties: {template: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}}}}}}
  - name: v2
    served: true
    storage: false
    schema: {openAPIV3Schema: *schema}
`

func TestAppliedCustomResourceWithInvalidMetadata(t *testing.T) {
	a := newAPI(t)
	a.define(gadgets)
	for _, c := range []struct {
		name, version, object, metadata, template string
		code                                      int
		says                                      string
	}{
		{"an embedded apiVersion that is null", "v1", "a", "", `{apiVersion: null, kind: Pod}`, 422, `Gadget.stable.example.com "a" is invalid: spec.template.apiVersion: Invalid value: null: must be a string`},
		{"an embedded invalid time", "v1", "a", "", `{apiVersion: v1, kind: Pod, metadata: {creationTimestamp: x}}`, 422, `spec.template.metadata: Invalid value: {"creationTimestamp":"x"}: parsing time "x"`},
		{"an invalid field is dropped", "v1", "a", "deletionGracePeriodSeconds: 1.5", `{apiVersion: v1, kind: Pod}`, 201, ""},
		{"an invalid field fails the conversion", "v2", "b", "deletionGracePeriodSeconds: 1.5", `{apiVersion: v1, kind: Pod}`, 500, "json: cannot unmarshal number 1.5 into Go struct field ObjectMeta.deletionGracePeriodSeconds of type int64"},
		{"a valid object", "v2", "c", "", `{apiVersion: v1, kind: Pod}`, 201, ""},
		{"an invalid time in an update", "v2", "c", "deletionTimestamp: x", `{apiVersion: v1, kind: Pod}`, 500, `parsing time "x"`},
	} {
		body := fmt.Sprintf("{apiVersion: stable.example.com/%s, kind: Gadget, metadata: {name: %s, %s}, spec: {template: %s}}", c.version, c.object, c.metadata, c.template)
		code, got, _ := a.do("PATCH", "/apis/stable.example.com/"+c.version+"/gadgets/"+c.object+"?fieldManager=m&force=true", body, "Content-Type", "application/apply-patch+yaml")
		if code != c.code || c.says != "" && !strings.Contains(fmt.Sprint(got["message"]), c.says) {
			t.Errorf("%s: got %d %v", c.name, code, got["message"])
		}
	}
}

func TestErrorsShowYAMLWithoutKindAsSent(t *testing.T) {
	a := newAPI(t)
	a.define(crontabs)
	for _, c := range []struct{ query, body, says string }{
		{"", "---\n", "Object 'Kind' is missing in '---\n' (2d2d2d0a)"},
		{"", "a: 1", "Object 'Kind' is missing in 'a: 1' (613a2031)"},
		{"?fieldValidation=Ignore", "a: 1", `CronTab in version "v1" cannot be handled as a CronTab: Object 'Kind' is missing in '{"a":1}'`},
	} {
		code, got, _ := a.do("RAW", crontabsPath+c.query, c.body, "Content-Type", "application/yaml")
		if message := fmt.Sprint(got["message"]); code != http.StatusBadRequest || !strings.Contains(message, c.says) {
			t.Errorf("%q%s: got %d %s", c.body, c.query, code, message)
		}
	}
}

// An applied configuration in another version than the stored one must be well-formed, except for
// the fields that every write sets itself.
func TestServerSetFieldsOfAnAppliedCustomResourceAreIgnored(t *testing.T) {
	a := newAPI(t)
	a.define(fmt.Sprintf(twoVersions, "preserveUnknownFields: false"))
	for _, field := range []string{"creationTimestamp: 1", "creationTimestamp: x", "creationTimestamp: true", "generation: 1.5"} {
		for _, version := range []string{"v1", "v2"} {
			code, got, _ := a.do("PATCH", hostsIn(version)+"/new?dryRun=All&fieldManager=m", "{apiVersion: two.example.com/"+version+", kind: Host, metadata: {name: new, "+field+"}}", "Content-Type", "application/apply-patch+yaml")
			if code != http.StatusCreated || at(got, "metadata", "generation") != 1.0 {
				t.Errorf("%s in %s: %d %v", field, version, code, got)
			}
		}
	}
}
