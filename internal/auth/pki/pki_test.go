package pki

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	testingclock "k8s.io/utils/clock/testing"
)

func open(t *testing.T, dir string, now time.Time) *PKI {
	t.Helper()
	p, err := Open(Config{
		Dir: dir, NodeName: "n1", NodeAddresses: []string{"192.0.2.7"}, ServiceIPs: []net.IP{net.ParseIP("10.43.0.1")},
		Clock: testingclock.NewFakeClock(now),
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestOpenCreatesEverythingOnceAndReadsItAgain(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	began := time.Now()
	first := open(t, dir, now)
	t.Logf("made everything in %v", time.Since(began))
	second := open(t, dir, now)
	if first.CA.Hash() != second.CA.Hash() || !SamePublicKey(first.ServiceAccount.Keys().Signer.Public(), second.ServiceAccount.Keys().Signer.Public()) {
		t.Error("the CA or the service account key changed at the second Open")
	}
	for i, l := range first.leaves {
		if !l.Certificate().Leaf.Equal(second.leaves[i].Certificate().Leaf) {
			t.Errorf("%s changed at the second Open", l.spec.File)
		}
		for _, f := range []string{l.CertFile(), l.KeyFile()} {
			if st, err := os.Stat(f); err != nil || st.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v %v", f, st, err)
			}
		}
	}
	for _, name := range []string{"kubernetes", "kubernetes.default.svc.cluster.local", "localhost", "127.0.0.1", "::1", "10.43.0.1", "n1", "192.0.2.7"} {
		if err := first.APIServer.Certificate().Leaf.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
}

func TestADamagedLeafIsReplacedAndADamagedAuthorityIsAnError(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	first := open(t, dir, now)
	// A crash between the two files leaves a key that does not match its certificate.
	if err := os.WriteFile(first.Admin.KeyFile(), []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if second := open(t, dir, now); second.Admin.Certificate().Leaf.Equal(first.Admin.Certificate().Leaf) {
		t.Error("the damaged certificate is still in use")
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.key"), []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Dir: dir}); err == nil {
		t.Error("a damaged CA was accepted")
	}
	if err := os.Remove(filepath.Join(dir, "ca.key")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Dir: dir}); err == nil {
		t.Error("a CA without its key was accepted")
	}
}

func TestALeafIsReplacedWhenANameIsMissing(t *testing.T) {
	dir := t.TempDir()
	open(t, dir, time.Now())
	p, err := Open(Config{Dir: dir, NodeName: "n1", Names: []string{"cluster.example"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.APIServer.Certificate().Leaf.VerifyHostname("cluster.example"); err != nil {
		t.Error(err)
	}
}

func TestARenewalReachesTheServerAndTheKubeconfig(t *testing.T) {
	now := time.Now()
	p := open(t, t.TempDir(), now)
	at := testingclock.NewFakeClock(now)
	p.config.Clock = at
	listener, err := tls.Listen("tcp", "127.0.0.1:0", p.ServerTLS())
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {})}
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()
	defer func() { server.Close(); <-served }()
	url := "https://" + listener.Addr().String()
	path := filepath.Join(t.TempDir(), "a", "kubeconfig")
	if err := p.WriteKubeconfig(path, url, p.Admin); err != nil {
		t.Fatal(err)
	}
	before := serials(t, url, path, now)

	if due := p.RenewAt(); due.Sub(now) < 290*24*time.Hour || due.Sub(now) > 293*24*time.Hour {
		t.Errorf("renewal is due in %v", due.Sub(now))
	}
	now = p.RenewAt().Add(time.Second)
	at.SetTime(now)
	if err := p.Renew(); err != nil {
		t.Fatal(err)
	}
	after := serials(t, url, path, now)
	if before[0] == after[0] || before[1] == after[1] {
		t.Errorf("certificates were not renewed: %v, %v", before, after)
	}
}

func TestAFailedRenewalDoesNotStopOtherRenewals(t *testing.T) {
	now := time.Now()
	p := open(t, t.TempDir(), now)
	at := testingclock.NewFakeClock(now)
	p.config.Clock = at
	admin := p.Admin.Certificate().Leaf
	if err := os.RemoveAll(filepath.Dir(p.APIServer.CertFile()) + "/nodes"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.path("nodes"), nil, 0o600); err != nil { // a file in place of a folder
		t.Fatal(err)
	}
	p.leaves = append([]*Leaf{p.Node}, p.leaves...)
	now = p.RenewAt().Add(time.Second)
	at.SetTime(now)
	if err := p.Renew(); err == nil {
		t.Error("no error")
	}
	if p.Admin.Certificate().Leaf.Equal(admin) {
		t.Error("the admin's certificate was not renewed")
	}
}

// serials connects with the kubeconfig's certificate and returns the serial numbers of the server's
// and the client's.
func serials(t *testing.T, url, kubeconfig string, now time.Time) [2]string {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(config.CAData)
	pair, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, Time: func() time.Time { return now }}, DisableKeepAlives: true}}
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return [2]string{response.TLS.PeerCertificates[0].SerialNumber.String(), pair.Leaf.SerialNumber.String()}
}

func TestKeysOfFlagsReplaceTheFoldersKeys(t *testing.T) {
	now := time.Now()
	own, other, third := open(t, t.TempDir(), now), open(t, t.TempDir(), now), open(t, t.TempDir(), now)
	key := func(p *PKI, file string) string { return filepath.Join(p.config.Dir, file) }
	public := func(p *PKI) crypto.PublicKey { return p.ServiceAccount.Keys().Signer.Public() }
	for name, tc := range map[string]struct {
		signer    string
		verifiers []string
		signs     *PKI
		accepted  []*PKI
	}{
		"no flags":                           {"", nil, own, []*PKI{own}},
		"another signer":                     {key(other, "sa.key"), nil, other, []*PKI{other}},
		"a signer that is named twice":       {key(other, "sa.key"), []string{key(other, "sa.pub")}, other, []*PKI{other}},
		"a signer, and one that was before":  {key(other, "sa.key"), []string{key(third, "sa.pub"), key(own, "sa.key")}, other, []*PKI{third, own, other}},
		"another server's keys are accepted": {"", []string{key(third, "sa.pub")}, own, []*PKI{own, third}},
	} {
		t.Run(name, func(t *testing.T) {
			keys, err := own.ServiceAccount.Keys().With(tc.signer, tc.verifiers)
			if err != nil {
				t.Fatal(err)
			}
			if !SamePublicKey(keys.Signer.Public(), public(tc.signs)) || len(keys.Verifiers) != len(tc.accepted) {
				t.Fatalf("%d keys are accepted", len(keys.Verifiers))
			}
			for i, p := range tc.accepted {
				if !SamePublicKey(keys.Verifiers[i], public(p)) {
					t.Errorf("key %d is another one", i)
				}
			}
		})
	}
	for name, files := range map[string][2]string{"no signer": {"/nope", ""}, "no key": {"", "/nope"}, "a public key does not sign": {key(own, "sa.pub"), ""}} {
		var verifiers []string
		if files[1] != "" {
			verifiers = files[1:]
		}
		if _, err := own.ServiceAccount.Keys().With(files[0], verifiers); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestMembersOfTheStoreHaveACAOfTheirOwn(t *testing.T) {
	dir := t.TempDir()
	if p := open(t, dir, time.Now()); p.Peer != nil || p.PeerCA != nil {
		t.Error("a server without an embedded store has keys of members")
	}
	config := Config{Dir: dir, PeerNames: []string{"one", "192.0.2.1", "localhost", "one"}}
	p, err := Open(config)
	if err != nil {
		t.Fatal(err)
	}
	own := p.Peer.Certificate().Leaf
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if _, err := own.Verify(x509.VerifyOptions{Roots: p.PeerCA.Pool(), DNSName: "192.0.2.1", KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
			t.Errorf("usage %d: %v", usage, err)
		}
	}
	if _, err := own.Verify(x509.VerifyOptions{Roots: p.CA.Pool()}); err == nil {
		t.Error("the CA of clients has signed a member's certificate")
	}
	again, err := Open(config)
	if err != nil || !again.Peer.Certificate().Leaf.Equal(own) {
		t.Errorf("the certificate was made anew: %v", err)
	}
	if want := filepath.Join(dir, "etcd", "peer.crt"); p.Peer.CertFile() != want {
		t.Errorf("it is in %s, not in %s", p.Peer.CertFile(), want)
	}
}
