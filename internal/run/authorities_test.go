package run

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/auth/pki"
	"github.com/knarr-project/knarr/internal/auth/rotation"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/client/clienttest"
	"github.com/knarr-project/knarr/internal/clusterinfo"
	"github.com/knarr-project/knarr/internal/servers"
)

// successor replaces the issuer's CA, up to a phase.
type successor struct {
	by        *issuer
	old, next *pki.Authority
	cross     []byte
}

func newSuccessor(t *testing.T, by *issuer) *successor {
	t.Helper()
	old := by.keys.CA.Signer()
	next, cross, err := old.Successor(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return &successor{by, old, next, cross}
}

func (s *successor) enter(t *testing.T, phase rotation.Phase) {
	t.Helper()
	var err error
	switch phase {
	case rotation.Trusting:
		err = s.by.keys.CA.Adopt(slices.Concat(s.old.CertPEM, s.next.CertPEM), s.old.KeyPEM, nil)
	case rotation.Signing:
		err = s.by.keys.CA.Adopt(slices.Concat(s.next.CertPEM, s.old.CertPEM), s.next.KeyPEM, s.cross)
	case rotation.Settled:
		err = s.by.keys.CA.Adopt(s.next.CertPEM, s.next.KeyPEM, nil)
	}
	if err == nil {
		err = s.by.keys.Renew()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestAJoinedNodeFollowsTheCA takes a node through a rotation. It stores the CAs, renews both
// certificates when another CA signs, and tells its state.
func TestAJoinedNodeFollowsTheCA(t *testing.T) {
	api, by := clienttest.NewMemory(), newIssuer(t, 365*24*time.Hour)
	if _, err := client.Create(t.Context(), api, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}); err != nil {
		t.Fatal(err)
	}
	j := joinedNode(t, t.TempDir())
	j.cfg.NodeName = "n1"
	var err error
	if j.trust, err = newAuthorities(j.dir, by.keys.CA.Bundle()); err != nil {
		t.Fatal(err)
	}
	j.tidings = make(chan struct{}, 1)
	for _, one := range []struct {
		into **identity
		name string
	}{{&j.node, "node"}, {&j.kubelet, "kubelet"}} {
		*one.into = &identity{
			dir: j.dir, name: one.name, what: one.name, log: j.log, sign: by.sign, signed: j.trust.signed, changed: j.news,
			template: &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}}},
		}
		if err := (*one.into).renew(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	j.reach = servers.NewTransport(servers.NewPool(servers.Options{Given: servers.Addresses("https://127.0.0.1:6443"), Log: j.log}), j.trust.pool, j.node.current.Load)
	j.parts = j.reach
	told := func() clusterinfo.NodeCertificates {
		t.Helper()
		n, err := client.Get[*corev1.Node](t.Context(), api, "", "n1")
		if err != nil {
			t.Fatal(err)
		}
		out, _ := clusterinfo.CertificatesOf(n)
		return out
	}
	s := newSuccessor(t, by)
	text := ""
	for generation, phase := range []rotation.Phase{rotation.Trusting, rotation.Signing, rotation.Settled} {
		s.enter(t, phase)
		ca := by.keys.CA
		if err := clusterinfo.PublishAuthorities(t.Context(), api, clusterinfo.Authorities{Bundle: string(ca.Bundle()), Generation: int64(generation + 1)}); err != nil {
			t.Fatal(err)
		}
		if err := j.learnAuthorities(t.Context(), api); err != nil {
			t.Fatal(err)
		}
		for _, i := range []*identity{j.node, j.kubelet} {
			due := !i.signed(i.current.Load().Leaf)
			if due != (phase == rotation.Signing) {
				t.Errorf("phase %q: the %s's certificate is due: %v", phase, i.name, due)
			}
			if due {
				if err := i.renew(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		if text, err = j.tell(t.Context(), api, text); err != nil {
			t.Fatal(err)
		}
		if got := told(); got.Authorities != rotation.BundleHash(ca.Bundle()) || got.Client.Issuer != ca.Hash() || got.Serving.Issuer != ca.Hash() || got.Client.Expires.IsZero() {
			t.Errorf("phase %q: the node tells %+v", phase, got)
		}
		if stored, err := os.ReadFile(filepath.Join(j.dir, "ca.crt")); err != nil || string(stored) != string(ca.Bundle()) {
			t.Errorf("phase %q: another bundle is stored: %v", phase, err)
		}
	}
	older := clusterinfo.Authorities{Bundle: string(s.old.CertPEM), Generation: 1}
	if err := clusterinfo.PublishAuthorities(t.Context(), api, older); err != nil {
		t.Fatal(err)
	}
	if got, err := clusterinfo.ReadAuthorities(t.Context(), api); err != nil || got.Generation != 3 {
		t.Errorf("a server that lags has published its CAs: %+v, %v", got, err)
	}
	for _, bad := range []string{"", "text", string(by.keys.APIServer.Certificate().Certificate[0])} {
		if changed, err := j.trust.adopt(bad); changed || (err == nil) != (bad == "") {
			t.Errorf("%.10q was adopted: %v, %v", bad, changed, err)
		}
	}
}

// TestACertificateOfAnotherCAIsRenewedSoon runs an identity while the CA changes. If the signer
// does not follow, it is asked less and less often.
func TestACertificateOfAnotherCAIsRenewedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		by := newIssuer(t, 365*24*time.Hour)
		s := newSuccessor(t, by)
		dir := t.TempDir()
		trust, err := newAuthorities(dir, s.old.CertPEM)
		if err != nil {
			t.Fatal(err)
		}
		i := newIdentity(t, by, t.Output())
		i.dir, i.signed = dir, trust.signed
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); i.run(ctx) }()
		defer func() { cancel(); <-ended }()
		count := func() int {
			synctest.Wait()
			return by.issued()
		}
		time.Sleep(time.Minute)
		if n := count(); n != 1 {
			t.Fatalf("%d certificates were signed, want 1", n)
		}
		if _, err := trust.adopt(string(s.next.CertPEM) + string(s.old.CertPEM)); err != nil {
			t.Fatal(err)
		}
		i.check()
		time.Sleep(24 * time.Hour) // the signer still has the old CA
		if n := count(); n < 2 || n > 100 {
			t.Errorf("%d certificates were signed in a day", n)
		}
		s.enter(t, rotation.Trusting)
		s.enter(t, rotation.Signing)
		time.Sleep(2 * time.Hour)
		if !trust.signed(i.current.Load().Leaf) {
			t.Error("the certificate is still of the old CA")
		}
		n := count()
		time.Sleep(24 * time.Hour)
		if count() != n {
			t.Error("a good certificate was renewed")
		}
	})
}

