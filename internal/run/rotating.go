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

// rotationGrace is how long requests may go on over connections that were made with an earlier
// certificate.
const rotationGrace = 5 * time.Second

// rotating is a transport to the API server whose connections are made anew when the client
// certificate has been renewed: the server knows a connection's client by the certificate of its
// handshake, and refuses requests once that has expired.
type rotating struct {
	roots       *x509.CertPool
	certificate func() *tls.Certificate
	current     atomic.Pointer[connections]
}

// connections are those made with one certificate.
type connections struct {
	http.RoundTripper
	dialer *connrotation.Dialer
}

func newRotating(roots *x509.CertPool, certificate func() *tls.Certificate) *rotating {
	r := &rotating{roots: roots, certificate: certificate}
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
			MinVersion: tls.VersionTLS12, RootCAs: r.roots,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return r.certificate(), nil },
		},
	})}
}

// RoundTrip implements http.RoundTripper.
func (r *rotating) RoundTrip(request *http.Request) (*http.Response, error) {
	return r.current.Load().RoundTrip(request)
}

// rotate makes connections anew from now on, and ends the earlier ones once their requests had time
// to end. Watches are opened again by their readers.
func (r *rotating) rotate() {
	old := r.current.Swap(r.open())
	time.AfterFunc(rotationGrace, old.dialer.CloseAll)
}
