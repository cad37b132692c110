package apiserver

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
)

// extension is an extension server that serves flunders.
func extension(t *testing.T, s *Server) (service *corev1.Service, object *apiregistrationv1.APIService) {
	t.Helper()
	mux := http.NewServeMux()
	answer := func(v any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(v)
		}
	}
	mux.HandleFunc("/apis/wardle.example.com/v1", answer(metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "wardle.example.com/v1",
		APIResources: []metav1.APIResource{{Name: "flunders", SingularName: "flunder", Kind: "Flunder", Namespaced: true, Verbs: metav1.Verbs{"get", "list", "watch", "delete"}}},
	}))
	const path = "/apis/wardle.example.com/v1/namespaces/default/flunders"
	mux.HandleFunc(path+"/echo", func(w http.ResponseWriter, r *http.Request) { answer(r.Header)(w, r) })
	mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			answer(map[string]any{"kind": "FlunderList", "apiVersion": "wardle.example.com/v1", "metadata": map[string]string{"resourceVersion": "7"}, "items": []any{}})(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"type":"ADDED"}`+"\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc(path+"/elsewhere", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://example.com/", http.StatusFound)
	})
	mux.HandleFunc(path+"/echo/talk", func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n" + r.Header.Get("X-Remote-User") + "\n")
		_ = rw.Flush()
		line, _ := rw.ReadString('\n')
		_, _ = rw.WriteString(line)
		_ = rw.Flush()
	})
	mux.HandleFunc("/openapi/v3", answer(map[string]any{"paths": map[string]any{"apis/wardle.example.com/v1": map[string]string{"serverRelativeURL": "/openapi/v3/apis/wardle.example.com/v1?hash=AB"}}}))
	mux.HandleFunc("/openapi/v3/apis/wardle.example.com/v1", answer(map[string]any{"openapi": "3.0.0", "info": map[string]string{"title": "Wardle"}, "paths": map[string]any{}}))
	mux.HandleFunc("/openapi/v2", answer(map[string]any{"swagger": "2.0", "definitions": map[string]any{"wardle.Flunder": map[string]any{"type": "object"}},
		"paths": map[string]any{path: map[string]any{"get": map[string]any{"responses": map[string]any{"200": map[string]any{"description": "OK",
			"schema": map[string]string{"$ref": "#/definitions/wardle.Flunder"}}}}}, "/apis/other/v1/x": map[string]any{}}}))
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	number, _ := strconv.Atoi(at.Port())
	port := int32(number)
	service = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "wardle"},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}}
	object = &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: "v1.wardle.example.com"}, Spec: apiregistrationv1.APIServiceSpec{
		Group: "wardle.example.com", Version: "v1", GroupPriorityMinimum: 2000, VersionPriority: 200,
		Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "wardle", Port: &port}, InsecureSkipTLSVerify: true,
	}}
	return service, object
}

// aggregating is a server with a registered extension server.
func aggregating(t *testing.T, opts ...func(*Config)) (*Server, *httptest.Server) {
	t.Helper()
	s := newTestServer(t, append(opts, withServices)...)
	s.startBackground()
	ts := httptest.NewServer(s.Handler())
	t.Cleanup(ts.Close)
	service, object := extension(t, s)
	for _, err := range []error{second(client.Create(t.Context(), s.ownClient(), service)), second(client.Create(t.Context(), s.ownClient(), object))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() error {
		return reasonIs(t.Context(), s, "Passed")
	})
	return s, ts
}

func second[T any](_ T, err error) error { return err }

func reasonIs(ctx context.Context, s *Server, want string) error {
	object, err := client.Get[*apiregistrationv1.APIService](ctx, s.ownClient(), "", "v1.wardle.example.com")
	if err != nil {
		return err
	}
	if c := object.Status.Conditions; len(c) != 1 || c[0].Reason != want {
		return fmt.Errorf("conditions: %+v", c)
	}
	return nil
}

func eventually(t *testing.T, fn func() error) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		err := fn()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func fetch(t *testing.T, url string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

const flunders = "/apis/wardle.example.com/v1/namespaces/default/flunders"

func TestExtensionServerGetsTheUsersIdentity(t *testing.T) {
	_, ts := aggregating(t)
	resp, body := fetch(t, ts.URL+flunders+"/echo", "Impersonate-User", "alice", "Impersonate-Group", "dev", "Authorization", "Bearer x", "X-Remote-Group", "system:masters", "X-Remote-Extra-A", "b")
	var header http.Header
	if err := json.Unmarshal([]byte(body), &header); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", resp.Status, body)
	}
	if header.Get("X-Remote-User") != "alice" || strings.Join(header["X-Remote-Group"], ",") != "dev,system:authenticated" {
		t.Errorf("the extension server got another user: %v", header)
	}
	for _, name := range []string{"Authorization", "Impersonate-User", "Impersonate-Group", "X-Remote-Extra-A"} {
		if header.Get(name) != "" {
			t.Errorf("%s: %s went through", name, header.Get(name))
		}
	}
}

func TestExtensionServerGetsForwardingHeadersAndCannotRedirect(t *testing.T) {
	_, ts := aggregating(t)
	resp, body := fetch(t, ts.URL+flunders+"/echo")
	var header http.Header
	if err := json.Unmarshal([]byte(body), &header); err != nil {
		t.Fatal(err)
	}
	if id := resp.Header.Get("Audit-Id"); id == "" || header.Get("Audit-Id") != id || header.Get("X-Forwarded-Proto") != "https" || header.Get("X-Forwarded-Host") == "" || header.Get("X-Forwarded-Uri") != flunders+"/echo" {
		t.Errorf("%v, the answer's: %v", header, resp.Header)
	}
	if resp, body := fetch(t, ts.URL+flunders+"/elsewhere"); resp.StatusCode != http.StatusBadGateway || body != "the backend attempted to redirect this request, which is not permitted" {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

func TestStreamsOfExtensionServers(t *testing.T) {
	_, ts := aggregating(t)
	resp, err := http.Get(ts.URL + flunders + "?watch=1")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || line != `{"type":"ADDED"}`+"\n" {
		t.Fatalf("the first event while the watch is open: %q, %v", line, err)
	}

	conn, err := net.Dial("tcp", strings.TrimPrefix(ts.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = fmt.Fprintf(conn, "GET %s/echo/talk HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", flunders)
	in := bufio.NewReader(conn)
	upgraded, err := http.ReadResponse(in, nil)
	if err != nil || upgraded.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("upgrade: %+v, %v", upgraded, err)
	}
	if line, err := in.ReadString('\n'); err != nil || line != "system:anonymous\n" {
		t.Fatalf("the user: %q, %v", line, err)
	}
	_, _ = io.WriteString(conn, "hello\n")
	if line, err := in.ReadString('\n'); err != nil || line != "hello\n" {
		t.Fatalf("echo: %q, %v", line, err)
	}
}

func TestDiscoveryAndOpenAPIIncludeExtensionServers(t *testing.T) {
	s, ts := aggregating(t)
	_, body := fetch(t, ts.URL+"/apis", "Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	if want := `{"metadata":{"name":"wardle.example.com"},"versions":[{"version":"v1","resources":[{"resource":"flunders"`; !strings.Contains(body, want) {
		t.Errorf("the aggregated document lacks it: %s", body[max(0, len(body)-600):])
	}
	_, body = fetch(t, ts.URL+"/apis/wardle.example.com")
	if !strings.Contains(body, `"preferredVersion":{"groupVersion":"wardle.example.com/v1","version":"v1"}`) {
		t.Errorf("the group: %s", body)
	}
	_, body = fetch(t, ts.URL+"/openapi/v3")
	if want := `"apis/wardle.example.com/v1":{"serverRelativeURL":"/openapi/v3/apis/wardle.example.com/v1?hash=AB"}`; !strings.Contains(body, want) {
		t.Errorf("the index: %s", body)
	}
	_, body = fetch(t, ts.URL+"/openapi/v3/apis/wardle.example.com/v1")
	if !strings.Contains(body, `"title":"Wardle"`) {
		t.Errorf("version 3: %s", body)
	}
	_, body = fetch(t, ts.URL+"/openapi/v2")
	if !strings.Contains(body, `"wardle.Flunder"`) || !strings.Contains(body, flunders) || strings.Contains(body, "/apis/other/") || !strings.Contains(body, "/api/v1/pods") {
		t.Errorf("version 2 is not merged, %d bytes", len(body))
	}
	lists, err := s.ownClient().Discovery(t.Context())
	if last := lists[len(lists)-2]; err != nil || last.GroupVersion != "wardle.example.com/v1" || last.APIResources[0].Kind != "Flunder" {
		t.Errorf("in process: %v", err)
	}
}

func TestComponentsOfThisProcessReachExtensionServers(t *testing.T) {
	s, _ := aggregating(t)
	list, err := s.Client(auth.Component("gc")).List(t.Context(), schema.GroupVersionResource{Group: "wardle.example.com", Version: "v1", Resource: "flunders"}, "default", metav1.ListOptions{})
	if err != nil || list.(metav1.ListInterface).GetResourceVersion() != "7" {
		t.Fatalf("list: %v %v", list, err)
	}
}

func TestUnavailableExtensionServerIsReportedAsStale(t *testing.T) {
	s, ts := aggregating(t)
	if err := client.Delete[*corev1.Service](t.Context(), s.ownClient(), "default", "wardle", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return reasonIs(t.Context(), s, "ServiceNotFound") })
	series := func(of string) string {
		_, page := fetch(t, ts.URL+"/metrics")
		for line := range strings.Lines(page) {
			if strings.HasPrefix(line, of) {
				return strings.TrimSpace(line)
			}
		}
		return ""
	}
	const gauge = `aggregator_unavailable_apiservice{name="v1.wardle.example.com"}`
	const counter = `aggregator_unavailable_apiservice_total{name="v1.wardle.example.com",reason="ServiceNotFound"}`
	if series(gauge) != gauge+" 1" || series(counter) == "" {
		t.Errorf("metrics say %q and %q", series(gauge), series(counter))
	}
	resp, body := fetch(t, ts.URL+flunders+"/echo")
	if resp.StatusCode != http.StatusServiceUnavailable || body != "service unavailable\n" {
		t.Errorf("%s: %q", resp.Status, body)
	}
	remote, err := client.Remote(&rest.Config{Host: ts.URL})
	if err != nil {
		t.Fatal(err)
	}
	for how, c := range map[string]client.Interface{"in process": s.ownClient(), "over HTTP": remote} {
		const want = "unable to retrieve the complete list of server APIs: wardle.example.com/v1: stale GroupVersion discovery: wardle.example.com/v1"
		if lists, err := c.Discovery(t.Context()); err == nil || err.Error() != want || len(lists) == 0 {
			t.Errorf("discovery %s: %d lists, %v", how, len(lists), err)
		}
	}
	if err := client.Delete[*apiregistrationv1.APIService](t.Context(), s.ownClient(), "", "v1.wardle.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if resp, _ := fetch(t, ts.URL+flunders+"/echo"); resp.StatusCode != http.StatusNotFound {
			return fmt.Errorf("%s after the APIService is gone", resp.Status)
		}
		if series(gauge) != "" || series(counter) != "" {
			return fmt.Errorf("its metrics remain: %q, %q", series(gauge), series(counter))
		}
		return nil
	})
}

func TestTrustIsPublishedToExtensionServers(t *testing.T) {
	ca := func(name string) []byte {
		server := httptest.NewTLSServer(nil)
		defer server.Close()
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Headers: nil, Bytes: server.Certificate().Raw})
	}("a")
	clients := ca
	s := newTestServer(t, func(c *Config) {
		c.Trust = Trust{ClientCA: func() []byte { return clients }, FrontProxyCA: func() []byte { return ca }, FrontProxyNames: []string{"front-proxy-client"}, Headers: auth.RemoteHeaders}
	})
	if err := s.boot.create(t.Context(), s.boot.objects()); err != nil {
		t.Fatal(err)
	}
	read := func() *corev1.ConfigMap {
		t.Helper()
		if err := s.boot.publishTrust(t.Context()); err != nil {
			t.Fatal(err)
		}
		m, err := client.Get[*corev1.ConfigMap](t.Context(), s.ownClient(), "kube-system", trustMapName)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := read()
	if m.Data["client-ca-file"] != string(ca) || m.Data["requestheader-allowed-names"] != `["front-proxy-client"]` || m.Data["requestheader-group-headers"] != `["X-Remote-Group"]` ||
		m.Data["requestheader-extra-headers-prefix"] != `["X-Remote-Extra-"]` {
		t.Errorf("got %v", m.Data)
	}
	m.Data["requestheader-allowed-names"], m.Data["client-ca-file"] = `["other"]`, "none"
	if _, err := client.Update(t.Context(), s.ownClient(), m); err != nil {
		t.Fatal(err)
	}
	if m = read(); m.Data["requestheader-allowed-names"] != `["other","front-proxy-client"]` || m.Data["client-ca-file"] != string(ca) {
		t.Errorf("data of other servers was dropped: %v", m.Data)
	}
	if again := read(); again.ResourceVersion != m.ResourceVersion {
		t.Error("the ConfigMap is written without a change")
	}
	m.Data["client-ca-file"] += string(ca)
	if _, err := client.Update(t.Context(), s.ownClient(), m); err != nil {
		t.Fatal(err)
	}
	if m = read(); m.Data["client-ca-file"] != string(ca) {
		t.Error("an existing duplicate certificate was not removed")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "other"}, key)
	if err != nil {
		t.Fatal(err)
	}
	added := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: other.Raw})
	if clients = append(slices.Clone(ca), added...); read().Data["client-ca-file"] != string(clients) {
		t.Error("a later authority was not published")
	}
	if _, err := client.Get[*corev1.ConfigMap](t.Context(), s.ownClient(), "kube-system", "none"); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}
