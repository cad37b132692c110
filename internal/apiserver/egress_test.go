package apiserver

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/apiserver/definitions"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/egress"
	"github.com/knarr-project/knarr/internal/egress/egresstest"
)

// Addresses that are not reachable (RFC 5737): only a proxy can connect to them.
const (
	farKubelet = "192.0.2.10:10250"
	farPod     = "192.0.2.20:8080"
	farHook    = "192.0.2.30:8443"
)

func through(s *egress.Selector) func(*Config) { return func(c *Config) { c.Egress = s } }

func TestNodesAndPodsAreReachedThroughTheClusterProxy(t *testing.T) {
	kubelet := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			_, _ = io.WriteString(w, "kubelet "+r.URL.Path)
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = rw.Flush()
		line, _ := rw.ReadString('\n')
		_, _ = rw.WriteString(line)
		_ = rw.Flush()
	}))
	t.Cleanup(kubelet.Close)
	pod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "pod "+r.URL.Path) }))
	t.Cleanup(pod.Close)
	routes := map[string]string{farKubelet: kubelet.Listener.Addr().String(), farPod: pod.Listener.Addr().String()}
	for protocol, proxy := range map[string]*egresstest.Proxy{"HTTPConnect": egresstest.Connect(t, routes), "GRPC": egresstest.Konnectivity(t, routes)} {
		t.Run(protocol, func(t *testing.T) {
			s := newTestServer(t, through(proxy.Selector(t, protocol, egress.Cluster)), func(c *Config) { c.KubeletTLS = &tls.Config{InsecureSkipVerify: true} })
			t.Cleanup(func() {
				out := s.nodes.Transports()
				for _, one := range []*http.Transport{out.Kubelet, out.Unverified, out.Proxy} {
					one.CloseIdleConnections()
				}
			})
			ask := func(method, path, body string, header ...string) string {
				t.Helper()
				code, _, answer := do(t, s, method, path, body, header...)
				if code > 299 {
					t.Fatalf("%s %s: %d %s", method, path, code, answer)
				}
				return answer
			}
			const pods, merge = "/api/v1/namespaces/default/pods", "application/merge-patch+json"
			ask("POST", "/api/v1/nodes", `{"metadata":{"name":"n"}}`)
			ask("PATCH", "/api/v1/nodes/n/status", `{"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.10"}]}}`, "Content-Type", merge)
			ask("POST", pods, `{"metadata":{"name":"p"},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}]}}`)
			ask("PATCH", pods+"/p/status", `{"status":{"podIPs":[{"ip":"192.0.2.20"}],"podIP":"192.0.2.20"}}`, "Content-Type", merge)
			proxy.Asked()
			for path, want := range map[string]string{
				pods + "/p/log":                 "kubelet /containerLogs/default/p/c",
				pods + "/p:8080/proxy/x":        "pod /x",
				"/api/v1/nodes/n/proxy/configz": "kubelet /configz",
			} {
				if got := ask("GET", path, ""); got != want {
					t.Errorf("%s: %q, want %q", path, got, want)
				}
			}
			ts := httptest.NewServer(s.Handler())
			defer ts.Close()
			if got := talk(t, ts, pods+"/p/exec?command=true&stdout=true"); got != "hello\n" {
				t.Errorf("the stream returned %q", got)
			}
			asked := proxy.Asked()
			for _, want := range []string{farKubelet, farPod} {
				if !slices.Contains(asked, want) {
					t.Errorf("the proxy connected to %v, not to %s", asked, want)
				}
			}
		})
	}
}

// talk sends a line over a stream and returns the answer.
func talk(t *testing.T, ts *httptest.Server, path string) string {
	t.Helper()
	conn, err := net.Dial("tcp", ts.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\nContent-Length: 0\r\n\r\n", path)
	in := bufio.NewReader(conn)
	answer, err := http.ReadResponse(in, nil)
	if err != nil || answer.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", answer, err)
	}
	_, _ = io.WriteString(conn, "hello\n")
	line, _ := in.ReadString('\n')
	return line
}

func TestExtensionServersAreReachedThroughTheClusterProxy(t *testing.T) {
	proxy := egresstest.Connect(t, nil)
	s, ts := aggregating(t, through(proxy.Selector(t, "HTTPConnect", egress.Cluster)))
	if answer, body := fetch(t, ts.URL+flunders); answer.StatusCode != 200 {
		t.Errorf("%d %s", answer.StatusCode, body)
	}
	object, err := client.Get[*corev1.Service](t.Context(), s.ownClient(), "default", "wardle")
	if err != nil {
		t.Fatal(err)
	}
	asked := proxy.Asked()
	if len(asked) == 0 || slices.ContainsFunc(asked, func(address string) bool {
		host, _, _ := net.SplitHostPort(address)
		return host != object.Spec.ExternalName
	}) {
		t.Errorf("the proxy connected to %v", asked)
	}
}

func TestWebhooksAreReachedThroughTheProxyOfTheirNetwork(t *testing.T) {
	h := newHookServer(t, denied)
	real := h.Listener.Addr().String()
	cluster, controlPlane := egresstest.Konnectivity(t, map[string]string{farHook: real}), egresstest.Connect(t, map[string]string{farHook: real})
	for name, of := range map[string]struct {
		proxy    *egresstest.Proxy
		protocol string
		network  egress.Network
		at       func(path string) admissionregistrationv1.WebhookClientConfig
	}{
		"behind a Service": {cluster, "GRPC", egress.Cluster, func(path string) admissionregistrationv1.WebhookClientConfig {
			port := int32(8443)
			return admissionregistrationv1.WebhookClientConfig{CABundle: h.ca, Service: &admissionregistrationv1.ServiceReference{Namespace: "default", Name: "hook", Path: &path, Port: &port}}
		}},
		"at a URL": {controlPlane, "HTTPConnect", egress.ControlPlane, h.at},
	} {
		t.Run(name, func(t *testing.T) {
			s, c := newHookedServer(t, through(of.proxy.Selector(t, of.protocol, of.network)))
			port, number := int32(8443), int32(8443)
			for _, err := range []error{
				second(client.Create(t.Context(), c, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hook"},
					Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: number}}}})),
				second(client.Create(t.Context(), c, &discoveryv1.EndpointSlice{
					ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "hook-1", Labels: map[string]string{discoveryv1.LabelServiceName: "hook"}},
					AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: &port}}, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.30"}}}})),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			validate(t, c, admissionregistrationv1.ValidatingWebhook{ClientConfig: of.at("/check")})
			_, err := client.Create(t.Context(), c, configMap("one"))
			wantError(t, err, "not today")
			want := farHook
			if of.network == egress.ControlPlane {
				want = real
			}
			if asked := of.proxy.Asked(); !slices.Equal(asked, []string{want}) {
				t.Errorf("the proxy connected to %v, want %s", asked, want)
			}

			hook := of.at("/convert")
			config := &apiextensionsv1.WebhookClientConfig{URL: hook.URL, CABundle: h.ca}
			if hook.Service != nil {
				config.Service = &apiextensionsv1.ServiceReference{Namespace: "default", Name: "hook", Path: hook.Service.Path, Port: hook.Service.Port}
			}
			converting := &definitions.Converter{Client: s.webhookClient}
			_, err = converting.Call(t.Context(), config, []byte("{}"))
			converting.Close()
			_ = err // only the request matters
			if asked := of.proxy.Asked(); !slices.Equal(asked, []string{want}) {
				t.Errorf("for a conversion, the proxy connected to %v, want %s: %v", asked, want, err)
			}
		})
	}
}
