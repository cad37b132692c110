package apiserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/admission/measure"
	"github.com/knarr-project/knarr/internal/admission/webhook"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
)

// hookServer is a real webhook: it keeps its requests, and the test sets its answers.
type hookServer struct {
	*httptest.Server
	ca     []byte
	mu     sync.Mutex
	asked  []*admissionv1.AdmissionRequest
	answer func(path string, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse
}

func newHookServer(t *testing.T, answer func(path string, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse) *hookServer {
	t.Helper()
	h := &hookServer{answer: answer}
	h.Server = httptest.NewUnstartedServer(h)
	certificate, ca := selfSigned(t, "hook.default.svc")
	h.TLS, h.ca = &tls.Config{Certificates: []tls.Certificate{certificate}}, ca
	h.StartTLS()
	t.Cleanup(h.Close)
	return h
}

func selfSigned(t *testing.T, name string) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{name}, IPAddresses: []net.IP{{127, 0, 0, 1}}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func (h *hookServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	h.asked = append(h.asked, review.Request)
	h.mu.Unlock()
	review.Response = h.answer(r.URL.Path, review.Request)
	if review.Response == nil {
		// Invalid YAML, though it looks like YAML.
		http.Error(w, "broken &this *that: [", http.StatusInternalServerError)
		return
	}
	if review.Response.UID == "" {
		review.Response.UID = review.Request.UID
	}
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(&review)
}

func (h *hookServer) requests() []*admissionv1.AdmissionRequest {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.asked
	h.asked = nil
	return out
}

// at returns the client configuration of a path of the server.
func (h *hookServer) at(path string) admissionregistrationv1.WebhookClientConfig {
	url := h.URL + path
	return admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: h.ca}
}

func allowed(string, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Allowed: true}
}

func denied(string, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: "not today"}}
}

// newHookedServer is an API server with only webhooks in its admission chain.
func newHookedServer(t *testing.T, opts ...func(*Config)) (*Server, client.Interface) {
	t.Helper()
	s := newTestServer(t, opts...)
	c := s.Client(auth.Component("tester"))
	config := webhook.Config{Client: c, Served: s.Served(), Authorizer: allowAll{}, Resolve: client.NewRoutes(t.Context(), c).Resolve, Egress: s.cfg.Egress, Metrics: measure.New()}
	s.Register(config.Metrics.Collectors()...)
	s.Use(Security{Authorizer: allowAll{}, Admission: admission.NewChain(nil, webhook.NewMutating(t.Context(), config), webhook.NewValidating(t.Context(), config))})
	for _, name := range []string{"default", "other"} {
		if _, err := client.Create(t.Context(), c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}}); err != nil {
			t.Fatal(err)
		}
	}
	return s, c
}

func rule(group, version string, resources ...string) admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{"*"},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: resources},
	}
}

func validate(t *testing.T, c client.Interface, hooks ...admissionregistrationv1.ValidatingWebhook) {
	t.Helper()
	none := admissionregistrationv1.SideEffectClassNone
	for i := range hooks {
		if hooks[i].Name == "" {
			hooks[i].Name = "check.example.com"
		}
		if hooks[i].SideEffects == nil {
			hooks[i].SideEffects = &none
		}
		if hooks[i].Rules == nil {
			hooks[i].Rules = []admissionregistrationv1.RuleWithOperations{rule("", "v1", "configmaps")}
		}
		hooks[i].AdmissionReviewVersions = []string{"v2", "v1"}
	}
	if _, err := client.Create(t.Context(), c, &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "hooks"}, Webhooks: hooks}); err != nil {
		t.Fatal(err)
	}
}

func mutate(t *testing.T, c client.Interface, hooks ...admissionregistrationv1.MutatingWebhook) {
	t.Helper()
	none := admissionregistrationv1.SideEffectClassNone
	for i := range hooks {
		hooks[i].SideEffects, hooks[i].AdmissionReviewVersions = &none, []string{"v1"}
		hooks[i].Rules = []admissionregistrationv1.RuleWithOperations{rule("", "v1", "configmaps")}
	}
	if _, err := client.Create(t.Context(), c, &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "hooks"}, Webhooks: hooks}); err != nil {
		t.Fatal(err)
	}
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v, want %s", err, want)
	}
}

