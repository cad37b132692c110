package apiserver

import (
	"testing"
)

func TestApplyOfANewObjectChecksItsUIDFirst(t *testing.T) {
	s := newTestServer(t)
	const one = "/api/v1/namespaces/default/configmaps/a?fieldManager=m"
	apply := []string{"Content-Type", "application/apply-patch+yaml"}
	body := func(meta string) string { return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{` + meta + `}}` }
	for _, a := range []answerCase{
		{"a UID and an invalid revision", "PATCH", one, body(`"name":"a","uid":"x","resourceVersion":"x"`), apply, 409, "uid mismatch: the provided object specified uid x, and no existing object was found", "", ""},
		{"a UID and another name", "PATCH", one, body(`"name":"b","uid":"x"`), apply, 409, "uid mismatch", "", ""},
		{"another name", "PATCH", one, body(`"name":"b"`), apply, 400, "the name of the object (b) does not match the name on the URL (a)", "", ""},
		{"an invalid revision", "PATCH", one, body(`"name":"a","resourceVersion":"x"`), apply, 500, "strconv.ParseUint", "", ""},
		{"no UID and no revision", "PATCH", one, body(`"name":"a"`), apply, 201, `"name":"a"`, "", ""},
	} {
		a.check(t, s)
	}
}

func TestDryRunOfAnApplyShowsTheSentSelfLink(t *testing.T) {
	s := newTestServer(t)
	const all, one = "/api/v1/namespaces/default/configmaps?dryRun=All", "/api/v1/namespaces/default/configmaps/a?dryRun=All&fieldManager=m"
	const body = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","selfLink":"/x"}}`
	for _, a := range []answerCase{
		{"a dry run of a create omits it", "POST", all, body, nil, 201, `"name":"a"`, "selfLink", ""},
		{"a dry run of an apply shows it", "PATCH", one, body, []string{"Content-Type", "application/apply-patch+yaml"}, 201, `"selfLink":"/x"`, "", ""},
		{"an apply omits it", "PATCH", "/api/v1/namespaces/default/configmaps/a?fieldManager=m", body, []string{"Content-Type", "application/apply-patch+yaml"}, 201, `"name":"a"`, "selfLink", ""},
	} {
		a.check(t, s)
	}
}
