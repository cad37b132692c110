package run

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/process"
	"github.com/knarr-project/knarr/internal/servers"
)

// rotateClient keeps the client certificate of a lone node agent valid (KubeletConfiguration,
// rotateCertificates). The first certificate is the kubeconfig's; later ones are stored in
// DATA/pki.
func (w *worker) rotateClient(config *rest.Config) (*rest.Config, process.Component, error) {
	none := process.Component{}
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, none, err
	}
	if len(config.CertData) == 0 || len(config.CAData) == 0 {
		return nil, none, errors.New("rotateCertificates: the kubeconfig has no client certificate and CA, so there is nothing to renew")
	}
	first, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil {
		return nil, none, fmt.Errorf("rotateCertificates: %w", err)
	}
	id := &identity{dir: w.cfg.Path("pki"), name: "client", what: "client certificate of node " + w.cfg.NodeName, log: w.log, template: &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: first.Leaf.Subject.CommonName, Organization: first.Leaf.Subject.Organization},
	}}
	if err := os.MkdirAll(id.dir, 0o700); err != nil {
		return nil, none, err
	}
	// A renewed certificate may be older than the kubeconfig's, which an administrator replaces.
	if err := id.load(time.Now()); err != nil || id.current.Load().Leaf.NotAfter.Before(first.Leaf.NotAfter) {
		id.current.Store(&first)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(config.CAData)
	one := servers.NewPool(servers.Options{Given: servers.Addresses(config.Host), Log: w.log})
	reach := servers.NewTransport(one, func() *x509.CertPool { return roots }, id.current.Load)
	rotated := &rest.Config{Host: config.Host, APIPath: config.APIPath, UserAgent: config.UserAgent, Transport: reach}
	c, err := client.Remote(rotated)
	if err != nil {
		return nil, none, err
	}
	own := func() (client.Interface, error) { return c, nil }
	id.sign = signWith(own, "client", certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.UsageClientAuth)
	id.changed = reach.Rotate
	return rotated, process.Component{Name: "client certificate", Start: process.Background(func(ctx context.Context) error { id.run(ctx); return nil })}, nil
}

// bootstrapServing requests the serving certificate of a lone node agent from the cluster and
// renews it (KubeletConfiguration, serverTLSBootstrap). Until a signer has signed it, the API has
// the certificate of c.
func (w *worker) bootstrapServing(c *tls.Config) (*tls.Config, process.Component, error) {
	id := &identity{dir: w.cfg.Path("pki"), name: "serving", what: "serving certificate of node " + w.cfg.NodeName, log: w.log, template: &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: "system:node:" + w.cfg.NodeName, Organization: []string{"system:nodes"}},
		DNSNames: []string{w.cfg.NodeName}, IPAddresses: []net.IP{net.ParseIP(w.cfg.NodeAddress())},
	}}
	if err := os.MkdirAll(id.dir, 0o700); err != nil {
		return nil, process.Component{}, err
	}
	if err := id.load(time.Now()); err != nil {
		id.current.Store(nil)
	}
	own := func() (client.Interface, error) { return w.client(w.nodeUser()) }
	id.sign = signWith(own, "serving", certificatesv1.KubeletServingSignerName, certificatesv1.UsageServerAuth)
	c = c.Clone()
	fallback := c.Certificates[0]
	c.Certificates = nil
	c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cmp.Or(id.current.Load(), &fallback), nil }
	return c, process.Component{Name: "serving certificate", Start: process.Background(func(ctx context.Context) error { id.run(ctx); return nil })}, nil
}
