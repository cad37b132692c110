package run

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/util/connrotation"
)

// rotationGrace is how long requests may continue on connections that use an earlier certificate.
const rotationGrace = 5 * time.Second

// rotating is a transport to the API server that opens new connections when the client certificate
// has been renewed. The server knows a connection's client by the certificate of the handshake, and
// refuses requests once it has expired.
type rotating struct {
	roots       atomic.Pointer[x509.CertPool]
	certificate func() *tls.Certificate
	current     atomic.Pointer[connections]
}

// connections are the connections that use one certificate.
type connections struct {
	http.RoundTripper
	dialer *connrotation.Dialer
}

func newRotating(roots *x509.CertPool, certificate func() *tls.Certificate) *rotating {
	r := &rotating{certificate: certificate}
	r.roots.Store(roots)
	r.current.Store(r.open())
	return r
}

func (r *rotating) open() *connections {
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext)
	return &connections{dialer: dialer, RoundTripper: utilnet.SetTransportDefaults(&http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 25,
		TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, RootCAs: r.roots.Load(),
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return r.certificate(), nil },
		},
	})}
}

// trust replaces the CAs of connections that rotate opens.
func (r *rotating) trust(roots *x509.CertPool) { r.roots.Store(roots) }

// RoundTrip implements http.RoundTripper.
func (r *rotating) RoundTrip(request *http.Request) (*http.Response, error) {
	return r.current.Load().RoundTrip(request)
}

// rotate opens new connections from now on, and closes the earlier ones after rotationGrace.
// Readers of watches open them again.
func (r *rotating) rotate() {
	old := r.current.Swap(r.open())
	time.AfterFunc(rotationGrace, old.dialer.CloseAll)
}
