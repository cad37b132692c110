package controlplane

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/auth/pki"
	"github.com/knarr-project/knarr/internal/config"
)

func openKeys(t *testing.T) *pki.PKI {
	t.Helper()
	keys, err := pki.Open(pki.Config{Dir: t.TempDir(), NodeName: "sea"})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// secured serves HTTPS like a server with the flags. It answers with the client's user name.
func secured(t *testing.T, keys *pki.PKI, flags func(*config.APIServer)) (*Server, *httptest.Server) {
	t.Helper()
	cfg := config.Default()
	flags(&cfg.APIServer)
	s := &Server{cfg: &cfg, keys: keys, log: slog.New(slog.DiscardHandler)}
	if _, _, err := s.proxies(); err != nil {
		t.Fatal(err)
	}
	if err := s.openClientAuthorities(t.Context()); err != nil {
		t.Fatal(err)
	}
	secure, err := s.serverTLS(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, known, err := s.clients.certificates.Authenticate(r)
		fmt.Fprint(w, user.Name, " ", known, " ", err != nil)
	}))
	ts.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	ts.Listener = tls.NewListener(ts.Listener, secure) // StartTLS would use its own certificate
	ts.Start()
	t.Cleanup(ts.Close)
	return s, ts
}

// look reads all files again.
func (s *Server) look(t *testing.T) {
	for _, f := range s.files {
		f.Check(t.Context(), time.Now())
	}
}

// who returns the user name that the server sees. Like most clients, this one shows its certificate
// only if the server names its CA.
func who(t *testing.T, ts *httptest.Server, leaf *pki.Leaf) string {
	t.Helper()
	secure := &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{*leaf.Certificate()}}
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: secure, DisableKeepAlives: true}}
	resp, err := c.Get("https://" + ts.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var name, known, bad string
	if n, _ := fmt.Fscan(resp.Body, &name, &known, &bad); n == 2 {
		return "nobody"
	}
	return name
}

func TestClientCAsOfTheFileAreUsedWithoutARestart(t *testing.T) {
	keys, first, second := openKeys(t), openKeys(t), openKeys(t)
	path := filepath.Join(t.TempDir(), "clients")
	write := func(data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(first.CA.Bundle())
	s, ts := secured(t, keys, func(c *config.APIServer) { c.Authentication.ClientCA = path })
	check := func(step string, want ...string) {
		t.Helper()
		got := []string{who(t, ts, keys.Admin), who(t, ts, first.Scheduler), who(t, ts, second.Proxy)}
		if !slices.Equal(got, want) {
			t.Errorf("%s: known are %q, want %q", step, got, want)
		}
	}
	published := func(ca *pki.CA) bool {
		return strings.Contains(string(s.clients.pem()), string(ca.Bundle()))
	}
	check("at first", "kubernetes-admin", "system:kube-scheduler", "nobody")
	write([]byte("broken"))
	s.look(t)
	check("with a broken file", "kubernetes-admin", "system:kube-scheduler", "nobody")
	write(second.CA.Bundle())
	s.look(t)
	check("with another file", "kubernetes-admin", "nobody", "system:kube-proxy")
	if !published(keys.CA) || !published(second.CA) || published(first.CA) {
		t.Error("extension servers get other CAs")
	}
	write(append(slices.Clone(first.CA.Bundle()), second.CA.Bundle()...))
	s.look(t)
	check("with both", "kubernetes-admin", "system:kube-scheduler", "system:kube-proxy")
}

func TestClientCAsMustNotOverlapWithProxyCAs(t *testing.T) {
	keys, other := openKeys(t), openKeys(t)
	path := filepath.Join(t.TempDir(), "ca")
	if err := os.WriteFile(path, other.CA.Bundle(), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		client string
		names  []string
		err    string
	}{
		"the same file":                        {path, nil, "contain overlapping certificates"},
		"the same file, and proxies of a name": {path, []string{"p"}, ""},
		"no file":                              {"/nope", nil, "client-ca-file"},
		"a file without certificates":          {os.DevNull, nil, "--client-ca-file: " + os.DevNull},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config.Default()
			a := &cfg.APIServer.Authentication
			a.ClientCA, a.RequestHeader.ClientCA, a.RequestHeader.AllowedNames = tc.client, path, tc.names
			s := &Server{cfg: &cfg, keys: keys, log: slog.New(slog.DiscardHandler)}
			if _, _, err := s.proxies(); err != nil {
				t.Fatal(err)
			}
			if err := s.openClientAuthorities(t.Context()); tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("got %v, want %q", err, tc.err)
			}
		})
	}
}

func TestCertificatesOfFlagsAreServedAndReloaded(t *testing.T) {
	keys := openKeys(t)
	dir := t.TempDir()
	write := func(name string, serves string) []string {
		t.Helper()
		leaf, err := keys.Issue(pki.Spec{File: name + serves, CommonName: serves, Names: []string{serves}, ServerOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		certPEM, keyPEM, err := leaf.PEM()
		if err != nil {
			t.Fatal(err)
		}
		paths := []string{filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")}
		for i, data := range [][]byte{certPEM, keyPEM} {
			if err := os.WriteFile(paths[i], data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return paths
	}
	rest, named := write("rest", "rest.example.com"), write("named", "named.example.com")
	s, ts := secured(t, keys, func(c *config.APIServer) {
		c.TLSCert, c.TLSKey, c.TLSNamed = rest[0], rest[1], []string{strings.Join(named, ",")}
		c.TLSMinVersion = "VersionTLS13"
	})
	shown := func(name string) string {
		t.Helper()
		conn, err := tls.Dial("tcp", ts.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, ServerName: name})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	own := keys.APIServer.Certificate().Leaf.Subject.CommonName
	for name, want := range map[string]string{"named.example.com": "named.example.com", "any.example.com": "rest.example.com", "kubernetes.default.svc": own, "": own} {
		if got := shown(name); got != want {
			t.Errorf("the name %q gets %s, want %s", name, got, want)
		}
	}
	write("named", "another.example.com")
	write("rest", "last.example.com")
	s.look(t)
	for name, want := range map[string]string{"another.example.com": "another.example.com", "named.example.com": "last.example.com"} {
		if got := shown(name); got != want {
			t.Errorf("after a change, the name %q gets %s, want %s", name, got, want)
		}
	}
	if _, err := tls.Dial("tcp", ts.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}); err == nil {
		t.Error("an older version of TLS is spoken")
	}
}
