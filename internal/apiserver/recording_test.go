package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/knarr-project/knarr/internal/apiserver/audit"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
)

type events struct {
	mu   sync.Mutex
	list []*auditv1.Event
}

func (e *events) Put(event *auditv1.Event) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, event)
	return nil
}

func (e *events) Close() error { return nil }

func (e *events) take() []*auditv1.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := e.list
	e.list = nil
	return list
}

func recorded(t *testing.T) (*Server, *events) {
	policy, err := audit.ParsePolicy([]byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: RequestResponse, resources: [{group: '', resources: [configmaps, endpoints, services, services/status, serviceaccounts/token]}]}, {level: Metadata, resources: [{group: two.example.com}]}]"))
	if err != nil {
		t.Fatal(err)
	}
	sink := &events{}
	return newTestServer(t, func(c *Config) {
		c.Audit = &audit.Log{Policy: policy, Sinks: []audit.Destination{{Sink: sink}}, Logger: c.Logger, Now: time.Now}
	}), sink
}

func TestRequestsAreRecorded(t *testing.T) {
	s, sink := recorded(t)
	for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		t.Run(contentType, func(t *testing.T) {
			cfg, c := overHTTP(t, s, contentType)
			name := strings.NewReplacer("/", "-", ".", "-").Replace(contentType)
			if _, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), configMap(name), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			list := sink.take()
			if len(list) != 2 || list[0].Stage != auditv1.StageRequestReceived || list[1].Stage != auditv1.StageResponseComplete || list[0].AuditID != list[1].AuditID {
				t.Fatalf("got %+v", list)
			}
			e := list[1]
			if e.ResponseStatus.Code != 201 || e.Verb != "create" || e.ObjectRef.Name != name || e.User.Username != auth.UserAnonymous || e.Annotations["authorization.k8s.io/decision"] != "allow" {
				t.Errorf("got %+v %+v", e, e.ObjectRef)
			}
			var asked, got corev1.ConfigMap
			if json.Unmarshal(e.RequestObject.Raw, &asked) != nil || json.Unmarshal(e.ResponseObject.Raw, &got) != nil || asked.Kind != "ConfigMap" || asked.UID != "" || got.UID == "" || got.Data["a"] != "1" {
				t.Errorf("objects: %s, %s", e.RequestObject.Raw, e.ResponseObject.Raw)
			}
			if resp, _ := fetch(t, cfg.Host+"/api/v1/namespaces/default/configmaps/none", "Impersonate-User", "bob"); resp.Header.Get("Audit-Id") == "" {
				t.Error("the answer has no audit ID")
			}
			list = sink.take()
			if e = list[1]; e.ResponseObject == nil || !strings.Contains(string(e.ResponseObject.Raw), `"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"configmaps \"none\" not found"`) {
				t.Errorf("the answer is %v", e.ResponseObject)
			}
			if e.ResponseStatus.Code != 404 || e.ResponseStatus.Reason != metav1.StatusReasonNotFound || e.ImpersonatedUser.Username != "bob" {
				t.Errorf("got %+v", e)
			}
		})
	}
}

func TestRequestObjectsAreRecordedWithDefaults(t *testing.T) {
	s, sink := recorded(t)
	for method, path := range map[string]string{"POST": "/api/v1/namespaces/default/services", "PUT": "/api/v1/namespaces/default/services/x"} {
		do(t, s, method, path, `{"metadata":{"name":"x"},"spec":{"ports":[{"port":80}]}}`)
		list := sink.take()
		var sent corev1.Service
		if len(list) != 2 || list[1].RequestObject == nil || json.Unmarshal(list[1].RequestObject.Raw, &sent) != nil {
			t.Fatalf("%s: %+v", method, list)
		}
		if sent.Spec.Type != corev1.ServiceTypeClusterIP || sent.Spec.ClusterIP != "" || sent.UID != "" {
			t.Errorf("%s: %s", method, list[1].RequestObject.Raw)
		}
	}
}

func TestDeletionsAreRecorded(t *testing.T) {
	s, sink := recorded(t)
	const path = "/api/v1/namespaces/default/configmaps"
	do(t, s, "POST", path, `{"metadata":{"name":"x"}}`)
	sink.take()
	do(t, s, "DELETE", path+"/x", `{"kind":"DeleteOptions","apiVersion":"apps/v1","propagationPolicy":"Background"}`)
	list := sink.take()
	if len(list) != 2 || list[1].RequestObject == nil || string(list[1].RequestObject.Raw) != `{"kind":"DeleteOptions","apiVersion":"meta.k8s.io/__internal","propagationPolicy":"Background"}` ||
		list[1].ResponseObject == nil || !strings.Contains(string(list[1].ResponseObject.Raw), `"status":"Success"`) ||
		list[1].ResponseStatus.Status != metav1.StatusSuccess || list[1].ResponseStatus.Details.Name != "x" || list[1].ResponseStatus.Code != 200 {
		t.Errorf("a deletion: %+v", list)
	}
}

