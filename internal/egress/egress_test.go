package egress_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/knarr-project/knarr/internal/egress"
	"github.com/knarr-project/knarr/internal/egress/egresstest"
)

func keyBytes(t *testing.T, key any) []byte {
	t.Helper()
	out, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// far is an unreachable address (RFC 5737) that only the proxy can translate.
const far = "192.0.2.7:443"

func load(t *testing.T, text string) *egress.Selector {
	t.Helper()
	s, err := egress.Load(file(t, "egress.yaml", text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// counts returns the metrics of a Selector, without durations.
func counts(t *testing.T, s *egress.Selector) (out []string) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			line := strings.TrimPrefix(f.GetName(), "apiserver_egress_dialer_dial_")
			for _, l := range m.Label {
				line += " " + l.GetValue()
			}
			out = append(out, fmt.Sprintf("%s %v", line, m.GetCounter().GetValue()+float64(m.GetHistogram().GetSampleCount())))
		}
	}
	return out
}

func TestRequestsGoThroughProxies(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	}))
	// Ignore errors of connections without a request.
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	routes := map[string]string{far: server.Listener.Addr().String()}
	certificate, key := pair(t)
	overTLS := func(t *testing.T, p *egresstest.Proxy, host, more string) string {
		proxy := httptest.NewUnstartedServer(p)
		proxy.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
		proxy.StartTLS()
		t.Cleanup(proxy.Close)
		_, port, _ := net.SplitHostPort(proxy.Listener.Addr().String())
		return fmt.Sprintf("proxyProtocol: HTTPConnect, transport: {tcp: {url: 'https://%s', tlsConfig: {caBundle: %s, clientCert: %s, clientKey: %s%s}}}",
			net.JoinHostPort(host, port), certificate, certificate, key, more)
	}
	for name, tc := range map[string]struct {
		open  func(t *testing.T) (p *egresstest.Proxy, connection string)
		label string
	}{
		"CONNECT over TLS": {func(t *testing.T) (*egresstest.Proxy, string) {
			p := egresstest.New(routes)
			return p, overTLS(t, p, "127.0.0.1", "")
		}, "http_connect tcp"},
		"CONNECT over TLS to another name": {func(t *testing.T) (*egresstest.Proxy, string) {
			p := egresstest.New(routes)
			return p, overTLS(t, p, "localhost", ", tlsServerName: example.com")
		}, "http_connect tcp"},
		"CONNECT without TLS": {func(t *testing.T) (*egresstest.Proxy, string) {
			p := egresstest.New(routes)
			proxy := httptest.NewServer(p)
			t.Cleanup(proxy.Close)
			return p, fmt.Sprintf("proxyProtocol: HTTPConnect, transport: {tcp: {url: '%s'}}", proxy.URL)
		}, "http_connect tcp"},
		"CONNECT over a socket": {func(t *testing.T) (*egresstest.Proxy, string) {
			p := egresstest.Connect(t, routes)
			return p, fmt.Sprintf("proxyProtocol: HTTPConnect, transport: {uds: {udsName: %s}}", p.Socket)
		}, "http_connect uds"},
		"GRPC over a socket": {func(t *testing.T) (*egresstest.Proxy, string) {
			p := egresstest.Konnectivity(t, routes)
			return p, fmt.Sprintf("proxyProtocol: GRPC, transport: {uds: {udsName: %s}}", p.Socket)
		}, "grpc uds"},
	} {
		t.Run(name, func(t *testing.T) {
			p, connection := tc.open(t)
			s := load(t, one("cluster", connection))
			transport := &http.Transport{DialContext: s.To(egress.Cluster), TLSClientConfig: server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()}
			transport.TLSClientConfig.ServerName = "example.com"
			defer transport.CloseIdleConnections()
			sent := strings.Repeat("knarr ", 20000)
			for range 2 { // over one connection
				answer, err := (&http.Client{Transport: transport}).Post("https://"+far, "text/plain", strings.NewReader(sent))
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(answer.Body)
				_ = answer.Body.Close()
				if err != nil || string(got) != sent {
					t.Fatalf("%d bytes came back, %v", len(got), err)
				}
			}
			if got := p.Asked(); !slices.Equal(got, []string{far}) {
				t.Errorf("the proxy got requests for %v", got)
			}
			if got, want := counts(t, s), []string{"duration_seconds " + tc.label + " 1", "start_total " + tc.label + " 1"}; !slices.Equal(got, want) {
				t.Errorf("metrics: %q, want %q", got, want)
			}
			// The proxy does not use a connection after the other side has closed it. A connection
			// has addresses.
			conn, err := s.To(egress.Cluster)(t.Context(), "tcp", far)
			if err != nil {
				t.Fatal(err)
			}
			if conn.RemoteAddr() == nil || conn.LocalAddr() == nil {
				t.Error("a connection has no addresses")
			}
			_ = conn.Close()
			if _, err := conn.Read(make([]byte, 1)); err == nil {
				t.Error("a closed connection is read")
			}
		})
	}
}

