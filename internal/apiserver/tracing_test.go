package apiserver

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/admission/webhook"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/trace"
	"github.com/knarr-project/knarr/internal/trace/tracetest"
)

func TestSpansHaveUpstreamsNames(t *testing.T) {
	for path, want := range map[string]string{
		"GET /version":          "GET",
		"GET /api/v1/nodes":     "GET /api/v1/nodes",
		"GET /api/v1/nodes/a":   "GET /api/v1/nodes/{:name}",
		"GET /apis/apps/v1":     "GET",
		"POST /api/v1/pods/a/b": "POST /api/v1/pods/{:name}/b",
		"GET /api/v1/configmaps?fieldSelector=metadata.name=a":       "GET /api/v1/configmaps/{:name}",
		"GET /api/v1/configmaps?fieldSelector=x%":                    "GET /api/v1/configmaps",
		"DELETE /apis/apps/v1/namespaces/ns/deployments/d":           "DELETE /apis/apps/v1/namespaces/{:namespace}/deployments/{:name}",
		"PUT /apis/apps/v1/namespaces/ns/deployments/d/scale":        "PUT /apis/apps/v1/namespaces/{:namespace}/deployments/{:name}/scale",
		"GET /api/v1/namespaces/ns":                                  "GET /api/v1/namespaces/{:namespace}/namespaces/{:name}",
		"GET /api/v1/namespaces/ns/services/s/proxy/any/where?a=b":   "GET /api/v1/namespaces/{:namespace}/services/{:name}/proxy",
		"GET /api/v1/watch/namespaces/ns/pods?timeoutSeconds=1&a=b ": "GET /api/v1/namespaces/{:namespace}/pods",
	} {
		method, target, _ := strings.Cut(strings.TrimSpace(path), " ")
		r := httptest.NewRequest(method, target, nil)
		if got := spanName(r.Method, wire.ParseRequest(r)); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

func TestOnlyTrustedUsersDecideAboutSampling(t *testing.T) {
	for group, want := range map[string]bool{"system:masters": true, "system:monitoring": true, "system:authenticated": false} {
		if got := maySample(&auth.User{Groups: []string{"a", group}}); got != want {
			t.Errorf("%s: %v", group, got)
		}
	}
}

func TestTraceHasTheSpansOfARequest(t *testing.T) {
	collector := tracetest.Listen(t)
	config, err := trace.Load(collector.Config(t, 1000000))
	if err != nil {
		t.Fatal(err)
	}
	tracer, err := trace.Open(t.Context(), config, trace.Options{Service: "apiserver", Instance: "test"})
	if err != nil {
		t.Fatal(err)
	}
	s := newTestServer(t, func(c *Config) { c.Tracer = tracer })
	c := s.Client(auth.Component("tester"))
	hooks := webhook.Config{Client: c, Served: s.Served(), Authorizer: allowAll{}, Resolve: client.NewRoutes(t.Context(), c).Resolve}
	s.Use(Security{Authorizer: allowAll{}, Admission: admission.NewChain(nil, webhook.NewMutating(t.Context(), hooks), webhook.NewValidating(t.Context(), hooks))})
	if _, err := client.Create(t.Context(), c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}); err != nil {
		t.Fatal(err)
	}
	heard := make(chan string, 2)
	h := newHookServer(t, func(string, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Allowed: true}
	})
	next := h.Config.Handler
	h.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		heard <- r.Header.Get("Traceparent")
		next.ServeHTTP(w, r)
	})
	validate(t, c, admissionregistrationv1.ValidatingWebhook{ClientConfig: h.at("/")})
	if code, _, body := do(t, s, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"one"}}`, "Audit-Id", "id-of-create"); code != http.StatusCreated {
		t.Fatal(code, body)
	}
	if code, _, body := do(t, s, "GET", "/api/v1/configmaps", ""); code != http.StatusOK {
		t.Fatal(code, body)
	}
	if code, _, _ := do(t, s, "GET", "/api/v1/watch/configmaps?timeoutSeconds=1", ""); code != http.StatusOK {
		t.Fatal(code)
	}
	if err := tracer.Close(); err != nil {
		t.Fatal(err)
	}
	named := map[string]tracetest.Span{}
	create := ""
	for _, span := range collector.Spans() {
		if span.Name == "POST /api/v1/namespaces/{:namespace}/configmaps" {
			create = span.Trace()
		}
	}
	for _, span := range collector.Spans() {
		if span.Trace() == create {
			named[span.Name] = span
		}
	}
	for name, parent := range map[string]string{
		"authentication": "POST /api/v1/namespaces/{:namespace}/configmaps", "authorization": "POST /api/v1/namespaces/{:namespace}/configmaps",
		"priorityandfairness": "POST /api/v1/namespaces/{:namespace}/configmaps", "Create": "POST /api/v1/namespaces/{:namespace}/configmaps",
		"Mutating admission": "Create", "Validating admission": "Create", "Create etcd3": "Create", "SerializeObject": "Create",
		"Call validating webhook": "Validating admission", "HTTP POST": "Call validating webhook",
	} {
		span, ok := named[name]
		if !ok || span.Parent() != named[parent].ID() {
			t.Errorf("%s below %s: there is %v, of %s", name, parent, ok, span.Parent())
		}
	}
	asked := named["HTTP POST"]
	if got := <-heard; got != "00-"+create+"-"+asked.ID()+"-01" {
		t.Errorf("the webhook got the trace %q", got)
	}
	for _, want := range [][3]string{
		{"POST /api/v1/namespaces/{:namespace}/configmaps", "http.response.status_code", "201"}, {"POST /api/v1/namespaces/{:namespace}/configmaps", "audit-id", "id-of-create"},
		{"Create", "namespace", "default"}, {"Create", "resource", "configmaps"}, {"Create", "verb", "POST"}, {"Create etcd3", "key", "/registry/configmaps/default/one"},
		{"Create etcd3", "resource", "configmaps"}, {"Call validating webhook", "webhook", "check.example.com"}, {"Call validating webhook", "operation", "CREATE"},
		{"SerializeObject", "mediaType", "application/json"},
	} {
		if got := named[want[0]].Attribute(want[1]); got != want[2] {
			t.Errorf("%s of %s is %q, want %q", want[1], want[0], got, want[2])
		}
	}
	for _, name := range []string{"GET /api/v1/configmaps", "List", "cacher.GetList", "cacher.Watch"} {
		if !slices.ContainsFunc(collector.Spans(), func(span tracetest.Span) bool { return span.Name == name }) {
			t.Errorf("there is no span %s", name)
		}
	}
}
