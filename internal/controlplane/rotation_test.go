package controlplane

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/auth/pki"
	"github.com/knarr-project/knarr/internal/auth/rotation"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/clusterinfo"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/movedclock"
	"github.com/knarr-project/knarr/internal/process"
)

// startServer runs a whole control plane on a data folder. stop ends it.
func startServer(t *testing.T, dir string, keyClock clock.WithTicker) (s *Server, stop func()) {
	t.Helper()
	cfg := config.Default()
	cfg.DataDir, cfg.Listen, cfg.AdvertiseAddress, cfg.NodeName = dir, "127.0.0.1:0", "127.0.0.1", "sea"
	cfg.APIServer.ShutdownIdle.Duration = 1
	if err := cfg.Complete(); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	s = New(Options{Config: &cfg, Log: log, Unsynced: true, ShutdownTimeout: 50 * time.Millisecond, KeyClock: keyClock})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- process.Run(ctx, []process.Phase{
			{{Name: "keys", Start: s.StartKeys}, {Name: "store", Start: s.StartStore}},
			{{Name: "API server", Start: s.StartAPI}},
			{{Name: "controllers", Start: s.StartControllers}, {Name: "first objects", Start: s.AwaitFirstObjects}},
			{{Name: "leadership", Start: s.StartLeadership}},
		}, nil, func() { close(ready) }, log)
	}()
	select {
	case <-ready:
	case err := <-ended:
		cancel()
		t.Fatalf("the server ended: %v", err)
	}
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(stop)
	return s, stop
}

// kept is a client that read its kubeconfig once.
type kept struct {
	roots *x509.CertPool
	pair  tls.Certificate
	now   func() time.Time
}

func readKubeconfig(t *testing.T, s *Server) *kept {
	t.Helper()
	access, err := clientcmd.BuildConfigFromFlags("", s.cfg.AdminKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	k := &kept{roots: x509.NewCertPool(), now: s.keyClock().Now}
	k.roots.AppendCertsFromPEM(access.CAData)
	if k.pair, err = tls.X509KeyPair(access.CertData, access.KeyData); err != nil {
		t.Fatal(err)
	}
	return k
}

func (k *kept) client() *http.Client {
	return &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: k.roots, Certificates: []tls.Certificate{k.pair}, Time: k.now}}}
}

// ask reads a namespace over a connection of its own.
func (k *kept) ask(s *Server) error {
	c := k.client()
	defer c.CloseIdleConnections()
	return readWith(c, s)
}

func readWith(c *http.Client, s *Server) error {
	response, err := c.Get(s.URL() + "/api/v1/namespaces/default")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// take takes a step as the command does.
func take(t *testing.T, s *Server, in rotation.StepRequest) error {
	t.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	c := readKubeconfig(t, s).client()
	defer c.CloseIdleConnections()
	response, err := c.Post(s.URL()+rotation.StepPath, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, text)
	}
	return err
}

// eventually waits until check succeeds.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

// dataOf returns a value of a ConfigMap.
func dataOf(t *testing.T, s *Server, namespace, name, key string) string {
	t.Helper()
	m, err := client.Get[*corev1.ConfigMap](t.Context(), s.own(), namespace, name)
	if err != nil {
		return ""
	}
	return m.Data[key]
}

// published waits until a ConfigMap has these CAs.
func published(t *testing.T, s *Server, namespace, name, key string, ca *pki.CA) {
	t.Helper()
	eventually(t, "ConfigMap "+namespace+"/"+name+" has the CAs", func() error {
		got, want := strings.TrimSpace(dataOf(t, s, namespace, name, key)), strings.TrimSpace(string(ca.Bundle()))
		if strings.Count(got, "BEGIN") != strings.Count(want, "BEGIN") {
			return fmt.Errorf("it has %d", strings.Count(got, "BEGIN"))
		}
		for _, c := range ca.Certificates() {
			if !strings.Contains(got, strings.TrimSpace(string(pemOf(c)))) {
				return errors.New("a certificate is missing")
			}
		}
		return nil
	})
}

