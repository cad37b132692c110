package apiserver

import (
	"context"
	"encoding/json"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/apiserver/node"
	"github.com/knarr-project/knarr/internal/auth"
)

func TestConnectionsThatAreRefused(t *testing.T) {
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
		{"a service without endpoints", "GET", ns + "services/none/proxy", 404, `services "none" not found`},
		{"a service without ready endpoints", "GET", ns + "services/http:unready:80/proxy/x", 503, `no endpoints available for service "http:unready:80"`},
		{"an invalid service name", "GET", ns + "services/a:b:c:d/proxy", 400, `invalid service request "a:b:c:d"`},
		{"a node without an address", "GET", "/api/v1/nodes/n/proxy", 500, "no preferred addresses found; known addresses: []"},
		{"a dry run of a proxy", "PUT", ns + "services/none/proxy?dryRun=All", 400, "dryRun is not supported"},
		{"a dry run of an exec in a missing pod", "GET", ns + "pods/x/exec?dryRun=", 400, "dryRun is not supported"},
		{"an invalid port", "GET", ns + "pods/p/portforward?ports=x", 400, `cannot convert to []int32: strconv.ParseUint: parsing "x": invalid syntax`},
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

func TestServiceIsProxiedOnlyToPodsOfItsNamespace(t *testing.T) {
	s := newTestServer(t, withServices)
	post := func(path, body string) {
		t.Helper()
		if code, _, answer := do(t, s, "POST", path, body); code != 201 {
			t.Fatal(answer)
		}
	}
	const pods, status = "/api/v1/namespaces/default/pods", `{"status":{"podIPs":[{"ip":"10.0.0.1"},{"ip":"fd00::1"}],"podIP":"10.0.0.1"}}`
	post(pods, `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	if code, _, answer := do(t, s, "PATCH", pods+"/p/status", status, "Content-Type", "application/merge-patch+json"); code != 200 {
		t.Fatal(answer)
	}
	pod := func(namespace, name string) *corev1.ObjectReference {
		return &corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: name}
	}
	for name, c := range map[string]struct {
		address string
		of      *corev1.ObjectReference
		want    bool
	}{
		"the first address of the pod":          {"10.0.0.1", pod("default", "p"), true},
		"the second address of the pod":         {"fd00::1", pod("default", "p"), true},
		"an address without a target":           {"10.0.0.1", nil, false},
		"an address that the pod does not have": {"10.0.0.2", pod("default", "p"), false},
		"a missing pod":                         {"10.0.0.1", pod("default", "q"), false},
		"a pod in another namespace":            {"10.0.0.1", pod("other", "p"), false},
		"a pod without a namespace":             {"10.0.0.1", pod("", "p"), false},
		"a node's address":                      {"192.0.2.1", &corev1.ObjectReference{Kind: "Node", Name: "n"}, false},
	} {
		a := node.EndpointAddress{AddrPort: netip.AddrPortFrom(netip.MustParseAddr(c.address), 80), TargetRef: c.of}
		if got := s.nodes.BelongsToPod(t.Context(), "default", a); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	post("/api/v1/namespaces/default/services", `{"metadata":{"name":"foreign"},"spec":{"ports":[{"port":80}]}}`)
	post("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", `{"metadata":{"name":"foreign","labels":{"kubernetes.io/service-name":"foreign"}},"addressType":"IPv4",
		"endpoints":[{"addresses":["192.0.2.1"]}],"ports":[{"port":80}]}`)
	refused(t, s, "GET", "/api/v1/namespaces/default/services/foreign/proxy/x", 503, `no endpoints available for service "foreign"`)
}

// reader allows everything but create.
type reader struct{}

func (reader) Authorize(_ context.Context, a auth.Attributes) (auth.Decision, string, error) {
	if a.Verb == "create" {
		return auth.NoOpinion, "", nil
	}
	return auth.Allow, "", nil
}

func TestWebSocketExecNeedsTheVerbCreate(t *testing.T) {
	s := newTestServer(t)
	const pods = "/api/v1/namespaces/default/pods"
	if code, _, answer := do(t, s, "POST", pods, `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`); code != 201 {
		t.Fatal(answer)
	}
	const unscheduled = "pod p does not have a host assigned"
	for _, subresource := range []string{"exec", "attach", "portforward"} {
		before := answerCase{subresource + " for who may do everything", "GET", pods + "/p/" + subresource + "?command=sh", "", nil, 400, unscheduled, "", ""}
		before.check(t, s)
	}
	s.Use(Security{Authorizer: reader{}})
	for _, subresource := range []string{"exec", "attach", "portforward"} {
		refused := answerCase{subresource, "GET", pods + "/p/" + subresource + "?command=sh", "", nil, 403, `cannot create resource \"pods/` + subresource + `\"`, unscheduled, ""}
		refused.check(t, s)
	}
	log := answerCase{"a log is read", "GET", pods + "/p/log", "", nil, 204, "", "", ""}
	log.check(t, s)
}

func TestUpdateAndApplyNeedTheVerbCreateForNewObjects(t *testing.T) {
	s := newTestServer(t)
	const leases, runtimes, pods = "/apis/coordination.k8s.io/v1/namespaces/default/leases/", "/apis/node.k8s.io/v1/runtimeclasses/", "/api/v1/namespaces/default/pods/"
	apply := []string{"Content-Type", "application/apply-patch+yaml"}
	lease := func(name string) string { return `{"metadata":{"name":"` + name + `"},"spec":{"holderIdentity":"me"}}` }
	pod := func(name, image string) string {
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + name + `"},"spec":{"containers":[{"name":"c","image":"` + image + `"}]}}`
	}
	for _, a := range []answerCase{
		{"a lease by a user who may create", "PUT", leases + "there", lease("there"), nil, 201, "", "", ""},
		{"a pod by a user who may create", "PATCH", pods + "there?fieldManager=m", pod("there", "i"), apply, 201, "", "", ""},
	} {
		a.check(t, s)
	}
	s.Use(Security{Authorizer: reader{}})
	for _, a := range []answerCase{
		{"an existing pod", "PATCH", pods + "there?fieldManager=m", pod("there", "j"), apply, 200, "", "", ""},
		{"a new lease", "PUT", leases + "x", lease("x"), nil, 403, `cannot create resource \"leases\" in API group \"coordination.k8s.io\" in the namespace \"default\"`, "", ""},
		{"a dry run of a new lease", "PUT", leases + "x?dryRun=All", lease("x"), nil, 403, `cannot create resource \"leases\"`, "", ""},
		{"a new runtime class", "PUT", runtimes + "x", `{"metadata":{"name":"x"},"handler":"h"}`, nil, 403, `cannot create resource \"runtimeclasses\"`, "", ""},
		{"a new pod", "PATCH", pods + "x?fieldManager=m", pod("x", "i"), apply, 403, `pods \"x\" is forbidden: User`, "", ""},
		{"a dry run of a new pod", "PATCH", pods + "x?fieldManager=m&dryRun=All", pod("x", "i"), apply, 403, `cannot create resource \"pods\"`, "", ""},
		{"validation comes before authorization", "PATCH", pods + "x?fieldManager=m", pod("x", ""), apply, 422, "spec.containers[0].image", "", ""},
		{"a new namespace", "PATCH", "/api/v1/namespaces/x?fieldManager=m", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"x"}}`, apply, 403,
			`cannot create resource \"namespaces\" in API group \"\" in the namespace \"x\"`, "", ""},
		{"no object was created", "GET", pods + "x", "", nil, 404, "", "", ""},
	} {
		a.check(t, s)
	}
}