// TestTokensOfEitherCAJoinDuringARotation joins with the hash of the old and of the new CA.
func TestTokensOfEitherCAJoinDuringARotation(t *testing.T) {
	by := newIssuer(t, 365*24*time.Hour)
	url := serve(t, by)
	s := newSuccessor(t, by)
	for _, phase := range []rotation.Phase{rotation.Trusting, rotation.Signing, rotation.Settled} {
		s.enter(t, phase)
		for name, a := range map[string]*pki.Authority{"old": s.old, "new": s.next} {
			got, err := pinnedCA(t.Context(), url, a.Hash())
			works := phase == rotation.Signing || (name == "new") == (phase == rotation.Settled)
			if (err == nil) != works || err == nil && string(got) != string(a.CertPEM) {
				t.Errorf("phase %q: a token with the hash of the %s CA: %v", phase, name, err)
			}
			if err != nil && phase == rotation.Settled && !strings.Contains(err.Error(), "knarr token create") {
				t.Errorf("no remedy: %v", err)
			}
		}
	}
}

// TestANodeThatMissedARotationJoinsAgain starts a node that knows only the old CA.
func TestANodeThatMissedARotationJoinsAgain(t *testing.T) {
	by := newIssuer(t, 365*24*time.Hour)
	url := serve(t, by)
	s := newSuccessor(t, by)
	tokenOf := func(a *pki.Authority) string {
		return "abcdef.0123456789abcdef." + strings.TrimPrefix(a.Hash(), "sha256:")
	}
	j := joinedNode(t, t.TempDir())
	j.server, j.ca = url, s.old.CertPEM
	check := func(token string, want bool) {
		t.Helper()
		j.cfg.Token = token
		if got := j.replaced(t.Context()); got != want {
			t.Errorf("the CA counts as replaced: %v", got)
		}
	}
	check(tokenOf(s.next), false) // the server does not have it yet
	for _, phase := range []rotation.Phase{rotation.Trusting, rotation.Signing} {
		s.enter(t, phase)
		check(tokenOf(s.next), false) // the node can still reach the server
	}
	s.enter(t, rotation.Settled)
	check(tokenOf(s.next), true)
	check(tokenOf(s.old), false)
	check("", false)
	j.ca = s.next.CertPEM
	check(tokenOf(s.old), false) // a token in a unit file
}

// serve serves HTTPS as the API server does, and returns the URL.
func serve(t *testing.T, by *issuer) string {
	t.Helper()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	// StartTLS would add a certificate.
	server.Listener = tls.NewListener(server.Listener, by.keys.ServerTLS())
	server.Start()
	t.Cleanup(server.Close)
	return strings.Replace(server.URL, "http://127.0.0.1", "https://localhost", 1)
}