func TestValidatingWebhookRefusesWrites(t *testing.T) {
	_, c := newHookedServer(t)
	h := newHookServer(t, allowed)
	validate(t, c, admissionregistrationv1.ValidatingWebhook{ClientConfig: h.at("/check")})
	made, err := client.Create(t.Context(), c, configMap("one"))
	if err != nil {
		t.Fatal(err)
	}
	r := h.requests()[0]
	if r.Operation != "CREATE" || r.Kind.Kind != "ConfigMap" || r.Resource.Resource != "configmaps" || r.Name != "one" || r.Namespace != "default" || r.UserInfo.Username != "tester" || *r.DryRun {
		t.Errorf("the webhook got %+v", r)
	}
	if text := string(r.Object.Raw); !strings.Contains(text, `"kind":"ConfigMap"`) || !strings.Contains(text, `"data":{"a":"1"}`) || string(r.OldObject.Raw) != "null" && len(r.OldObject.Raw) > 0 {
		t.Errorf("the webhook saw %s and %s", r.Object.Raw, r.OldObject.Raw)
	}
	if text := string(r.Options.Raw); !strings.Contains(text, `"kind":"CreateOptions"`) {
		t.Errorf("the options were %s", text)
	}
	h.answer = denied
	_, err = client.Create(t.Context(), c, configMap("two"))
	wantError(t, err, `admission webhook "check.example.com" denied the request: not today`)
	made.Data["b"] = "2"
	_, err = client.Update(t.Context(), c, made)
	wantError(t, err, "not today")
	wantError(t, client.Delete[*corev1.ConfigMap](t.Context(), c, "default", "one", metav1.DeleteOptions{}), "not today")
	asked := h.requests()
	if last := asked[len(asked)-1]; last.Operation != "DELETE" || !strings.Contains(string(last.OldObject.Raw), `"name":"one"`) {
		t.Errorf("for a deletion, the webhook got %+v", last)
	}
}

func TestWebhooksSeeTheDeletedNamespace(t *testing.T) {
	_, c := newHookedServer(t)
	h := newHookServer(t, allowed)
	validate(t, c, admissionregistrationv1.ValidatingWebhook{ClientConfig: h.at("/check"), Rules: []admissionregistrationv1.RuleWithOperations{rule("", "v1", "namespaces")}})
	ns, err := client.Get[*corev1.Namespace](t.Context(), c, "", "other")
	if err != nil {
		t.Fatal(err)
	}
	remove := func() {
		t.Helper()
		if err := client.Delete[*corev1.Namespace](t.Context(), c, "", "other", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
			t.Fatal(err)
		}
	}
	remove()
	asked := h.requests()
	if len(asked) != 1 {
		t.Fatalf("the webhook was called %d times", len(asked))
	}
	var options metav1.DeleteOptions
	if err := json.Unmarshal(asked[0].Options.Raw, &options); err != nil {
		t.Fatal(err)
	}
	if options.Preconditions == nil || *options.Preconditions.UID != ns.UID || options.GracePeriodSeconds == nil {
		t.Errorf("the webhook got the options %s", asked[0].Options.Raw)
	}
	remove()
	if asked := h.requests(); len(asked) != 0 {
		t.Errorf("for a namespace that is being deleted already, the webhook got %+v", asked)
	}
}

