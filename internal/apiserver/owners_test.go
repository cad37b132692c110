package apiserver

import (
	"strings"
	"testing"

	"github.com/knarr-project/knarr/internal/apiserver/verb"
)

func TestDuplicateOwnersAreDroppedWithAWarning(t *testing.T) {
	s := newTestServer(t)
	const (
		path    = "/api/v1/namespaces/default/configmaps"
		a       = `{"apiVersion":"v1","kind":"Pod","name":"a","uid":"1"}`
		other   = `{"apiVersion":"v1","kind":"Pod","name":"b","uid":"1"}`
		warning = ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: 1"
	)
	body := func(owners string) string { return `{"metadata":{"name":"m","ownerReferences":[` + owners + `]}}` }
	after := strings.Replace(warning, "entries;", "entries"+verb.AfterMutatingAdmission+";", 1)
	strategic, plus := []string{"Content-Type", "application/strategic-merge-patch+json"}, []string{"Content-Type", "application/json-patch+json"}
	for _, q := range []answerCase{
		{"twice", "POST", path, body(a + "," + a), nil, 201, `"ownerReferences":[` + a + `]`, "", warning},
		{"another name of the same UID", "PUT", path + "/m", body(a + "," + other), nil, 200, `"ownerReferences":[` + a + "," + other + `]`, "", ""},
		{"the same owner again", "PUT", path + "/m", body(a + "," + other + "," + a), nil, 200, `"ownerReferences":[` + a + "," + other + `]`, "", warning},
		{"by a patch", "PATCH", path + "/m", `[{"op":"add","path":"/metadata/ownerReferences/-","value":` + a + `}]`, plus, 200, `"ownerReferences":[` + a + "," + other + `]`, "", after},
		{"by a patch that merges owners", "PATCH", path + "/m", `{"metadata":{"ownerReferences":[{"uid":"1","controller":true}]}}`, strategic, 200, `"controller":true`, "", ""},
	} {
		q.check(t, s)
	}
}

func TestDuplicatedOwnerBelongsToThePatchsManager(t *testing.T) {
	s := newTestServer(t)
	const (
		path  = "/api/v1/namespaces/default/configmaps/m"
		owner = `{"apiVersion":"v1","kind":"Pod","name":"a","uid":"1"}`
	)
	apply, plus := []string{"Content-Type", "application/apply-patch+yaml"}, []string{"Content-Type", "application/json-patch+json"}
	for _, q := range []answerCase{
		{"an owner", "PATCH", path + "?fieldManager=one", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m","ownerReferences":[` + owner + `]}}`, apply, 201, `"manager":"one"`, "", ""},
		{"the same owner", "PATCH", path + "?fieldManager=two", `[{"op":"add","path":"/metadata/ownerReferences/-","value":` + owner + `}]`, plus, 200, `"manager":"two"`, `"manager":"one"`, "contains duplicate entries"},
	} {
		q.check(t, s)
	}
}
