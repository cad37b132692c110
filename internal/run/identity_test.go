package run

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/knarr-project/knarr/internal/auth/pki"
	"github.com/knarr-project/knarr/internal/durable"
	"github.com/knarr-project/knarr/internal/servers"
)

// issuer signs as the cluster does: backdated by five minutes, for a life that the test chooses.
type issuer struct {
	keys *pki.PKI
	life time.Duration

	mu    sync.Mutex
	count int
	fails error
}

func newIssuer(t *testing.T, life time.Duration) *issuer {
	t.Helper()
	keys, err := pki.Open(pki.Config{Dir: filepath.Join(t.TempDir(), "pki")})
	if err != nil {
		t.Fatal(err)
	}
	return &issuer{keys: keys, life: life}
}

func (i *issuer) sign(_ context.Context, der []byte) ([]byte, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.fails != nil {
		return nil, i.fails
	}
	i.count++
	request, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return i.keys.CA.Signer().Sign(&x509.Certificate{
		Subject: request.Subject, DNSNames: request.DNSNames, IPAddresses: request.IPAddresses,
		NotBefore: now.Add(-signersBackdate), NotAfter: now.Add(i.life), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, request.PublicKey)
}

func (i *issuer) fail(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.fails = err
}

func (i *issuer) issued() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.count
}

// logged keeps log output.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// take returns the log since the last call.
func (l *logged) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return l.text.String()
}

func newIdentity(t *testing.T, by *issuer, log io.Writer) *identity {
	return &identity{
		dir: t.TempDir(), name: "node", what: "client certificate of node n1", sign: by.sign, log: slog.New(slog.NewTextHandler(log, nil)),
		template: &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}}},
	}
}

// again returns the identity as a new process would read it.
func (i *identity) again() *identity {
	return &identity{dir: i.dir, name: i.name, what: i.what, template: i.template, log: i.log}
}

func TestACertificateIsRenewedInTimeManyTimes(t *testing.T) {
	for _, life := range []time.Duration{20 * time.Second, 10 * time.Minute, 24 * time.Hour} {
		t.Run(life.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				by := newIssuer(t, life)
				i := newIdentity(t, by, t.Output())
				ctx, stop := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { i.run(ctx) })
				const lives = 40
				for range lives * 10 {
					time.Sleep(life / 10)
					synctest.Wait()
					pair := i.current.Load()
					if pair == nil || time.Now().After(pair.Leaf.NotAfter) {
						t.Fatalf("no valid certificate at %s", time.Now())
					}
				}
				stop()
				running.Wait()
				if n := float64(by.issued()); n < lives/0.8 || n > lives/0.7+1 {
					t.Errorf("%v certificates in %d lives", n, lives)
				}
				next := i.again()
				if err := next.load(time.Now()); err != nil || keyHash(next.current.Load()) != keyHash(i.current.Load()) {
					t.Errorf("the disk has another certificate than the one in use: %v", err)
				}
			})
		})
	}
}

func TestAFailedRenewalIsRetriedAndLogsTheRemedy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		by := newIssuer(t, time.Hour)
		served := &logged{}
		i := newIdentity(t, by, served)
		ctx, stop := context.WithCancel(t.Context())
		by.fail(errors.New("the server is away"))
		var running sync.WaitGroup
		running.Go(func() { i.run(ctx) })
		say := func(wait time.Duration, want string) {
			t.Helper()
			time.Sleep(wait)
			synctest.Wait()
			if got := served.take(); !strings.Contains(got, want) {
				t.Errorf("the log lacks %q: %s", want, got)
			}
		}
		say(time.Minute, "this node has no client certificate of node n1 yet; trying again")
		by.fail(nil)
		say(5*time.Minute, "renewed")
		by.fail(errors.New("the server is away"))
		say(55*time.Minute, "client certificate of node n1 could not be renewed; trying again")
		say(10*time.Minute, "has expired and could not be renewed: make a new token on a server with `knarr token create`")
		by.fail(nil)
		say(6*time.Minute, "renewed")
		stop()
		running.Wait()
	})
}