func TestFailingWebhook(t *testing.T) {
	_, c := newHookedServer(t)
	h := newHookServer(t, func(path string, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if r.Name == "wrong" {
			return &admissionv1.AdmissionResponse{UID: "other", Allowed: true}
		}
		return nil
	})
	ignore, fail := admissionregistrationv1.Ignore, admissionregistrationv1.Fail
	validate(t, c, admissionregistrationv1.ValidatingWebhook{ClientConfig: h.at("/"), FailurePolicy: &fail})
	_, err := client.Create(t.Context(), c, configMap("one"))
	wantError(t, err, `Internal error occurred: failed calling webhook "check.example.com": failed to call webhook: `)
	_, err = client.Create(t.Context(), c, configMap("wrong"))
	wantError(t, err, `failed calling webhook "check.example.com": received invalid webhook response: expected response.uid=`)
	configuration, err := client.Get[*admissionregistrationv1.ValidatingWebhookConfiguration](t.Context(), c, "", "hooks")
	if err != nil {
		t.Fatal(err)
	}
	configuration.Webhooks[0].FailurePolicy = &ignore
	if _, err := client.Update(t.Context(), c, configuration); err != nil {
		t.Fatalf("webhooks are called for their own configuration: %v", err)
	}
	if _, err := client.Create(t.Context(), c, configMap("one")); err != nil {
		t.Errorf("with failurePolicy Ignore: %v", err)
	}
}

func TestWebhooksAreCalledOnlyForMatchingRequests(t *testing.T) {
	for name, test := range map[string]struct {
		hook admissionregistrationv1.ValidatingWebhook
		asks bool
		err  string
	}{
		"another resource":   {hook: admissionregistrationv1.ValidatingWebhook{Rules: []admissionregistrationv1.RuleWithOperations{rule("", "v1", "secrets")}}},
		"every resource":     {hook: admissionregistrationv1.ValidatingWebhook{Rules: []admissionregistrationv1.RuleWithOperations{rule("*", "*", "*")}}, asks: true},
		"subresources alone": {hook: admissionregistrationv1.ValidatingWebhook{Rules: []admissionregistrationv1.RuleWithOperations{rule("", "v1", "*/status")}}},
		"the namespace is not selected": {hook: admissionregistrationv1.ValidatingWebhook{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": "other"}}}},
		"the namespace is selected": {hook: admissionregistrationv1.ValidatingWebhook{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": "default"}}}, asks: true},
		"the object is not selected": {hook: admissionregistrationv1.ValidatingWebhook{
			ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}}},
		"a condition is false": {hook: admissionregistrationv1.ValidatingWebhook{MatchConditions: []admissionregistrationv1.MatchCondition{
			{Name: "no", Expression: "object.metadata.name != 'one'"}, {Name: "broken", Expression: "object.nothing.there == 1"}}}},
		"conditions hold": {hook: admissionregistrationv1.ValidatingWebhook{MatchConditions: []admissionregistrationv1.MatchCondition{
			{Name: "yes", Expression: "request.userInfo.username == 'tester' && authorizer.group('').resource('pods').check('get').allowed()"}}}, asks: true},
		"a condition fails": {hook: admissionregistrationv1.ValidatingWebhook{MatchConditions: []admissionregistrationv1.MatchCondition{
			{Name: "broken", Expression: "object.nothing.there == 1"}}}, err: "resulted in error: no such key: nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			_, c := newHookedServer(t)
			h := newHookServer(t, allowed)
			test.hook.ClientConfig = h.at("/")
			validate(t, c, test.hook)
			_, err := c.Create(t.Context(), schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "default", configMap("one"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if test.err != "" {
				wantError(t, err, test.err)
			} else if err != nil {
				t.Error(err)
			}
			if asked := len(h.requests()) > 0; asked != test.asks {
				t.Errorf("called: %v, want %v", asked, test.asks)
			}
		})
	}
}

func TestWebhookSeesOtherVersionsConverted(t *testing.T) {
	_, c := newHookedServer(t)
	h := newHookServer(t, allowed)
	validate(t, c, admissionregistrationv1.ValidatingWebhook{ClientConfig: h.at("/"), Rules: []admissionregistrationv1.RuleWithOperations{rule("autoscaling", "v1", "horizontalpodautoscalers")}})
	_, err := client.Create(t.Context(), c, &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 3, ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "d", APIVersion: "apps/v1"}}})
	if err != nil {
		t.Fatal(err)
	}
	r := h.requests()[0]
	var seen autoscalingv1.HorizontalPodAutoscaler
	if err := json.Unmarshal(r.Object.Raw, &seen); err != nil || seen.APIVersion != "autoscaling/v1" || r.Kind.Version != "v1" || r.RequestKind.Version != "v2" || seen.Spec.MaxReplicas != 3 {
		t.Errorf("the webhook saw %s as %v (%v)", r.Object.Raw, r.Kind, err)
	}
}

// patch answers with a JSON patch.
func patch(operations string) *admissionv1.AdmissionResponse {
	kind := admissionv1.PatchTypeJSONPatch
	return &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(operations), PatchType: &kind, Warnings: []string{"patched"}}
}

