package servers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

const (
	dialTimeout      = 30 * time.Second
	handshakeTimeout = 10 * time.Second
)

// Name is a name in the certificate of every API server. A node's certificate of the same CA may
// have it too, since a node chooses its name; it is recognized by its group.
const Name = "kubernetes.default.svc"

const nodesGroup = "system:nodes"

// link has the connections to one server that use one client certificate.
type link struct {
	address string
	http    *http.Transport
	heard   atomic.Pointer[time.Time] // when the peer sent something last

	mu      sync.Mutex
	conns   map[net.Conn]bool
	live    bool     // a connection can be used
	dialing *attempt // the request that makes the first connection; nil if there is none

	used  context.Context // its end sends requests without an answer elsewhere
	leave context.CancelCauseFunc
}

// attempt is a request that makes a link's first connection while others wait.
type attempt struct {
	done chan struct{}
	err  error // why there is no connection; set before done is closed
}

// newLink makes a link without connections. lost is called when the peer does not answer pings.
func newLink(address string, secure *tls.Config, limits timing, lost func()) *link {
	l := &link{address: address, conns: map[net.Conn]bool{}}
	l.hear()
	l.used, l.leave = context.WithCancelCause(context.Background())
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	l.http = &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, to string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, to)
			if err != nil {
				return nil, err
			}
			return l.track(c), nil
		},
		TLSHandshakeTimeout: handshakeTimeout,
		MaxIdleConnsPerHost: 25,
		IdleConnTimeout:     90 * time.Second,
		TLSClientConfig:     secure,
	}
	if os.Getenv("DISABLE_HTTP2") != "" { // as client-go
		return l
	}
	// It fails only for a transport that is configured already.
	if h2, err := http2.ConfigureTransports(l.http); err == nil {
		h2.ReadIdleTimeout, h2.PingTimeout = limits.pingAfter, limits.pingWait
		h2.CountError = func(kind string) {
			// A ping fails on a closed connection, too, which says nothing about the peer.
			silent := time.Since(*l.heard.Load()) > limits.pingAfter+limits.pingWait/2
			if kind == "conn_close_lost_ping" && silent && l.isOpen() {
				lost()
			}
		}
	}
	return l
}

// tracked is a connection of a link.
type tracked struct {
	net.Conn
	link *link
}

func (c *tracked) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.link.hear()
	}
	return n, err
}

func (c *tracked) Close() error {
	c.link.forget(c)
	return c.Conn.Close()
}

func (l *link) hear() {
	now := time.Now()
	l.heard.Store(&now)
}

func (l *link) track(c net.Conn) net.Conn {
	t := &tracked{Conn: c, link: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[t] = true
	return t
}

func (l *link) forget(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	l.live = l.live && len(l.conns) > 0
}

// close closes all connections.
func (l *link) close() {
	l.mu.Lock()
	conns := make([]net.Conn, 0, len(l.conns))
	for c := range l.conns {
		conns = append(conns, c)
	}
	l.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
	l.http.CloseIdleConnections()
}

func (l *link) isOpen() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns) > 0
}

// errLimit is the cause of an attempt that could not connect in time.
var errLimit = errors.New("no connection in time")

// enter waits while another request makes the first connection, so that the requests that move to a
// server make one connection together. It returns the attempt that this request has to finish, or
// nil if there is a connection. An error is why there is none.
func (l *link) enter(ctx context.Context) (*attempt, error) {
	for {
		l.mu.Lock()
		if l.live {
			l.mu.Unlock()
			return nil, nil
		}
		other := l.dialing
		if other == nil {
			own := &attempt{done: make(chan struct{})}
			l.dialing = own
			l.mu.Unlock()
			return own, nil
		}
		l.mu.Unlock()
		select {
		case <-other.done:
			if other.err != nil {
				return nil, other.err
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// finish ends an attempt; only the first call counts. Without an error there is a connection.
// errGaveUp means that another request must try.
func (l *link) finish(a *attempt, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a == nil || l.dialing != a {
		return
	}
	l.dialing = nil
	if err == nil {
		l.live = len(l.conns) > 0
	}
	if !errors.Is(err, errGaveUp) {
		a.err = err
	}
	close(a.done)
}

var errGaveUp = errors.New("the request was canceled")

// send sends a request. connected reports whether it had a connection, so the server may have seen
// it. limit is the time for connecting; 0 means the dialer's own limits.
func (l *link) send(request *http.Request, limit time.Duration) (response *http.Response, connected bool, err error) {
	ctx, cancel := context.WithCancelCause(request.Context())
	var timer *time.Timer
	if limit > 0 {
		timer = time.AfterFunc(limit, func() { cancel(errLimit) })
	}
	own, err := l.enter(ctx)
	if err != nil {
		cancel(nil)
		closeBody(request)
		return nil, false, err
	}
	var mu sync.Mutex // guards connected
	got := func() bool { mu.Lock(); defer mu.Unlock(); return connected }
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		mu.Lock()
		connected = true
		mu.Unlock()
		if timer == nil || timer.Stop() { // otherwise it is being canceled
			l.finish(own, nil)
		}
	}})
	stop := context.AfterFunc(l.used, func() { cancel(context.Cause(l.used)) })
	response, err = l.http.RoundTrip(request.WithContext(traced))
	stop()
	if timer != nil {
		timer.Stop()
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && request.Context().Err() == nil {
			err = cause
		}
		if request.Context().Err() != nil {
			l.finish(own, errGaveUp)
		} else {
			l.finish(own, err)
		}
		cancel(nil)
		return nil, got() && !isDial(err), err
	}
	l.finish(own, nil)
	if response.StatusCode != http.StatusSwitchingProtocols {
		response.Body = &body{ReadCloser: response.Body, end: func() { cancel(nil) }}
	}
	return response, true, nil
}

// RoundTrip implements http.RoundTripper, for probes.
func (l *link) RoundTrip(request *http.Request) (*http.Response, error) {
	response, _, err := l.send(request, 0)
	return response, err
}

// body ends the request's context when its reader closes it.
type body struct {
	io.ReadCloser
	end func()
}

func (b *body) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// isDial reports whether the error comes from making a connection.
func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// secure returns the TLS configuration for a server. The certificate has to be of the CA, to have
// the name of API servers or the server's own, and not to be a node's.
func secure(address string, roots *x509.CertPool, certificate func() *tls.Certificate) *tls.Config {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: Name,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies, since two names are valid
		VerifyConnection: func(state tls.ConnectionState) error {
			return verify(state.PeerCertificates, roots, Name, host)
		},
	}
	if certificate != nil {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate(), nil }
	}
	return c
}

func verify(chain []*x509.Certificate, roots *x509.CertPool, names ...string) error {
	if len(chain) == 0 {
		return errors.New("the server has no certificate")
	}
	options := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, c := range chain[1:] {
		options.Intermediates.AddCert(c)
	}
	if _, err := chain[0].Verify(options); err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: chain, Err: err}
	}
	if slices.Contains(chain[0].Subject.Organization, nodesGroup) {
		return fmt.Errorf("the certificate of the server is that of node %s", chain[0].Subject.CommonName)
	}
	var err error
	for _, name := range names {
		if err = chain[0].VerifyHostname(name); err == nil {
			return nil
		}
	}
	return &tls.CertificateVerificationError{UnverifiedCertificates: chain, Err: err}
}
