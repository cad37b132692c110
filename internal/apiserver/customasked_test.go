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
