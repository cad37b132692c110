package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync/atomic"

	"k8s.io/client-go/util/cert"

	"github.com/knarr-project/knarr/internal/reload"
)

// clientCertificate has the type of GetClientCertificate in tls.Config.
type clientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error)

// outward holds the API server's identities as a client.
type outward struct {
	kubelets *tls.Config
	roots    func() *x509.CertPool // of kubelets; nil means those of kubelets
	proxy    clientCertificate     // to extension servers
}

// outward returns the cluster's own identities, or those of the flags.
func (s *Server) outward(ctx context.Context) (o outward, err error) {
	c := &s.cfg.APIServer
	o = outward{kubelets: s.keys.ClientTLS(s.keys.KubeletClient), roots: s.keys.CA.Pool, proxy: s.keys.FrontProxyClient.GetClientCertificate}
	if file := c.Kubelets.Authority; file != "" {
		data, err := os.ReadFile(file)
		if err != nil {
			return o, fmt.Errorf("--kubelet-certificate-authority: %w", err)
		}
		authorities, err := cert.ParseCertsPEM(data)
		if err != nil {
			return o, fmt.Errorf("--kubelet-certificate-authority: %s: %w", file, err)
		}
		o.kubelets.RootCAs, o.roots = x509.NewCertPool(), nil
		for _, a := range authorities {
			o.kubelets.RootCAs.AddCert(a)
		}
	}
	if c.Kubelets.Unverified {
		o.kubelets.InsecureSkipVerify, o.kubelets.RootCAs, o.roots = true, nil, nil
	}
	if c.Kubelets.ClientCert != "" {
		if o.kubelets.GetClientCertificate, err = s.clientCertificate(ctx, "kubelet-client-certificate", c.Kubelets.ClientCert, c.Kubelets.ClientKey); err != nil {
			return o, err
		}
	}
	if c.ProxyCert != "" {
		o.proxy, err = s.clientCertificate(ctx, "proxy-client-cert-file", c.ProxyCert, c.ProxyKey)
	}
	return o, err
}

// clientCertificate reads a certificate and its key, and applies later changes.
func (s *Server) clientCertificate(ctx context.Context, flag, certFile, keyFile string) (clientCertificate, error) {
	var current atomic.Pointer[tls.Certificate]
	f, err := reload.OpenAll(ctx, flag, []string{certFile, keyFile}, s.log.With("component", "apiserver"), func(_ context.Context, contents [][]byte) error {
		pair, err := tls.X509KeyPair(contents[0], contents[1])
		if err != nil {
			return fmt.Errorf("--%s: certificate %s with key %s: %w", flag, certFile, keyFile, err)
		}
		current.Store(&pair)
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.files = append(s.files, f)
	return func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return current.Load(), nil }, nil
}
