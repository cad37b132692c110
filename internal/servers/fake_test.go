package servers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// authority is a CA that signs the servers of a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key}
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

func (a *authority) sign(t *testing.T, template x509.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(2), a.cert.NotBefore, a.cert.NotAfter
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	der, err := x509.CreateCertificate(rand.Reader, &template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// apiServer is the certificate that API servers have; its addresses are not the ones in use.
func apiServer() x509.Certificate {
	return x509.Certificate{
		Subject:  pkix.Name{CommonName: "kube-apiserver"},
		DNSNames: []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc"}, IPAddresses: []net.IP{net.IPv4(10, 43, 0, 1)},
	}
}

// fake is an API server of a test. It answers with its address, and with events on /watch.
type fake struct {
	address string
	unready atomic.Bool // /readyz and all other requests answer 503
	stuck   atomic.Bool // requests other than /readyz get no answer, and /readyz fails
	seen    atomic.Int64
	writes  atomic.Int64
	hello   atomic.Int64 // TLS handshakes

	server   *httptest.Server
	listener *frozenListener
}

// frozenListener accepts connections that can be stopped like those of a stopped process: the
// kernel takes data, and nobody reads it.
type frozenListener struct {
	net.Listener
	mu     sync.Mutex
	frozen bool
	thaw   *sync.Cond
}

type frozenConn struct {
	net.Conn
	listener *frozenListener
	closed   atomic.Bool
}

func (l *frozenListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &frozenConn{Conn: c, listener: l}, nil
}

func (l *frozenListener) freeze(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frozen = on
	l.thaw.Broadcast()
}

func (c *frozenConn) wait() {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	for c.listener.frozen && !c.closed.Load() {
		c.listener.thaw.Wait()
	}
}

func (c *frozenConn) Read(p []byte) (int, error) {
	c.wait()
	n, err := c.Conn.Read(p)
	c.wait()
	return n, err
}

func (c *frozenConn) Write(p []byte) (int, error) {
	c.wait()
	return c.Conn.Write(p)
}

func (c *frozenConn) Close() error {
	c.closed.Store(true)
	c.listener.thaw.Broadcast()
	return c.Conn.Close()
}

// start starts a server at the address, or at a free one.
func start(t *testing.T, ca *authority, at string, certificate x509.Certificate) *fake {
	t.Helper()
	if at == "" {
		at = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{address: l.Addr().String(), listener: &frozenListener{Listener: l}}
	f.listener.thaw = sync.NewCond(&f.listener.mu)
	f.server = httptest.NewUnstartedServer(f)
	_ = f.server.Listener.Close()
	f.server.Listener, f.server.EnableHTTP2 = f.listener, true
	pair := ca.sign(t, certificate)
	f.server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		f.hello.Add(1)
		return &pair, nil
	}}
	f.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	f.server.StartTLS()
	t.Cleanup(f.kill)
	return f
}

// kill closes the listener and all connections.
func (f *fake) kill() {
	f.listener.freeze(false)
	f.server.CloseClientConnections()
	f.server.Config.Close()
	f.server.Close()
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/readyz" {
		if f.unready.Load() || f.stuck.Load() {
			http.Error(w, "[-]etcd failed", http.StatusInternalServerError)
		}
		return
	}
	f.seen.Add(1)
	if r.Method != http.MethodGet {
		f.writes.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
	}
	switch {
	case f.stuck.Load():
		<-r.Context().Done()
	case f.unready.Load():
		http.Error(w, "etcdserver: no leader", http.StatusServiceUnavailable)
	case r.URL.Path == "/fails":
		http.Error(w, "a webhook does not answer", http.StatusInternalServerError)
	case r.URL.Path == "/watch":
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	default:
		fmt.Fprint(w, f.address)
	}
}

// short is timing for tests.
var short = timing{
	pingAfter: 200 * time.Millisecond, pingWait: 300 * time.Millisecond,
	patience: 200 * time.Millisecond, probe: 500 * time.Millisecond,
	connect: 500 * time.Millisecond, longestConnect: 4 * time.Second,
	grace: 200 * time.Millisecond, look: 50 * time.Millisecond,
}

// cluster is three servers and a transport of one user.
type cluster struct {
	t       *testing.T
	ca      *authority
	servers map[string]*fake
	pool    *Pool
	user    *Transport
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, ca: newAuthority(t), servers: map[string]*fake{}}
	var addresses []string
	for range 3 {
		f := start(t, c.ca, "", apiServer())
		c.servers[f.address] = f
		addresses = append(addresses, f.address)
	}
	c.pool = NewPool(Options{User: "node", Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err := c.pool.Learn(addresses); err != nil {
		t.Fatal(err)
	}
	c.user = c.transport(c.pool)
	return c
}

func (c *cluster) transport(p *Pool) *Transport {
	t := NewTransport(p, c.ca.pool, nil)
	t.timing = short
	c.t.Cleanup(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, l := range t.links {
			l.close()
		}
	})
	return t
}

// order returns the servers in the order of the user.
func (c *cluster) order() (out []*fake) {
	for _, address := range c.pool.Order() {
		out = append(out, c.servers[address])
	}
	return out
}