func TestACertificateIsNeverSeparatedFromItsKey(t *testing.T) {
	by := newIssuer(t, time.Hour)
	i := newIdentity(t, by, t.Output())
	if err := i.renew(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	first := keyHash(i.current.Load())
	// A killed write leaves a temporary file beside the complete one.
	if err := os.WriteFile(filepath.Join(i.dir, ".node.pem-123"), []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	i.storing = func(context.Context, *tls.Certificate, *tls.Certificate) error { return errors.New("killed") }
	if err := i.renew(t.Context(), nil); err == nil {
		t.Fatal("no error")
	}
	next := i.again()
	if err := next.load(time.Now()); err != nil || keyHash(next.current.Load()) != first || keyHash(i.current.Load()) != first {
		t.Errorf("another certificate than the first is in use: %v", err)
	}
	if info, err := os.Stat(i.path()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestTheTwoFilesOfEarlierVersionsAreMigrated(t *testing.T) {
	by := newIssuer(t, time.Hour)
	i := newIdentity(t, by, t.Output())
	if err := i.renew(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	both, err := os.ReadFile(i.path())
	if err != nil {
		t.Fatal(err)
	}
	for _, extension := range []string{".crt", ".key"} {
		if err := durable.WriteFile(filepath.Join(i.dir, "node"+extension), both); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(i.path()); err != nil {
		t.Fatal(err)
	}
	next := i.again()
	if err := next.load(time.Now()); err != nil {
		t.Fatal(err)
	}
	next.sign = by.sign
	if err := next.renew(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(i.dir)
	if err != nil || len(entries) != 2 || entries[0].Name() != "node.keys" || entries[1].Name() != "node.pem" {
		t.Errorf("files %v, %v", entries, err)
	}
}

func TestAnExpiredOrForeignCertificateIsNotUsed(t *testing.T) {
	by := newIssuer(t, time.Hour)
	i := newIdentity(t, by, t.Output())
	i.template.IPAddresses, i.template.DNSNames = []net.IP{net.ParseIP("192.0.2.7")}, []string{"n1"}
	if err := i.renew(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	late := i.again()
	var expired expiredError
	if err := late.load(time.Now().Add(2 * time.Hour)); !errors.As(err, &expired) || late.key() == nil {
		t.Errorf("error %v, key %v", err, late.key())
	}
	for name, change := range map[string]func(*x509.CertificateRequest){
		"another node":    func(r *x509.CertificateRequest) { r.Subject.CommonName = "system:node:n2" },
		"another address": func(r *x509.CertificateRequest) { r.IPAddresses = []net.IP{net.ParseIP("192.0.2.8")} },
		"another name":    func(r *x509.CertificateRequest) { r.DNSNames = []string{"n2"} },
	} {
		next := i.again()
		template := *i.template
		change(&template)
		next.template = &template
		if err := next.load(time.Now()); err == nil || next.current.Load() != nil {
			t.Errorf("%s: the certificate is used, %v", name, err)
		}
	}
}

func TestRenewalBeginsAfter70To80PercentOfTheLife(t *testing.T) {
	at := func(clock string) time.Time {
		out, err := time.Parse(time.TimeOnly, clock)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, c := range []struct{ begin, end, first, last string }{
		// a life of 100 minutes, backdated by five
		{"10:00:00", "11:45:00", "11:15:00", "11:25:00"},
		{"09:55:00", "10:01:40", "10:01:10", "10:01:20"}, // a life of 100 seconds
		{"10:00:00", "10:03:20", "10:02:20", "10:02:40"}, // not backdated
	} {
		certificate := &x509.Certificate{NotBefore: at(c.begin), NotAfter: at(c.end)}
		if first, last := renewalAt(certificate, 0).Round(time.Second), renewalAt(certificate, 1).Round(time.Second); !first.Equal(at(c.first)) || !last.Equal(at(c.last)) {
			t.Errorf("%s to %s: between %s and %s, want %s and %s", c.begin, c.end, first.Format(time.TimeOnly), last.Format(time.TimeOnly), c.first, c.last)
		}
	}
}

func TestNewConnectionsUseTheRenewedCertificate(t *testing.T) {
	by := newIssuer(t, time.Hour)
	i := newIdentity(t, by, t.Output())
	if err := i.renew(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].SerialNumber.String()+"\n")
		if r.URL.Path == "/watch" {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}))
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{Certificates: []tls.Certificate{*by.keys.APIServer.Certificate()}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: by.keys.CA.Pool()}
	server.StartTLS()
	defer server.Close()
	transport := servers.NewTransport(servers.NewPool(servers.Options{Given: servers.Addresses(server.URL)}), by.keys.CA.Pool, i.current.Load)
	i.changed = transport.Rotate
	get := func(path string) (string, io.ReadCloser) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		line := make([]byte, 200)
		n, err := response.Body.Read(line)
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(line[:n])), response.Body
	}
	serial := func() string { return i.current.Load().Leaf.SerialNumber.String() }
	first := serial()
	watched, watch := get("/watch")
	defer watch.Close()
	if watched != first {
		t.Errorf("the server knows the certificate %s, want %s", watched, first)
	}
	if err := i.renew(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	seen, body := get("/")
	body.Close()
	if seen != serial() || seen == first {
		t.Errorf("after the renewal the server knows the certificate %s, want %s", seen, serial())
	}
	// The watch ends, so that its reader opens it again with the new certificate.
	if _, err := io.Copy(io.Discard, watch); err == nil {
		t.Error("the watch ended as if it were complete")
	}
	transport.CloseIdleConnections()
}
