// Package serving chooses the certificate that a server presents: a certificate from files for the
// requested name, a default certificate from files for all other names, or the server's own.
//
// In: pairs of PEM, which may change at any time, and the client's handshake. Out: a certificate
// for tls.Config.GetCertificate. The order is kube-apiserver's (its flags --tls-cert-file and
// --tls-sni-cert-key): names given by flags before names in certificates, whole names before
// wildcards, earlier flags before later ones. A client that sends no name has requested the address
// that it connected to.
//
// One rule is knarr's own: the default certificate is not used for a name that only the server's
// own certificate has. Clients of such a name (pods and nodes, which use the cluster's names and
// addresses) trust only the cluster's CA.
package serving

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Certificates holds a server's certificates. Safe for concurrent use.
type Certificates struct {
	own func(*tls.ClientHelloInfo) (*tls.Certificate, error)

	mu      sync.Mutex // held while the table is rebuilt
	rest    *Pair      // the default certificate; may be nil
	named   []*Pair
	current atomic.Pointer[table]
}

// Pair is a place for a certificate and its key.
type Pair struct {
	all   *Certificates
	names []string
	cert  *tls.Certificate // nil until the first Use
}

// table maps names to certificates. It is never modified.
type table struct {
	rest   *tls.Certificate
	byName map[string]*tls.Certificate
}

// New returns the Certificates of a server with its own certificate.
func New(own func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *Certificates {
	c := &Certificates{own: own}
	c.current.Store(&table{})
	return c
}

// Rest adds a place for the default certificate.
func (c *Certificates) Rest() *Pair {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rest = &Pair{all: c}
	return c.rest
}

// Named adds a place for a certificate for these names; without names, for the names in the
// certificate.
func (c *Certificates) Named(names []string) *Pair {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &Pair{all: c, names: names}
	c.named = append(c.named, p)
	return p
}

// Use replaces the certificate. If it cannot be parsed, or does not match its key, nothing changes.
func (p *Pair) Use(certPEM, keyPEM []byte) error {
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return err
	}
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	p.cert = &cert
	p.all.renew()
	return nil
}

// renew rebuilds the table; mu is held.
func (c *Certificates) renew() {
	next := &table{byName: map[string]*tls.Certificate{}}
	if c.rest != nil {
		next.rest = c.rest.cert
	}
	enter := func(names []string, cert *tls.Certificate) {
		for _, name := range names {
			name = canonical(name)
			if _, before := next.byName[name]; !before {
				next.byName[name] = cert
			}
		}
	}
	for _, p := range c.named {
		if p.cert != nil {
			enter(p.names, p.cert)
		}
	}
	for _, p := range c.named {
		if p.cert != nil && len(p.names) == 0 {
			enter(ownNames(p.cert.Leaf), p.cert)
		}
	}
	c.current.Store(next)
}

// ownNames returns the names in a certificate, without addresses: a client that sends no name
// requests an address, and pods trust only the cluster's CA. A common name counts if it is a
// domain.
func ownNames(leaf *x509.Certificate) []string {
	names := slices.Clone(leaf.DNSNames)
	if cn := leaf.Subject.CommonName; len(validation.IsDNS1123Subdomain(strings.TrimPrefix(cn, "*."))) == 0 {
		names = append(names, cn)
	}
	return slices.DeleteFunc(names, func(name string) bool { return net.ParseIP(canonical(name)) != nil })
}

// Get implements tls.Config.GetCertificate.
func (c *Certificates) Get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	t, name := c.current.Load(), requestedName(hello)
	if cert := t.find(name); cert != nil {
		return cert, nil
	}
	if t.rest != nil && t.rest.Leaf.VerifyHostname(name) == nil {
		return t.rest, nil
	}
	own, err := c.own(hello)
	if t.rest != nil && (err != nil || own.Leaf.VerifyHostname(name) != nil) {
		return t.rest, nil
	}
	return own, err
}

// requestedName returns the requested name or, without one, the address that the client connected
// to.
func requestedName(hello *tls.ClientHelloInfo) string {
	if hello.ServerName != "" || hello.Conn == nil {
		return canonical(hello.ServerName)
	}
	host, _, err := net.SplitHostPort(hello.Conn.LocalAddr().String())
	if err != nil {
		return ""
	}
	return host
}

func canonical(name string) string { return strings.ToLower(strings.TrimRight(name, ".")) }

// find looks up the name, then the name with '*' as its first label.
func (t *table) find(name string) *tls.Certificate {
	if cert := t.byName[name]; cert != nil {
		return cert
	}
	_, domain, ok := strings.Cut(name, ".")
	if !ok {
		return nil
	}
	return t.byName["*."+domain]
}