// startTalkingProxy is a proxy that sends the answer and closes the connection.
func startTalkingProxy(t *testing.T, answer string) (socket string) {
	t.Helper()
	p := egresstest.New(nil)
	listener := p.Listen(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 4096))
			_, _ = io.WriteString(conn, answer)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = listener.Close(); <-done })
	return p.Socket
}

func TestConnectionsThatFail(t *testing.T) {
	nowhere := map[string]string{far: "127.0.0.1:1"}
	byConnect := func(socket string) string {
		return "proxyProtocol: HTTPConnect, transport: {uds: {udsName: " + socket + "}}"
	}
	byGRPC := func(socket string) string { return "proxyProtocol: GRPC, transport: {uds: {udsName: " + socket + "}}" }
	for name, tc := range map[string]struct{ connection, want, failure string }{
		"no proxy":                 {byConnect("/none"), "connect: no such file or directory", "http_connect connect uds"},
		"no proxy of konnectivity": {byGRPC("/none"), "context deadline exceeded", "grpc connect uds"},
		"a proxy that does not reach": {byConnect(egresstest.Connect(t, nowhere).Socket), "while dialing " + far + ", code 502: 502 Bad Gateway",
			"http_connect proxy uds"},
		"one of konnectivity":             {byGRPC(egresstest.Konnectivity(t, nowhere).Socket), "dial tcp 127.0.0.1:1: connect", "grpc proxy uds"},
		"a proxy that ends":               {byConnect(startTalkingProxy(t, "HTTP/1.1 ")), "reading HTTP response from CONNECT to " + far + " via proxy", "http_connect proxy uds"},
		"a proxy whose answer never ends": {byConnect(startTalkingProxy(t, "HTTP/1.1 200 OK\r\nA: "+strings.Repeat("x", 2<<20))), "reading HTTP response from CONNECT to", "http_connect proxy uds"},
	} {
		t.Run(name, func(t *testing.T) {
			s := load(t, one("cluster", tc.connection))
			ctx := t.Context()
			if tc.connection == byGRPC("/none") {
				// The library retries until then, because the server may be about to start.
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 10*time.Millisecond)
				defer cancel()
			}
			if _, err := s.To(egress.Cluster)(ctx, "tcp", far); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %s", err, tc.want)
			}
			label := strings.Fields(tc.failure)
			want := []string{"failure_count " + label[0] + " " + label[1] + " " + label[2] + " 1", "start_total " + label[0] + " " + label[2] + " 1"}
			if got := counts(t, s); !slices.Equal(got, want) {
				t.Errorf("metrics: %q, want %q", got, want)
			}
		})
	}
}

func TestBytesThatFollowTheProxysAnswerAreNotLost(t *testing.T) {
	s := load(t, one("cluster", "proxyProtocol: HTTPConnect, transport: {uds: {udsName: "+startTalkingProxy(t, "HTTP/1.1 200 OK\r\n\r\nSSH-2.0")+"}}"))
	conn, err := s.To(egress.Cluster)(t.Context(), "tcp", far)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if said, err := io.ReadAll(conn); err != nil || string(said) != "SSH-2.0" {
		t.Errorf("%q, %v", said, err)
	}
}

func TestWaitingForASilentProxyEndsWithTheContext(t *testing.T) {
	for _, protocol := range []string{"HTTPConnect", "GRPC"} {
		t.Run(protocol, func(t *testing.T) {
			listening := egresstest.New(nil)
			listener := listening.Listen(t)
			defer func() { _ = listener.Close() }()
			accepted := make(chan net.Conn, 1)
			go func() {
				if conn, err := listener.Accept(); err == nil {
					accepted <- conn
				}
			}()
			s := load(t, one("cluster", "proxyProtocol: "+protocol+", transport: {uds: {udsName: "+listening.Socket+"}}"))
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				conn := <-accepted
				defer func() { _ = conn.Close() }()
				_, _ = conn.Read(make([]byte, 4096)) // it gets the request
				cancel()
				_, _ = conn.Read(make([]byte, 4096))
				<-t.Context().Done()
			}()
			if _, err := s.To(egress.Cluster)(ctx, "tcp", far); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}

func TestTheServerReachesItselfWithoutAProxy(t *testing.T) {
	p := egresstest.New(nil)
	p.Socket = "/none"
	s := p.Selector(t, "HTTPConnect", egress.Cluster, egress.ControlPlane)
	direct := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("directly") }
	for name, tc := range map[string]struct {
		dial   egress.Dial
		direct bool
	}{
		"a Service":           {s.ServiceWebhook("default", "hook", 443, direct), false},
		"another port":        {s.ServiceWebhook("default", "kubernetes", 8443, direct), false},
		"the server":          {s.ServiceWebhook("default", "kubernetes", 443, direct), true},
		"the server by a URL": {s.Webhook("kubernetes.default.svc:443", direct), true},
		"another URL":         {s.Webhook("hook.example.com", direct), false},
	} {
		if _, err := tc.dial(t.Context(), "tcp", far); (err.Error() == "directly") != tc.direct {
			t.Errorf("%s: %v", name, err)
		}
	}
}
