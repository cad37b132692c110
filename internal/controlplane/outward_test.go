package controlplane

import (
	"crypto/tls"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/knarr-project/knarr/internal/auth/pki"
	"github.com/knarr-project/knarr/internal/config"
)

// clientPair writes a certificate of the CA and its key.
func clientPair(t *testing.T, keys *pki.PKI, user string, paths [2]string) {
	t.Helper()
	leaf, err := keys.Issue(pki.Spec{File: user, CommonName: user})
	if err != nil {
		t.Fatal(err)
	}
	certPEM, keyPEM, err := leaf.PEM()
	if err != nil {
		t.Fatal(err)
	}
	for i, data := range [][]byte{certPEM, keyPEM} {
		if err := os.WriteFile(paths[i], data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNodesAndExtensionServersGetTheCertificatesOfFlags(t *testing.T) {
	keys, theirs := openKeys(t), openKeys(t)
	dir := t.TempDir()
	kubelet, proxy := [2]string{filepath.Join(dir, "kubelet.crt"), filepath.Join(dir, "kubelet.key")}, [2]string{filepath.Join(dir, "proxy.crt"), filepath.Join(dir, "proxy.key")}
	clientPair(t, theirs, "to-kubelets", kubelet)
	clientPair(t, theirs, "to-extensions", proxy)
	authority := filepath.Join(dir, "ca.crt")
	if err := os.WriteFile(authority, theirs.CA.Bundle(), 0o600); err != nil {
		t.Fatal(err)
	}
	node := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("User", r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	node.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, Certificates: []tls.Certificate{*theirs.APIServer.Certificate()}}
	// A client that does not trust the server causes log output.
	node.Config.ErrorLog = log.New(io.Discard, "", 0)
	node.StartTLS()
	t.Cleanup(node.Close)
	asked := func(o outward) (user string, err error) {
		transport := &http.Transport{TLSClientConfig: o.kubelets.Clone()}
		defer transport.CloseIdleConnections()
		answer, err := (&http.Client{Transport: transport}).Get(node.URL)
		if err != nil {
			return "", err
		}
		defer answer.Body.Close()
		return answer.Header.Get("User"), nil
	}
	shown := func(o outward) string {
		t.Helper()
		pair, err := o.proxy(&tls.CertificateRequestInfo{})
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf.Subject.CommonName
	}

	cfg := config.Default()
	s := &Server{cfg: &cfg, keys: keys, log: slog.New(slog.DiscardHandler)}
	own, err := s.outward(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := asked(own); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("a kubelet of another authority is trusted: %v", err)
	}
	if got := shown(own); got != ownProxy {
		t.Errorf("extension servers are shown %s", got)
	}

	c := &cfg.APIServer
	c.Kubelets = config.Kubelets{ClientCert: kubelet[0], ClientKey: kubelet[1], Authority: authority}
	c.ProxyCert, c.ProxyKey = proxy[0], proxy[1]
	given, err := s.outward(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if user, err := asked(given); err != nil || user != "to-kubelets" {
		t.Errorf("kubelets see %q, %v", user, err)
	}
	if got := shown(given); got != "to-extensions" {
		t.Errorf("extension servers are shown %s", got)
	}
	clientPair(t, theirs, "to-kubelets-later", kubelet)
	s.look(t)
	if user, err := asked(given); err != nil || user != "to-kubelets-later" {
		t.Errorf("after a change, kubelets see %q, %v", user, err)
	}
}

func TestInvalidKubeletFilesAreErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		flags config.Kubelets
		want  string
	}{
		"no file of authorities": {config.Kubelets{Authority: "/nope"}, "--kubelet-certificate-authority: open /nope"},
		"no authorities":         {config.Kubelets{Authority: os.DevNull}, "--kubelet-certificate-authority: " + os.DevNull},
		"no certificate":         {config.Kubelets{ClientCert: os.DevNull, ClientKey: os.DevNull}, "--kubelet-client-certificate: certificate " + os.DevNull},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config.Default()
			cfg.APIServer.Kubelets = tc.flags
			s := &Server{cfg: &cfg, keys: openKeys(t), log: slog.New(slog.DiscardHandler)}
			if _, err := s.outward(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
