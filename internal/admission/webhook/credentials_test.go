package webhook

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

func TestWebhooksGetTheCredentialsOfTheirServer(t *testing.T) {
	asked := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.Header.Get("Authorization") }))
	t.Cleanup(server.Close)
	// Every host name leads to this server.
	_, port, err := net.SplitHostPort(strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	file := func(users string) string {
		path := filepath.Join(t.TempDir(), "kubeconfig")
		if err := os.WriteFile(path, []byte("{apiVersion: v1, kind: Config, users: ["+users+"]}"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const users = `{name: hook.ns.svc, user: {token: service}}, {name: 'hook.ns.svc:8443', user: {token: port}}, {name: '*.example.com', user: {token: domain}},
		{name: '*.b.example.com', user: {token: nearer}}, {name: 'localhost:PORT', user: {username: u, password: p}}`
	all := strings.ReplaceAll(users, "PORT", port)
	for name, tc := range map[string]struct{ users, server, want string }{
		"no file":                   {"", "localhost:" + port, ""},
		"a Service":                 {all, "hook.ns.svc", "Bearer service"},
		"another port of a Service": {all, "hook.ns.svc:8443", "Bearer port"},
		"a server of a domain":      {all, "a.example.com", "Bearer domain"},
		"the closest domain":        {all, "a.b.example.com", "Bearer nearer"},
		"a name with its port":      {all, "localhost:" + port, "Basic dTpw"},
		"no match":                  {all, "example.org", ""},
		"a wildcard does not match the bare domain": {all, "example.com", ""},
		"the wildcard for all servers":              {all + `, {name: '*', user: {token: rest}}`, "example.org:1", "Bearer rest"},
	} {
		t.Run(name, func(t *testing.T) {
			path := ""
			if tc.users != "" {
				path = file(tc.users)
			}
			credentials, err := LoadCredentials(path)
			if err != nil {
				t.Fatal(err)
			}
			transport := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
			}}
			defer transport.CloseIdleConnections()
			through, err := credentials.transport(tc.server, transport)
			if err != nil {
				t.Fatal(err)
			}
			response, err := (&http.Client{Transport: through}).Get("http://" + tc.server)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if sent := <-asked; sent != tc.want {
				t.Errorf("got %q, want %q", sent, tc.want)
			}
		})
	}
	for name, users := range map[string]string{"no file": "-", "a user without a certificate": "{name: x, user: {client-certificate: /nope, client-key: /nope}}"} {
		path := "/nope"
		if users != "-" {
			path = file(users)
		}
		if _, err := LoadCredentials(path); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestServerNamesHaveThePortUnlessItIs443(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte("{apiVersion: v1, kind: Config, users: [{name: 'hook.ns.svc:8443', user: {tokenFile: "+path+"}}]}"), 0o600); err != nil {
		t.Fatal(err)
	}
	credentials, err := LoadCredentials(path)
	if err != nil {
		t.Fatal(err)
	}
	for port, wraps := range map[int32]bool{443: false, 8443: true} {
		c, err := newCaller(admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "ns", Name: "hook", Port: &port}}, &Config{Credentials: credentials})
		if err != nil {
			t.Fatal(err)
		}
		if user, err := credentials.forServer(c.server); err != nil || (user != nil) != wraps {
			t.Errorf("port %d: %v, %v", port, user, err)
		}
		c.close()
	}
}
