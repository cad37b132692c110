package apiserver

import "testing"

func TestAnOwnerThatIsNamedTwiceIsKeptOnceAndToldOf(t *testing.T) {
	s := newTestServer(t)
	const (
		path    = "/api/v1/namespaces/default/configmaps"
		a       = `{"apiVersion":"v1","kind":"Pod","name":"a","uid":"1"}`
		other   = `{"apiVersion":"v1","kind":"Pod","name":"b","uid":"1"}`
		warning = ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: 1"
	)
	body := func(owners string) string { return `{"metadata":{"name":"m","ownerReferences":[` + owners + `]}}` }
	for _, q := range []asked{
		{"twice", "POST", path, body(a + "," + a), nil, 201, `"ownerReferences":[` + a + `]`, "", warning},
		{"another name of the same UID", "PUT", path + "/m", body(a + "," + other), nil, 200, `"ownerReferences":[` + a + "," + other + `]`, "", ""},
		{"once more", "PUT", path + "/m", body(a + "," + other + "," + a), nil, 200, `"ownerReferences":[` + a + "," + other + `]`, "", warning},
	} {
		q.check(t, s)
	}
}
