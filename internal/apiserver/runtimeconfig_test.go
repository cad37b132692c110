package apiserver

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
)

// TestDisabledResourcesAreNotServed: the answers are those of upstream's kube-apiserver v1.36.3
// with these keys of --runtime-config.
func TestDisabledResourcesAreNotServed(t *testing.T) {
	switches, err := api.ParseSwitches([]string{"batch/v1=false", "apps/v1/deployments=false"})
	if err != nil {
		t.Fatal(err)
	}
	s := newTestServer(t, func(c *Config) { c.Switches = switches })
	const noPath, noResource = "404 page not found\n", `"reason":"NotFound","details":{}`
	for path, want := range map[string]struct {
		code int
		has  string
		not  string
	}{
		"/apis/batch/v1/jobs":       {404, noPath, ""},
		"/apis/batch/v1":            {404, noPath, ""},
		"/apis/batch":               {404, noPath, ""},
		"/apis":                     {200, `"apps/v1"`, "batch"},
		"/apis/apps/v1":             {200, `"daemonsets"`, `"deployments`},
		"/apis/apps/v1/deployments": {404, noResource, ""},
		"/apis/apps/v1/namespaces/x/deployments/y/status": {404, noResource, ""},
		"/apis/apps/v1/daemonsets":                        {200, `"items"`, ""},
		"/openapi/v3":                                     {200, "apis/apps/v1", "apis/batch"},
		"/openapi/v3/apis/apps/v1":                        {200, "/apis/apps/v1/daemonsets", "/apis/apps/v1/deployments"},
		"/openapi/v3/apis/batch/v1":                       {404, "", ""},
		"/openapi/v2":                                     {200, "/apis/apps/v1/daemonsets", "/apis/batch/"},
	} {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		body := strings.ReplaceAll(strings.ReplaceAll(w.Body.String(), "\n  ", ""), `": `, `":`)
		if w.Code != want.code || !strings.Contains(body, want.has) || want.not != "" && strings.Contains(body, want.not) {
			t.Errorf("%s: %d %.300s", path, w.Code, body)
		}
	}
	for _, service := range localServices(switches) {
		if name := wire.Accessor(service).GetName(); name == "v1.batch" {
			t.Errorf("%s is registered", name)
		}
	}
	if _, err := client.Get[*batchv1.Job](t.Context(), s.Client(auth.Component("tester")), "default", "j"); err == nil || !strings.Contains(err.Error(), `jobs.batch "j" not found`) {
		t.Errorf("components of the process lack them: %v", err)
	}
}
