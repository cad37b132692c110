package apiserver

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/knarr-project/knarr/internal/auth"
)

// oneTokenAuthenticator knows one token, and treats requests without a token as anonymous.
type oneTokenAuthenticator struct{}

func (oneTokenAuthenticator) Authenticate(r *http.Request) (auth.User, bool, error) {
	switch r.Header.Get("Authorization") {
	case "Bearer good":
		return auth.User{Name: "jane"}, true, nil
	case "":
		return auth.Anonymous(), true, nil
	case "none":
		return auth.User{}, false, nil
	}
	return auth.User{}, false, errors.New("the token is unknown")
}

// TestRequestMetrics: the series are those of upstream's API server v1.36.3 after
// the same requests.
func TestRequestMetrics(t *testing.T) {
	s, ts := aggregating(t)
	eventually(t, func() error {
		if resp, body := fetch(t, ts.URL+"/apis/wardle.example.com/v1/namespaces/default/flunders"); resp.StatusCode != http.StatusOK {
			return errors.New(body)
		}
		return nil
	})
	s.Use(Security{Authenticator: oneTokenAuthenticator{}, Authorizer: reader{}})
	for _, request := range []struct{ token, path string }{
		{"", "/api/v1/pods"}, {"", "/api/v1/nodes"}, {"", "/apis/apps/v1/deployments"}, {"", "/api/v1/services"}, {"", "/api/v1/endpoints"}, {"", "/livez"},
		{"", "/openapi/v3"}, {"", "/openapi/v3/api/v1"}, {"", "/statusz"}, {"", "/api/v1/namespaces/default/pods/a/log"},
		{"Bearer bad", "/api/v1/secrets"}, {"none", "/api/v1/secrets"}, {"", "/api/v1/none"}, {"", "/apis/none/v1/none"}, {"", "/none"}, {"", "/api"},
		{"", "/apis/wardle.example.com/v1/namespaces/default/flunders"}, {"Bearer bad", "/api/v1/strange?watch=true"}, {"", "/api/v1/stranger?watch=true"},
	} {
		fetch(t, ts.URL+request.path, "Authorization", request.token)
	}
	// A reader may not create.
	resp, err := http.Post(ts.URL+"/api/v1/namespaces/default/configmaps", "application/json", strings.NewReader(`{"metadata":{"name":"a"}}`))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Fatal(resp.Status)
	}
	_, page := fetch(t, ts.URL+"/metrics")
	got := map[string]bool{}
	for line := range strings.Lines(page) {
		if series, ok := strings.CutPrefix(line, "apiserver_request_total"); ok {
			got[series] = true
		}
	}
	want := map[string]bool{}
	for _, series := range []string{
		`{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="cluster",subresource="",verb="LIST",version="v1"} 1`,
		`{code="200",component="apiserver",dry_run="",group="",resource="nodes",scope="cluster",subresource="",verb="LIST",version="v1"} 1`,
		`{code="200",component="apiserver",dry_run="",group="apps",resource="deployments",scope="cluster",subresource="",verb="LIST",version="v1"} 1`,
		`{code="200",component="apiserver",dry_run="",group="",resource="services",scope="cluster",subresource="",verb="LIST",version="v1"} 1`,
		`{code="200",component="apiserver",dry_run="",group="",resource="endpoints",scope="cluster",subresource="",verb="LIST",version="v1"} 1`,
		`{code="404",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="log",verb="CONNECT",version="v1"} 1`,
		`{code="200",component="",dry_run="",group="",resource="",scope="",subresource="/livez",verb="GET",version=""} 1`,
		`{code="200",component="",dry_run="",group="",resource="",scope="",subresource="openapi/v3",verb="GET",version=""} 1`,
		`{code="200",component="",dry_run="",group="",resource="",scope="",subresource="openapi/v3/",verb="GET",version=""} 1`,
		`{code="200",component="apiserver",dry_run="",group="",resource="statusz",scope="",subresource="",verb="GET",version=""} 1`,
	} {
		want[series+"\n"] = true
	}
	if !maps.Equal(got, want) {
		t.Errorf("there are\n%s\nwant\n%s", strings.Join(slices.Sorted(maps.Keys(got)), ""), strings.Join(slices.Sorted(maps.Keys(want)), ""))
	}
	for _, want := range []string{
		`authentication_attempts{result="error"} 2`, `authentication_attempts{result="failure"} 1`,
		`etcd_requests_total{group="",operation="list",resource="nodes"} 1`, `etcd_requests_total{group="apps",operation="list",resource="deployments"} 1`,
		`etcd_requests_total{group="",operation="list",resource="services"} 1`, `etcd_requests_total{group="",operation="list",resource="endpoints"} 1`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("lacks %s", want)
		}
	}
	for _, unwanted := range []string{`resource="strange`, `apiserver_request_duration_seconds_count{component="apiserver",dry_run="",group="wardle.example.com"`, `operation="delete",resource="nodes"`} {
		if strings.Contains(page, unwanted) {
			t.Errorf("has %s", unwanted)
		}
	}
}