func pemOf(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// TestTheCAIsReplacedUnderClients takes all steps of a rotation. Clients from before it work until
// the last step; a client that read its kubeconfig after a step works after it and after the next
// one. The server is restarted after each step too.
func TestTheCAIsReplacedUnderClients(t *testing.T) {
	dir := t.TempDir()
	s, stop := startServer(t, dir, nil)
	old := readKubeconfig(t, s)
	connected := old.client() // keeps its connection
	if err := readWith(connected, s); err != nil {
		t.Fatal(err)
	}
	before := s.Keys().CA.Signer()
	if err := take(t, s, rotation.StepRequest{Name: rotation.Kubernetes, Step: rotation.Switch}); err == nil {
		t.Error("a step that no rotation has was taken")
	}
	clients := []*kept{old}
	for _, step := range []rotation.Step{rotation.Start, rotation.Switch, rotation.Finish} {
		eventually(t, "step "+string(step), func() error { return take(t, s, rotation.StepRequest{Name: rotation.Kubernetes, Step: step}) })
		last := step == rotation.Finish
		for i, c := range append(clients, readKubeconfig(t, s)) {
			// The client of the first step trusts both, but its certificate is the old CA's.
			works := !last || i > 1
			if err := c.ask(s); (err == nil) != works {
				t.Errorf("%s: client %d of %d: %v", step, i, len(clients), err)
			}
		}
		if err := readWith(connected, s); (err == nil) == last {
			t.Errorf("%s: a connection from before the rotation: %v", step, err)
		}
		clients = append(clients, readKubeconfig(t, s))
		ca := s.Keys().CA
		published(t, s, "default", "kube-root-ca.crt", "ca.crt", ca)
		published(t, s, "kube-system", "extension-apiserver-authentication", "client-ca-file", ca)
		published(t, s, "kube-system", clusterinfo.Name, "authorities", ca)
		eventually(t, "the cluster's identity has the CAs", func() error {
			record, _, err := readIdentity(t.Context(), s.raw, identityKey(s.cfg))
			if err == nil && (len(record.CAs) != len(ca.Certificates()) || !slices.Contains(record.CAs, ca.Hash())) {
				err = fmt.Errorf("it has %v", record.CAs)
			}
			return err
		})
		onlyNew := &kept{roots: x509.NewCertPool(), pair: *s.Keys().Admin.Certificate(), now: time.Now}
		all := ca.Certificates()
		for _, c := range all {
			if !c.Equal(before.Certificate) {
				onlyNew.roots.AddCert(c)
			}
		}
		if err := onlyNew.ask(s); (err == nil) != (step != rotation.Start) {
			t.Errorf("%s: a client that trusts only the new CA: %v", step, err)
		}
		stop()
		s, stop = startServer(t, dir, nil)
		if err := clients[len(clients)-1].ask(s); err != nil {
			t.Errorf("%s: after a restart: %v", step, err)
		}
		connected = clients[len(clients)-1].client()
		if err := readWith(connected, s); err != nil {
			t.Error(err)
		}
		if step == rotation.Switch { // keep the connection of a client of the old CA
			connected = old.client()
			if err := readWith(connected, s); err != nil {
				t.Error(err)
			}
		}
	}
	if s.Keys().CA.Hash() == before.Hash() {
		t.Error("the old CA signs")
	}
}

// TestTokensOfTheOldKeyAreAcceptedUntilTheLastStep replaces the key of service account tokens.
func TestTokensOfTheOldKeyAreAcceptedUntilTheLastStep(t *testing.T) {
	s, _ := startServer(t, t.TempDir(), nil)
	account, err := client.Create(t.Context(), s.own(), &corev1.ServiceAccount{ObjectMeta: meta("default", "a")})
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: meta("default", "a-token"), Type: corev1.SecretTypeServiceAccountToken}
	secret.Annotations = map[string]string{corev1.ServiceAccountNameKey: account.Name}
	if _, err := client.Create(t.Context(), s.own(), secret); err != nil {
		t.Fatal(err)
	}
	token := func() (text string) {
		t.Helper()
		eventually(t, "the Secret has a token", func() error {
			have, err := client.Get[*corev1.Secret](t.Context(), s.own(), "default", "a-token")
			if err == nil && len(have.Data[corev1.ServiceAccountTokenKey]) == 0 {
				err = errors.New("none yet")
			}
			if err == nil {
				text = string(have.Data[corev1.ServiceAccountTokenKey])
			}
			return err
		})
		return text
	}
	known := func(text string) bool {
		_, ok, err := auth.Bearer{Tokens: auth.TokenAuthenticators{s.tokens}, Audiences: s.tokens.Audiences}.Authenticate(&http.Request{Header: http.Header{"Authorization": {"Bearer " + text}}})
		return ok && err == nil
	}
	old := token()
	for _, step := range []rotation.Step{rotation.Start, rotation.Switch} {
		eventually(t, string(step), func() error { return take(t, s, rotation.StepRequest{Name: rotation.ServiceAccounts, Step: step}) })
		if !known(old) {
			t.Fatalf("%s: the old token is refused", step)
		}
	}
	eventually(t, "the Secret's token is signed again", func() error {
		if token() == old {
			return errors.New("it is the old one")
		}
		return nil
	})
	if !known(old) {
		t.Error("the replaced token is refused before the last step")
	}
	if fresh := token(); !known(fresh) || s.tokens.Stale(fresh) || !s.tokens.Stale(old) {
		t.Error("the new token is refused, or of the old key")
	}
	if err := take(t, s, rotation.StepRequest{Name: rotation.ServiceAccounts, Step: rotation.Finish}); err == nil || !strings.Contains(err.Error(), "tokens of the old key") {
		t.Errorf("the old key was dropped while its tokens may be valid: %v", err)
	}
	eventually(t, "the last step", func() error {
		return take(t, s, rotation.StepRequest{Name: rotation.ServiceAccounts, Step: rotation.Finish, Force: true})
	})
	eventually(t, "the old token is refused", func() error {
		if known(old) || !known(token()) {
			return errors.New("not yet")
		}
		return nil
	})
}