func TestUseOfADeprecatedKindIsRecorded(t *testing.T) {
	s, sink := recorded(t)
	s.runInBackground(s.custom.Run)
	h := httptest.NewServer(s.Handler())
	t.Cleanup(h.Close)
	testAPI{t, h}.define(fmt.Sprintf(twoVersions, "preserveUnknownFields: false"))
	sink.take()
	const core = "/api/v1/namespaces/default/"
	for path, want := range map[string]string{core + "endpoints": "true", core + "configmaps": "", hostsIn("v1"): "", hostsIn("v2"): "true"} {
		fetch(t, h.URL+path)
		if list := sink.take(); len(list) != 2 || list[1].Annotations["k8s.io/deprecated"] != want {
			t.Errorf("%s: got %+v", path, list)
		}
	}
}

func TestSubresourceObjectsAreRecordedWithDefaults(t *testing.T) {
	s, sink := recorded(t)
	const services, accounts = "/api/v1/namespaces/default/services", "/api/v1/namespaces/default/serviceaccounts"
	const service = `{"metadata":{"name":"x"},"spec":{"ports":[{"port":80}]}}`
	do(t, s, "POST", services, service)
	sink.take()
	for _, c := range []struct{ method, path, body, want string }{
		{"PUT", services + "/x/status", service, `"type":"ClusterIP"`},
		{"POST", accounts + "/nobody/token", `{"spec":{}}`, `"expirationSeconds":3600`},
	} {
		do(t, s, c.method, c.path, c.body)
		if list := sink.take(); len(list) != 2 || list[1].RequestObject == nil || !strings.Contains(string(list[1].RequestObject.Raw), c.want) {
			t.Errorf("%s: %+v", c.path, list)
		}
	}
}

func TestWatchIsRecordedWhenItBegins(t *testing.T) {
	s, sink := recorded(t)
	cfg, _ := overHTTP(t, s, "application/json")
	resp, err := http.Get(cfg.Host + "/api/v1/configmaps?watch=1&timeoutSeconds=1")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if list := sink.take(); len(list) != 2 || list[1].Stage != auditv1.StageResponseStarted || list[1].ResponseStatus.Code != 200 {
		t.Errorf("got %+v", list)
	}
}

func TestComponentsOfThisProcessAreRecorded(t *testing.T) {
	s, sink := recorded(t)
	if _, err := client.Create(t.Context(), s.Client(auth.Component("system:x")), configMap("one")); err != nil {
		t.Fatal(err)
	}
	list := sink.take()
	if len(list) != 2 || list[1].User.Username != "system:x" || list[1].RequestURI != "/api/v1/namespaces/default/configmaps" || !strings.Contains(string(list[1].RequestObject.Raw), `"kind":"ConfigMap"`) {
		t.Errorf("got %+v", list)
	}
}

func TestBadCredentialsAreRecorded(t *testing.T) {
	s, sink := recorded(t)
	security := *s.access.current.Load()
	security.Authenticator = auth.Requests{}
	s.Use(security)
	cfg, _ := overHTTP(t, s, "application/json")
	fetch(t, cfg.Host+"/api/v1/namespaces/default/configmaps")
	if list := sink.take(); len(list) != 1 || list[0].Stage != auditv1.StageResponseStarted || list[0].ResponseStatus.Code != 401 || list[0].ResponseStatus.Reason != metav1.StatusReasonUnauthorized {
		t.Errorf("got %+v", list)
	}
}

func TestUnacceptableAnswersAreRecordedByCode(t *testing.T) {
	s, sink := recorded(t)
	const maps = "/api/v1/namespaces/default/configmaps"
	for name, test := range map[string]struct {
		accept, path string
		code         int
		recorded     bool
	}{
		"another media type":             {"text/x", maps, 406, false},
		"an unsupported format":          {"application/json;as=X;g=meta.k8s.io;v=v1", maps, 406, false},
		"an error instead of a table":    {"application/json;as=Table;g=meta.k8s.io;v=v1", maps + "/none", 404, false},
		"an error in JSON":               {"application/json;as=Table;g=meta.k8s.io;v=v1,application/json", maps + "/none", 404, true},
		"a media type by wildcard":       {"application/*", maps, 406, true},
		"an error of an invalid timeout": {"application/json", maps + "?timeout=x", 400, true},
	} {
		if code, _, answer := do(t, s, "GET", test.path, "", "Accept", test.accept); code != test.code {
			t.Errorf("%s: %d %s, want %d", name, code, answer, test.code)
		}
		list := sink.take()
		if len(list) == 0 {
			t.Fatalf("%s is not recorded", name)
		}
		last := list[len(list)-1]
		if status := last.ResponseStatus; status.Code != int32(test.code) || (status.Status == "Failure") != test.recorded || (status.Message != "") != test.recorded || (last.ResponseObject != nil) != test.recorded {
			t.Errorf("%s: %+v, %v", name, status, last.ResponseObject)
		}
	}
}

