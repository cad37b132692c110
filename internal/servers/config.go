package servers

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"k8s.io/client-go/rest"
)

// Config returns a copy of config whose requests go to the servers of the pool. Only clients of
// HTTP requests can use it; exec and port-forward make their own connections.
func Config(config *rest.Config, pool *Pool) (*rest.Config, *Transport, error) {
	reach := rest.CopyConfig(config)
	if err := rest.LoadTLSFiles(reach); err != nil {
		return nil, nil, err
	}
	if reach.Insecure || reach.Transport != nil || reach.ExecProvider != nil || reach.AuthProvider != nil {
		return nil, nil, errors.New("several servers are reached with a CA, and with a certificate or a token")
	}
	roots, err := Roots(reach.CAData)
	if err != nil {
		return nil, nil, err
	}
	var certificate func() *tls.Certificate
	if len(reach.CertData) > 0 {
		pair, err := tls.X509KeyPair(reach.CertData, reach.KeyData)
		if err != nil {
			return nil, nil, fmt.Errorf("client certificate: %w", err)
		}
		certificate = func() *tls.Certificate { return &pair }
	}
	t := NewTransport(pool, func() *x509.CertPool { return roots }, certificate)
	reach.TLSClientConfig, reach.Transport = rest.TLSClientConfig{}, t
	return reach, t, nil
}

// Roots parses a cluster's CAs.
func Roots(pem []byte) (*x509.CertPool, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, errors.New("the servers' CA is missing")
	}
	return roots, nil
}