// TestNothingIsCutOffOverTwoYears moves the clock of certificates by two years, in steps of a
// month. A client that reads its kubeconfig once a month is never refused, and a connection that is
// a month old works. Then the server is stopped for two years: it starts with expired certificates,
// and renews them.
func TestNothingIsCutOffOverTwoYears(t *testing.T) {
	dir := t.TempDir()
	moved := &movedclock.Clock{}
	s, stop := startServer(t, dir, moved)
	first := s.Keys().APIServer.Certificate().Leaf
	lately, connected := readKubeconfig(t, s), readKubeconfig(t, s).client()
	if err := readWith(connected, s); err != nil {
		t.Fatal(err)
	}
	for month := range 24 {
		moved.Advance(30 * 24 * time.Hour)
		eventually(t, "due certificates are renewed", func() error {
			if at := s.Keys().RenewAt(); !at.After(moved.Now()) {
				// A timer that was set during the jump ends a day later at most.
				moved.Advance(time.Hour)
				return fmt.Errorf("renewal is due since %s", at)
			}
			return nil
		})
		if err := lately.ask(s); err != nil {
			t.Errorf("month %d: a client of the month before: %v", month, err)
		}
		if err := readWith(connected, s); err != nil {
			t.Errorf("month %d: a connection of the month before: %v", month, err)
		}
		lately, connected = readKubeconfig(t, s), readKubeconfig(t, s).client()
		if err := readWith(connected, s); err != nil {
			t.Errorf("month %d: %v", month, err)
		}
	}
	if s.Keys().APIServer.Certificate().Leaf.Equal(first) || moved.Now().Before(first.NotAfter) {
		t.Error("the first certificate is still in use")
	}
	stop()
	moved.Advance(2 * 365 * 24 * time.Hour)
	s, _ = startServer(t, dir, moved)
	if err := readKubeconfig(t, s).ask(s); err != nil {
		t.Errorf("after two years without a server: %v", err)
	}
	entries, err := pki.Inventory(filepath.Join(dir, "pki"), s.cfg.AdminKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Error != "" || !e.Expires.IsZero() && e.Expires.Before(moved.Now().Add(300*24*time.Hour)) {
			t.Errorf("%s %s ends at %s %s", e.Kind, e.Name, e.Expires, e.Error)
		}
	}
}

func TestCertificatesAreRenewedOnRequest(t *testing.T) {
	s, _ := startServer(t, t.TempDir(), nil)
	before := s.Keys().APIServer.Certificate().Leaf
	admin := s.Keys().Admin.Certificate().Leaf
	post := func(body string) int {
		t.Helper()
		c := readKubeconfig(t, s).client()
		defer c.CloseIdleConnections()
		response, err := c.Post(s.URL()+rotation.RotatePath, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode
	}
	if code := post(`{"names":["apiserver"]}`); code != http.StatusOK {
		t.Errorf("status %d", code)
	}
	if s.Keys().APIServer.Certificate().Leaf.Equal(before) || !s.Keys().Admin.Certificate().Leaf.Equal(admin) {
		t.Error("the named certificate was not renewed, or others were")
	}
	if code := post(`{"names":["none"]}`); code != http.StatusConflict {
		t.Errorf("an unknown name: status %d", code)
	}
	if code := post(`{}`); code != http.StatusOK || s.Keys().Admin.Certificate().Leaf.Equal(admin) {
		t.Errorf("without names, not all were renewed: status %d", code)
	}
	if err := readKubeconfig(t, s).ask(s); err != nil {
		t.Error(err)
	}
	if bad := post(`x`); bad != http.StatusBadRequest {
		t.Errorf("a body that is no JSON: status %d", bad)
	}
}

func TestKeysOfEncryptionAreListedWithoutTheirSecrets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "encryption.yaml")
	const secret = "c2VjcmV0IGlzIHNlY3VyZQ=="
	content := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n" +
		"  - aesgcm: {keys: [{name: k2, secret: " + secret + "}, {name: k1, secret: " + secret + "}]}\n  - identity: {}\n"
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := encryptionKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(keys)
	if err != nil {
		t.Fatal(err)
	}
	if len(keys) != 3 || !keys[0].Writes || keys[0].Name != "k2" || keys[1].Writes || keys[2].Provider != "identity" || strings.Contains(string(text), secret) {
		t.Errorf("got %s", text)
	}
}
