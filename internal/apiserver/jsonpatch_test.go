package apiserver

import "testing"

func TestUnknownFieldsOfAJSONPatchAreReported(t *testing.T) {
	s := newTestServer(t)
	const (
		maps    = "/api/v1/namespaces/default/configmaps"
		unknown = `[{"op":"add","path":"/data/y","value":"1","foo":"x"},{"op":"add","path":"/more","value":1}]`
		double  = `[{"op":"add","path":"/data/y","value":"2","path":"/data/z"}]`
	)
	patch := []string{"Content-Type", "application/json-patch+json"}
	for _, q := range []asked{
		{"fields of the object", "POST", maps, `{"metadata":{"name":"m"},"data":{"x":"1"}}`, nil, 201, "", "", ""},
		{"strictly, before the object's fields", "PATCH", maps + "/m?fieldValidation=Strict", unknown, patch, 422, `json patch unknown field \"[0].foo\", unknown field \"more\"`, "", ""},
		{"strictly, duplicate fields", "PATCH", maps + "/m?fieldValidation=Strict", double, patch, 422, `json patch duplicate field \"[0].path\"`, "", ""},
		{"with a warning", "PATCH", maps + "/m?fieldValidation=Warn", double, patch, 200, `"z":"2"`, "", `json patch duplicate field \"[0].path\"`},
		{"ignored", "PATCH", maps + "/m?fieldValidation=Ignore", unknown, patch, 200, `"y":"1"`, "more", ""},
	} {
		q.check(t, s)
	}
}