func TestMutatingWebhooksPatchInOrderAndAreReinvoked(t *testing.T) {
	_, c := newHookedServer(t)
	h := newHookServer(t, func(path string, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		var seen corev1.ConfigMap
		if err := json.Unmarshal(r.Object.Raw, &seen); err != nil {
			return nil
		}
		if path == "/first" && seen.Data["second"] != "" {
			return patch(`[{"op":"add","path":"/data/again","value":"yes"}]`)
		}
		return patch(`[{"op":"add","path":"/data` + path + `","value":"` + seen.Data["first"] + `+"}]`)
	})
	ifNeeded := admissionregistrationv1.IfNeededReinvocationPolicy
	mutate(t, c, admissionregistrationv1.MutatingWebhook{Name: "first.example.com", ClientConfig: h.at("/first"), ReinvocationPolicy: &ifNeeded},
		admissionregistrationv1.MutatingWebhook{Name: "second.example.com", ClientConfig: h.at("/second")})
	made, err := client.Create(t.Context(), c, configMap("one"))
	if err != nil {
		t.Fatal(err)
	}
	if made.Data["first"] != "+" || made.Data["second"] != "++" || made.Data["again"] != "yes" || made.Data["a"] != "1" {
		t.Errorf("the data are %v", made.Data)
	}
	if n := len(h.requests()); n != 3 {
		t.Errorf("webhooks were called %d times, want 3", n)
	}
}

func TestInvalidWebhookPatches(t *testing.T) {
	_, c := newHookedServer(t)
	h := newHookServer(t, nil)
	mutate(t, c, admissionregistrationv1.MutatingWebhook{Name: "first.example.com", ClientConfig: h.at("/")})
	for operations, want := range map[string]string{
		`[{"op":"remove","path":"/data/none"}]`: "Unable to remove nonexistent key",
		`{`:                                     "Internal error occurred",
		`[{"op":"replace","path":"/data","value":"a text"}]`: "Internal error occurred",
		`[{"op":"replace","path":"/kind","value":"Secret"}]`: "Internal error occurred",
	} {
		h.answer = func(string, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { return patch(operations) }
		_, err := client.Create(t.Context(), c, configMap("one"))
		wantError(t, err, want)
	}
	merge := admissionv1.PatchType("Merge")
	h.answer = func(string, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		answer := patch(`[{"op":"add","path":"/data/a","value":"b"}]`)
		answer.PatchType = &merge
		return answer
	}
	_, err := client.Create(t.Context(), c, configMap("one"))
	wantError(t, err, `failed calling webhook "first.example.com": unsupported patch type "Merge"`)
}

func TestWebhooksBehindServices(t *testing.T) {
	_, c := newHookedServer(t)
	h := newHookServer(t, denied)
	host, portText, err := net.SplitHostPort(strings.TrimPrefix(h.URL, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	var port int32
	if err := json.Unmarshal([]byte(portText), &port); err != nil {
		t.Fatal(err)
	}
	path, number := "/check", int32(8443)
	validate(t, c, admissionregistrationv1.ValidatingWebhook{ClientConfig: admissionregistrationv1.WebhookClientConfig{CABundle: h.ca,
		Service: &admissionregistrationv1.ServiceReference{Namespace: "default", Name: "hook", Path: &path, Port: &number}}})
	_, err = client.Create(t.Context(), c, configMap("one"))
	wantError(t, err, `failed to call webhook: Post "https://hook.default.svc:8443/check?timeout=10s": service "hook" not found`)
	memory := discoveryv1.AddressTypeIPv4
	if _, err := client.Create(t.Context(), c, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hook"},
		Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: number}}}}); err != nil {
		t.Fatal(err)
	}
	routes := client.NewRoutes(t.Context(), c)
	if _, err := routes.Resolve(t.Context(), "default", "hook", 1); err == nil || err.Error() != `no service port 1 found for service "hook"` {
		t.Errorf("another port gives %v", err)
	}
	_, err = client.Create(t.Context(), c, configMap("one"))
	wantError(t, err, `no endpoints available for service "hook"`)
	if _, err := client.Create(t.Context(), c, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "hook-1", Labels: map[string]string{discoveryv1.LabelServiceName: "hook"}},
		AddressType: memory, Ports: []discoveryv1.EndpointPort{{Port: &port}}, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{host}}}}); err != nil {
		t.Skipf("an endpoint on loopback is not valid: %v", err)
	}
	_, err = client.Create(t.Context(), c, configMap("one"))
	wantError(t, err, "not today")
}

