package apiserver

import (
	"context"
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/auth"
)

func TestWhatCanNotBeConnectedTo(t *testing.T) {
	s := newTestServer(t, withServices)
	const ns = "/api/v1/namespaces/default/"
	for path, body := range map[string]string{
		ns + "pods":     `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`,
		ns + "services": `{"metadata":{"name":"none"},"spec":{"ports":[{"port":80}]}}`,
		"/api/v1/nodes": `{"metadata":{"name":"n"}}`,
	} {
		if code, _, answer := do(t, s, "POST", path, body); code != 201 {
			t.Fatal(answer)
		}
	}
	for path, body := range map[string]string{
		ns + "services": `{"metadata":{"name":"unready"},"spec":{"ports":[{"port":80}]}}`,
		"/apis/discovery.k8s.io/v1/namespaces/default/endpointslices": `{"metadata":{"name":"unready","labels":{"kubernetes.io/service-name":"unready"}},"addressType":"IPv4",
			"endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":false}}],"ports":[{"port":80}]}`,
	} {
		if code, _, answer := do(t, s, "POST", path, body); code != 201 {
			t.Fatal(answer)
		}
	}
	for _, tt := range []struct {
		name, method, path string
		code               int
		message            string
	}{
		{"a service of which no endpoints are known", "GET", ns + "services/none/proxy", 404, `services "none" not found`},
		{"a service whose endpoints are not ready", "GET", ns + "services/http:unready:80/proxy/x", 503, `no endpoints available for service "http:unready:80"`},
		{"a service by a name that is none", "GET", ns + "services/a:b:c:d/proxy", 400, `invalid service request "a:b:c:d"`},
		{"a node without an address", "GET", "/api/v1/nodes/n/proxy", 500, "no preferred addresses found; known addresses: []"},
		{"a proxy without effect", "PUT", ns + "services/none/proxy?dryRun=All", 400, "dryRun is not supported"},
		{"an exec without effect in a pod that is not there", "GET", ns + "pods/x/exec?dryRun=", 400, "dryRun is not supported"},
		{"a port that is none", "GET", ns + "pods/p/portforward?ports=x", 400, `cannot convert to []int32: strconv.ParseUint: parsing "x": invalid syntax`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, _, body := do(t, s, tt.method, tt.path, "")
			var status metav1.Status
			if err := json.Unmarshal([]byte(body), &status); err != nil {
				t.Fatalf("%v in %s", err, body)
			}
			if code != tt.code || status.Message != tt.message {
				t.Errorf("%d %s", code, body)
			}
		})
	}
	if code, header, body := do(t, s, "GET", ns+"pods/p/log?dryRun=All", ""); code != 204 || header.Get("Content-Type") != "" || body != "" {
		t.Errorf("the log of a pod without a node: %d %v %q", code, header, body)
	}
}

// reader is allowed everything but to create.
type reader struct{}

func (reader) Authorize(_ context.Context, a auth.Attributes) (auth.Decision, string, error) {
	if a.Verb == "create" {
		return auth.NoOpinion, "", nil
	}
	return auth.Allow, "", nil
}

func TestAWebSocketIsNotOpenedByWhoMayOnlyRead(t *testing.T) {
	s := newTestServer(t)
	const pods = "/api/v1/namespaces/default/pods"
	if code, _, answer := do(t, s, "POST", pods, `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`); code != 201 {
		t.Fatal(answer)
	}
	const unscheduled = "pod p does not have a host assigned"
	for _, subresource := range []string{"exec", "attach", "portforward"} {
		before := asked{subresource + " for who may do everything", "GET", pods + "/p/" + subresource + "?command=sh", "", nil, 400, unscheduled, "", ""}
		before.check(t, s)
	}
	s.Use(Security{Authorizer: reader{}})
	for _, subresource := range []string{"exec", "attach", "portforward"} {
		refused := asked{subresource, "GET", pods + "/p/" + subresource + "?command=sh", "", nil, 403, `cannot create resource \"pods/` + subresource + `\"`, unscheduled, ""}
		refused.check(t, s)
	}
	log := asked{"a log is read", "GET", pods + "/p/log", "", nil, 204, "", "", ""}
	log.check(t, s)
}
