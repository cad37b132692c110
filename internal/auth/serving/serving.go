// Package serving decides which certificate a server shows: one of files that were named for the client's name of the server, the file's that is for all others,
// or the server's own.
//
// In: pairs of PEM, again when they have changed, and what a client says in its handshake. Out: a certificate for tls.Config.GetCertificate. The order is
// kube-apiserver's (its flags --tls-cert-file and --tls-sni-cert-key): names that were given come before those that certificates have, whole names before
// those with wildcards, what was given first before what comes later. A client that says no name has asked for the address that it has reached.
//
// What is ours: the certificate for all others is not shown under a name that only the server's own has. Who asks for such a name (pods and nodes, by the names and
// addresses of the cluster) believes the cluster's authority, and could not use any other.
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

// Certificates are what a server has to show. Safe for concurrent use.
type Certificates struct {
	own func(*tls.ClientHelloInfo) (*tls.Certificate, error)

	mu      sync.Mutex // held while table is made anew
	rest    *Pair      // for all names that no other is for; may be nil
	named   []*Pair
	current atomic.Pointer[table]
}

// Pair is room for a certificate and its key.
type Pair struct {
	all   *Certificates
	names []string
	cert  *tls.Certificate // nil until the first Use
}

// table is what there is at one time.
type table struct {
	rest   *tls.Certificate
	byName map[string]*tls.Certificate
}

// New makes Certificates of a server that has one of its own.
func New(own func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *Certificates {
	c := &Certificates{own: own}
	c.current.Store(&table{})
	return c
}

// Rest makes room for the certificate for all names that no other is for.
func (c *Certificates) Rest() *Pair {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rest = &Pair{all: c}
	return c.rest
}

// Named makes room for a certificate for these names, or, when there are none, for those that it has itself.
func (c *Certificates) Named(names []string) *Pair {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &Pair{all: c, names: names}
	c.named = append(c.named, p)
	return p
}

// Use shows this certificate from now on. One that can not be read, or does not fit its key, changes nothing.
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

// renew makes the table. mu is held.
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

// ownNames are those that a certificate says of itself; addresses are not among them, even where they stand as names: who says no name asks for the address that
// it has reached, and pods believe no other authority than the cluster's. A common name may be any text, and counts when it is a domain.
func ownNames(leaf *x509.Certificate) []string {
	names := slices.Clone(leaf.DNSNames)
	if cn := leaf.Subject.CommonName; len(validation.IsDNS1123Subdomain(strings.TrimPrefix(cn, "*."))) == 0 {
		names = append(names, cn)
	}
	return slices.DeleteFunc(names, func(name string) bool { return net.ParseIP(canonical(name)) != nil })
}

// Get is for tls.Config.GetCertificate.
func (c *Certificates) Get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	t, name := c.current.Load(), asked(hello)
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

// asked is what the client calls the server: its name or, when it says none, the address that it has reached.
func asked(hello *tls.ClientHelloInfo) string {
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

// find looks for the name, then for it with a '*' as its first label.
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