func TestWebhooksSeeSubresources(t *testing.T) {
	_, c := newHookedServer(t)
	h := newHookServer(t, allowed)
	labels := map[string]string{"a": "b"}
	if _, err := client.Create(t.Context(), c, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "d"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}}}); err != nil {
		t.Fatal(err)
	}
	validate(t, c, admissionregistrationv1.ValidatingWebhook{ClientConfig: h.at("/"), Rules: []admissionregistrationv1.RuleWithOperations{rule("apps", "v1", "*/scale")}})
	deployments := appsv1.SchemeGroupVersion.WithResource("deployments")
	if _, err := c.Patch(t.Context(), deployments, "default", "d", types.MergePatchType, []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{}, "scale"); err != nil {
		t.Fatal(err)
	}
	asked := h.requests()
	if len(asked) != 1 || asked[0].SubResource != "scale" || asked[0].Kind.Kind != "Scale" || !strings.Contains(string(asked[0].Object.Raw), `"replicas":2`) || !strings.Contains(string(asked[0].OldObject.Raw), `"replicas":1`) {
		t.Errorf("the webhook got %+v", asked)
	}
}

func TestWebhooksSeeConnections(t *testing.T) {
	s, c := newHookedServer(t)
	h := newHookServer(t, denied)
	validate(t, c, admissionregistrationv1.ValidatingWebhook{ClientConfig: h.at("/"), Rules: []admissionregistrationv1.RuleWithOperations{rule("", "v1", "pods/attach", "pods/exec")}})
	server := httptest.NewServer(s.Handler())
	defer server.Close()
	response, err := http.Post(server.URL+"/api/v1/namespaces/default/pods/p/exec?command=sh&stdin=true", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var status metav1.Status
	if err := json.NewDecoder(response.Body).Decode(&status); err != nil || status.Message != `admission webhook "check.example.com" denied the request: not today` {
		t.Errorf("the answer is %+v, %v", status, err)
	}
	r := h.requests()[0]
	if r.Operation != "CONNECT" || r.SubResource != "exec" || r.Kind.Kind != "PodExecOptions" || !strings.Contains(string(r.Object.Raw), `"command":["sh"]`) {
		t.Errorf("the webhook got %+v %s", r, r.Object.Raw)
	}
}

// TestUnavailableWebhook: the message and the metrics are upstream's.
func TestUnavailableWebhook(t *testing.T) {
	s, c := newHookedServer(t)
	ended := make(chan struct{})
	h := newHookServer(t, func(path string, _ *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		switch path {
		case "/silent":
			<-ended
		case "/patch":
			return patch(`{`)
		case "/place":
			return patch(`[{"op":"remove","path":"/data/none"}]`)
		case "/no":
			return &admissionv1.AdmissionResponse{Result: &metav1.Status{Code: 700}}
		}
		return nil
	})
	t.Cleanup(func() { close(ended) }) // before the server waits for its requests
	ignore := admissionregistrationv1.Ignore
	write := func(name string, policy *admissionregistrationv1.FailurePolicyType, path string) error {
		t.Helper()
		seconds := int32(30)
		if path == "/silent" {
			seconds = 1
		}
		hook := admissionregistrationv1.MutatingWebhook{Name: name + ".mutating.example.com", ClientConfig: h.at(path), FailurePolicy: policy, TimeoutSeconds: &seconds}
		mutate(t, c, hook)
		_, err := client.Create(t.Context(), c, configMap(name))
		if err := client.Delete[*admissionregistrationv1.MutatingWebhookConfiguration](t.Context(), c, "", "hooks", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if path == "/patch" || path == "/place" {
			return err
		}
		validate(t, c, admissionregistrationv1.ValidatingWebhook{Name: name + ".validating.example.com", ClientConfig: h.at(path), FailurePolicy: policy, TimeoutSeconds: &seconds})
		_, second := client.Create(t.Context(), c, configMap(name+"-2"))
		if err := client.Delete[*admissionregistrationv1.ValidatingWebhookConfiguration](t.Context(), c, "", "hooks", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if (err == nil) != (second == nil) || err != nil && strings.ReplaceAll(err.Error(), "mutating", "validating") != second.Error() {
			t.Errorf("%s: %v, and %v", name, err, second)
		}
		return err
	}
	err := write("silent", nil, "/silent")
	if want := `Internal error occurred: failed calling webhook "silent.mutating.example.com": failed to call webhook: Post "` + h.URL + `/silent?timeout=1s": context deadline exceeded`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := write("ignored", &ignore, "/silent"); err != nil {
		t.Error(err)
	}
	wantError(t, write("broken", nil, "/broken"), `failed calling webhook "broken.mutating.example.com": failed to call webhook: an error on the server`)
	wantError(t, write("undecodable", nil, "/patch"), "received undecodable patch in webhook response")
	wantError(t, write("misplaced", nil, "/place"), "Unable to remove nonexistent key")
	wantError(t, write("no", nil, "/no"), "denied the request")
	w := httptest.NewRecorder()
	s.metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	page := w.Body.String()
	for _, want := range []string{ // these figures are global to the process
		`webhook_rejection_count{error_type="calling_webhook_error",name="silent.mutating.example.com",operation="CREATE",rejection_code="503",type="admit"} `,
		`webhook_rejection_count{error_type="calling_webhook_error",name="silent.validating.example.com",operation="CREATE",rejection_code="503",type="validating"} `,
		`webhook_request_total{code="503",name="silent.mutating.example.com",operation="CREATE",rejected="true",type="admit"} `,
		`webhook_request_total{code="503",name="ignored.mutating.example.com",operation="CREATE",rejected="false",type="admit"} `,
		`webhook_request_total{code="503",name="ignored.validating.example.com",operation="CREATE",rejected="false",type="validating"} `,
		`webhook_fail_open_count{name="ignored.mutating.example.com",type="admit"} `,
		`webhook_fail_open_count{name="ignored.validating.example.com",type="validating"} `,
		`webhook_rejection_count{error_type="calling_webhook_error",name="broken.mutating.example.com",operation="CREATE",rejection_code="500",type="admit"} `,
		`webhook_rejection_count{error_type="calling_webhook_error",name="undecodable.mutating.example.com",operation="CREATE",rejection_code="503",type="admit"} `,
		`webhook_rejection_count{error_type="apiserver_internal_error",name="misplaced.mutating.example.com",operation="CREATE",rejection_code="0",type="admit"} `,
		`webhook_request_total{code="0",name="misplaced.mutating.example.com",operation="CREATE",rejected="true",type="admit"} `,
		`webhook_rejection_count{error_type="no_error",name="no.mutating.example.com",operation="CREATE",rejection_code="600",type="admit"} `,
		`webhook_request_total{code="600",name="no.validating.example.com",operation="CREATE",rejected="true",type="validating"} `,
	} {
		if !strings.Contains(page, "\napiserver_admission_"+want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	if strings.Contains(page, `webhook_rejection_count{error_type="calling_webhook_error",name="ignored`) {
		t.Error("an ignored failure counts as a rejection")
	}
}
