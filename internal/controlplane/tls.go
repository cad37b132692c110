package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"

	"k8s.io/client-go/util/cert"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/auth/pki"
	"github.com/knarr-project/knarr/internal/auth/serving"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/reload"
)

// ServingTLS adds the flags' certificates to base, which has a certificate of its own. The caller
// must follow the returned files.
func ServingTLS(ctx context.Context, base *tls.Config, c *config.Serving, log *slog.Logger) ([]*reload.File, error) {
	base.MinVersion, base.CipherSuites = c.TLS()
	base.CurvePreferences = c.Curves()
	named, err := c.Named()
	if err != nil {
		return nil, err
	}
	all := serving.New(base.GetCertificate)
	var files []*reload.File
	use := func(flag, certFile, keyFile string, pair *serving.Pair) error {
		f, err := reload.OpenAll(ctx, flag, []string{certFile, keyFile}, log, func(_ context.Context, contents [][]byte) error {
			if err := pair.Use(contents[0], contents[1]); err != nil {
				return fmt.Errorf("--%s: certificate %s with key %s: %w", flag, certFile, keyFile, err)
			}
			return nil
		})
		files = append(files, f)
		return err
	}
	if c.TLSCert != "" {
		if err := use("tls-cert-file", c.TLSCert, c.TLSKey, all.Rest()); err != nil {
			return nil, err
		}
	}
	for _, n := range named {
		if err := use("tls-sni-cert-key", n.Cert, n.Key, all.Named(n.Names)); err != nil {
			return nil, err
		}
	}
	if len(files) > 0 {
		base.GetCertificate = all.Get
	}
	return files, nil
}

// clientAuthorities holds the CAs of client certificates: the cluster's own, and those of a file.
// Both may change.
type clientAuthorities struct {
	own          *pki.CA
	certificates *auth.Certificates
	file         atomic.Pointer[[]byte]              // its content
	found        atomic.Pointer[[]*x509.Certificate] // in the file
	latest       atomic.Pointer[clientPool]
}

// clientPool is the pool of one state of both.
type clientPool struct {
	own   *x509.CertPool
	found *[]*x509.Certificate
	all   *x509.CertPool
}

// pool returns all CAs. A change returns another pool.
func (c *clientAuthorities) pool() *x509.CertPool {
	own, found := c.own.Pool(), c.found.Load()
	if p := c.latest.Load(); p != nil && p.own == own && p.found == found {
		return p.all
	}
	p := &clientPool{own: own, found: found, all: own}
	if len(*found) > 0 {
		p.all = own.Clone()
		for _, one := range *found {
			p.all.AddCert(one)
		}
	}
	c.latest.Store(p)
	return p.all
}

// pem returns all CAs in PEM.
func (c *clientAuthorities) pem() []byte {
	if file := *c.file.Load(); len(file) > 0 {
		return slices.Concat(c.own.Bundle(), []byte("\n"), file)
	}
	return c.own.Bundle()
}

// openClientAuthorities reads the file of --client-ca-file, if configured, and applies later
// changes.
func (s *Server) openClientAuthorities(ctx context.Context) error {
	s.clients = &clientAuthorities{own: s.keys.CA}
	s.clients.file.Store(&[]byte{})
	s.clients.found.Store(&[]*x509.Certificate{})
	s.clients.certificates = auth.FollowCertificates(s.clients.pool, s.keyClock().Now)
	path := s.cfg.APIServer.Authentication.ClientCA
	if path == "" {
		return nil
	}
	f, err := reload.OpenAll(ctx, "client-ca-file", []string{path}, s.log.With("component", "apiserver"), func(_ context.Context, contents [][]byte) error {
		found, err := cert.ParseCertsPEM(contents[0])
		if err != nil {
			return fmt.Errorf("--client-ca-file: %s holds no certificates of authorities: %w", path, err)
		}
		if err := s.disjoint(found); err != nil {
			return err
		}
		s.clients.file.Store(&contents[0])
		s.clients.found.Store(&found)
		return nil
	})
	if err != nil {
		return err
	}
	s.files = append(s.files, f)
	return nil
}

// disjoint returns an error if a CA of clients is also a CA of front proxies. Clients with such a
// certificate could impersonate any user, unless the proxies' names are restricted.
func (s *Server) disjoint(clients []*x509.Certificate) error {
	if len(s.cfg.APIServer.Authentication.RequestHeader.AllowedNames) > 0 {
		return nil
	}
	for _, c := range clients {
		if slices.ContainsFunc(s.proxyAuthorities, c.Equal) {
			return errors.New("--requestheader-client-ca-file and --client-ca-file, to which the cluster's own client CA belongs, contain overlapping certificates; --requestheader-allowed-names must be specified to ensure regular client certificates cannot set authenticating proxy headers for arbitrary users")
		}
	}
	return nil
}

// serverTLS returns the TLS configuration for HTTPS. It has the flags' certificates in addition to
// the cluster's. It accepts clients of all CAs and names the CAs in the handshake, because clients
// choose their certificates by them.
func (s *Server) serverTLS(ctx context.Context) (*tls.Config, error) {
	base := s.keys.ServerTLS()
	files, err := ServingTLS(ctx, base, &s.cfg.APIServer.Serving, s.log.With("component", "apiserver"))
	if err != nil {
		return nil, err
	}
	s.files = append(s.files, files...)
	for _, c := range s.proxyAuthorities {
		base.ClientCAs.AddCert(c)
	}
	if s.cfg.APIServer.Authentication.ClientCA == "" {
		return base, nil
	}
	own := base.ClientCAs
	var latest atomic.Pointer[handshake]
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		found := s.clients.found.Load()
		h := latest.Load()
		if h == nil || h.of != found {
			h = &handshake{of: found, config: base.Clone()}
			h.config.ClientCAs, h.config.GetConfigForClient = own.Clone(), nil
			for _, c := range *found {
				h.config.ClientCAs.AddCert(c)
			}
			latest.Store(h)
		}
		return h.config, nil
	}
	return base, nil
}

// handshake is a TLS configuration for a set of CAs.
type handshake struct {
	of     *[]*x509.Certificate
	config *tls.Config
}
