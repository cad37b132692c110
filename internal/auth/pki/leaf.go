package pki

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/knarr-project/knarr/internal/durable"
)

// Spec describes the purpose of a Leaf.
type Spec struct {
	// File is the path below the folder without extension: "apiserver" means apiserver.crt and
	// apiserver.key.
	File string
	// CommonName is the user; Groups are the organizations of the subject.
	CommonName string
	Groups     []string
	// Names are DNS names and IP addresses. A Leaf with names may serve; every Leaf except the API
	// server's may be a client.
	Names      []string
	ServerOnly bool
}

// Leaf is a certificate with its key, renewed in place. Safe for concurrent use.
type Leaf struct {
	spec    Spec
	base    string // path without extension
	ca      *CA
	current atomic.Pointer[tls.Certificate]
}

// Certificate returns the current certificate.
func (l *Leaf) Certificate() *tls.Certificate { return l.current.Load() }

// GetCertificate implements the callback of a server's tls.Config.
func (l *Leaf) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return l.current.Load(), nil
}

// GetClientCertificate implements the callback of a client's tls.Config.
func (l *Leaf) GetClientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return l.current.Load(), nil
}

// CertFile and KeyFile return the paths of the Leaf's files.
func (l *Leaf) CertFile() string { return l.base + ".crt" }
func (l *Leaf) KeyFile() string  { return l.base + ".key" }

// PEM returns the current certificate and key.
func (l *Leaf) PEM() (certPEM, keyPEM []byte, err error) {
	cert := l.current.Load()
	for _, der := range cert.Certificate {
		certPEM = append(certPEM, encodeCert(der)...)
	}
	keyPEM, err = marshalKey(cert.PrivateKey)
	return certPEM, keyPEM, err
}

// RenewAt returns the time of the renewal, at four fifths of the Leaf's life.
func (l *Leaf) RenewAt() time.Time { return renewAt(l.current.Load().Leaf) }

func renewAt(c *x509.Certificate) time.Time {
	return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) / 5 * 4)
}

// open loads the files if they match the Spec, else it creates them.
func (l *Leaf) open(now time.Time) error {
	if cert, err := tls.LoadX509KeyPair(l.CertFile(), l.KeyFile()); err == nil && l.usable(cert.Leaf, now) {
		l.current.Store(&cert)
		return l.rechain()
	}
	return l.renew(now)
}

// rechain makes the certificates after the Leaf those of its CA: the CA's certificate by its
// predecessor during a rotation, else none.
func (l *Leaf) rechain() error {
	have, want := l.current.Load(), l.ca.Cross()
	var rest []byte
	for _, der := range have.Certificate[1:] {
		rest = append(rest, encodeCert(der)...)
	}
	if bytes.Equal(rest, want) {
		return nil
	}
	certPEM := append(encodeCert(have.Certificate[0]), want...)
	keyPEM, err := marshalKey(have.PrivateKey)
	if err != nil {
		return err
	}
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return err
	}
	if err := durable.Replace(l.CertFile(), certPEM); err != nil {
		return err
	}
	l.current.Store(&cert)
	return nil
}

// usable reports whether a certificate from disk can still be used.
func (l *Leaf) usable(c *x509.Certificate, now time.Time) bool {
	if c.CheckSignatureFrom(l.ca.Signer().Certificate) != nil || c.Subject.CommonName != l.spec.CommonName || !now.Before(renewAt(c)) {
		return false
	}
	for _, g := range l.spec.Groups {
		if !slices.Contains(c.Subject.Organization, g) {
			return false
		}
	}
	for _, name := range l.spec.Names {
		if ip := net.ParseIP(name); ip != nil {
			if !slices.ContainsFunc(c.IPAddresses, ip.Equal) {
				return false
			}
		} else if !slices.Contains(c.DNSNames, name) {
			return false
		}
	}
	return true
}

// renew creates a new key and certificate. Neither file needs to be on disk before the other: after
// a crash between the two, open notices that they do not match and creates both again.
func (l *Leaf) renew(now time.Time) error {
	key, keyPEM, err := newKey()
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: l.spec.CommonName, Organization: l.spec.Groups},
		NotBefore:   now.Add(-clockSkew),
		NotAfter:    now.Add(leafLifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: l.spec.usages(),
	}
	for _, name := range l.spec.Names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	certPEM, err := l.ca.Signer().Sign(template, key.Public())
	if err != nil {
		return err
	}
	certPEM = append(certPEM, l.ca.Cross()...)
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return fmt.Errorf("certificate %q: %w", l.spec.CommonName, err)
	}
	if err := os.MkdirAll(filepath.Dir(l.base), 0o700); err != nil {
		return err
	}
	if err := durable.Replace(l.KeyFile(), keyPEM); err != nil {
		return err
	}
	if err := durable.Replace(l.CertFile(), certPEM); err != nil {
		return err
	}
	l.current.Store(&cert)
	return nil
}

func (s Spec) usages() []x509.ExtKeyUsage {
	var usages []x509.ExtKeyUsage
	if len(s.Names) > 0 {
		usages = append(usages, x509.ExtKeyUsageServerAuth)
	}
	if !s.ServerOnly {
		usages = append(usages, x509.ExtKeyUsageClientAuth)
	}
	return usages
}