func TestInvalidTimeoutIsRefusedFirst(t *testing.T) {
	s, sink := recorded(t)
	security := *s.access.current.Load()
	security.Authenticator = auth.Requests{}
	s.Use(security)
	const path = "/api/v1/namespaces/default/configmaps?timeout=x"
	const text = `invalid timeout specified in the request URL - time: invalid duration "x"`
	for _, accept := range []string{"application/json", "text/x"} {
		if code, _, answer := do(t, s, "GET", path, "", "Accept", accept); code != http.StatusBadRequest {
			t.Errorf("%d %s", code, answer)
		}
		if list := sink.take(); len(list) != 1 || list[0].Stage != auditv1.StageResponseStarted || list[0].User.Username != "" || list[0].ResponseStatus.Code != 400 || list[0].ResponseStatus.Message != text {
			t.Errorf("with %s: %+v", accept, list)
		}
	}
	for header, want := range map[string]string{
		"":                 "Authentication failed, no credentials provided",
		"Bearer x":         "Authentication failed, attempted: bearer",
		"Basic dTpwCg==":   "Authentication failed, attempted: basic",
		"Negotiate abcdef": "Authentication failed, no credentials provided",
	} {
		if code, _, answer := do(t, s, "GET", "/api/v1/namespaces/default/configmaps", "", "Accept", "text/x", "Authorization", header); code != http.StatusUnauthorized {
			t.Errorf("%d %s", code, answer)
		}
		if list := sink.take(); len(list) != 1 || list[0].ResponseStatus.Code != 401 || list[0].ResponseStatus.Message != want {
			t.Errorf("with %q: %+v", header, list)
		}
	}
}

func TestRequestThatCannotBeRecordedIsRefused(t *testing.T) {
	s, _ := recorded(t)
	s.cfg.Audit.Sinks = append(s.cfg.Audit.Sinks, audit.Destination{Sink: fullSink{}, Name: "webhook", Strict: true})
	cfg, _ := overHTTP(t, s, "application/json")
	resp, body := fetch(t, cfg.Host+"/api/v1/namespaces/default/configmaps")
	want := "Internal Server Error: \"/api/v1/namespaces/default/configmaps\": failed to store audit event\n"
	if resp.StatusCode != http.StatusInternalServerError || string(body) != want {
		t.Errorf("got %d %q, want 500 %q", resp.StatusCode, body, want)
	}
	if _, err := client.Create(t.Context(), s.Client(auth.Component("system:x")), configMap("one")); !apierrors.IsInternalError(err) {
		t.Errorf("a component of this process got %v", err)
	}
	if resp, _ := fetch(t, cfg.Host+"/api/v1/namespaces/default/secrets"); resp.StatusCode != http.StatusOK {
		t.Errorf("a request that is not recorded got %d", resp.StatusCode)
	}
}

// fullSink accepts no event.
type fullSink struct{}

func (fullSink) Put(*auditv1.Event) error { return errors.New("full") }

func (fullSink) Close() error { return nil }

// TestWebhookPatchesAreRecordedLikeObjects: at these levels only, because they show as much
// as the objects.
func TestWebhookPatchesAreRecordedLikeObjects(t *testing.T) {
	policy, err := audit.ParsePolicy([]byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Request, namespaces: [default], resources: [{group: '', resources: [configmaps]}]}, {level: Metadata, resources: [{group: '', resources: [configmaps]}]}]"))
	if err != nil {
		t.Fatal(err)
	}
	sink := &events{}
	_, c := newHookedServer(t, func(c *Config) {
		c.Audit = &audit.Log{Policy: policy, Sinks: []audit.Destination{{Sink: sink}}, Logger: c.Logger, Now: time.Now}
	})
	h := newHookServer(t, func(string, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return patch(`[{"op":"add","path":"/data","value":{"a":"b"}}]`)
	})
	mutate(t, c, admissionregistrationv1.MutatingWebhook{Name: "first.example.com", ClientConfig: h.at("/")})
	for namespace, want := range map[string]string{
		"default": `{"configuration":"hooks","webhook":"first.example.com","patch":[{"op":"add","path":"/data","value":{"a":"b"}}],"patchType":"JSONPatch"}`,
		"other":   "",
	} {
		sink.take()
		obj := configMap("one")
		obj.Namespace = namespace
		mustCreate(t, c, obj)
		list := sink.take()
		if len(list) == 0 {
			t.Fatal("nothing is recorded")
		}
		noted := list[len(list)-1].Annotations
		if got := noted["mutation.webhook.admission.k8s.io/round_0_index_0"]; got != `{"configuration":"hooks","webhook":"first.example.com","mutated":true}` {
			t.Errorf("%s: mutation is %s", namespace, got)
		}
		if got := noted["patch.webhook.admission.k8s.io/round_0_index_0"]; got != want {
			t.Errorf("%s: patch is %s, want %s", namespace, got, want)
		}
	}
}
