package pki

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/cert"

	"github.com/knarr-project/knarr/internal/durable"
)

// CA is one of the cluster's authorities as it is now: the Authority that signs, and the
// certificates of other Authorities that are trusted too while one replaces the other. Safe for
// concurrent use.
//
// On disk, NAME.crt holds all trusted certificates and NAME.key the key. The certificate of that
// key is the one that signs. So replacing the key file switches from one Authority to another in
// one step, and every state between two writes of Adopt can be opened.
type CA struct {
	name    string // such as "front-proxy-ca"
	base    string // path without extension
	current atomic.Pointer[caState]

	mu      sync.Mutex // held by Adopt
	changed atomic.Pointer[chan struct{}]
}

// caState is never modified.
type caState struct {
	signer *Authority
	all    []*x509.Certificate // the signer's first
	pool   *x509.CertPool
	bundle []byte
	cross  []byte // DER of the signer's certificate by its predecessor; nil if there is none
}

// Signer returns the Authority that signs.
func (c *CA) Signer() *Authority { return c.current.Load().signer }

// Pool returns all trusted certificates. It is another pool after each change.
func (c *CA) Pool() *x509.CertPool { return c.current.Load().pool }

// Bundle returns all trusted certificates in PEM, the signer's first.
func (c *CA) Bundle() []byte { return c.current.Load().bundle }

// Certificates returns all trusted certificates, the signer's first.
func (c *CA) Certificates() []*x509.Certificate { return c.current.Load().all }

// Cross returns the signer's certificate by its predecessor in PEM, or nil.
func (c *CA) Cross() []byte {
	if der := c.current.Load().cross; der != nil {
		return encodeCert(der)
	}
	return nil
}

// Hash returns the hash of the signer's public key; see Authority.Hash.
func (c *CA) Hash() string { return c.Signer().Hash() }

// Changed returns a channel that is closed at the next change.
func (c *CA) Changed() <-chan struct{} { return *c.changed.Load() }

// openCA reads the files NAME.crt and NAME.key, or creates them if neither exists.
func openCA(dir, name, commonName string, now time.Time) (*CA, error) {
	c := &CA{name: name, base: filepath.Join(dir, name)}
	changed := make(chan struct{})
	c.changed.Store(&changed)
	certPEM, certErr := os.ReadFile(c.CertFile())
	keyPEM, keyErr := os.ReadFile(c.KeyFile())
	if errors.Is(certErr, fs.ErrNotExist) && errors.Is(keyErr, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(c.base), 0o700); err != nil {
			return nil, err
		}
		a, err := newAuthority(commonName, nil, now)
		if err != nil {
			return nil, err
		}
		// Write the key first: a key without a certificate is reported as an error, but a
		// certificate without a key looks usable.
		if err := durable.WriteFile(c.KeyFile(), a.KeyPEM); err != nil {
			return nil, err
		}
		if err := durable.WriteFile(c.CertFile(), a.CertPEM); err != nil {
			return nil, err
		}
		certPEM, keyPEM = a.CertPEM, a.KeyPEM
	} else if err := errors.Join(certErr, keyErr); err != nil {
		return nil, fmt.Errorf("read CA %s: %w", commonName, err)
	}
	crossPEM, err := os.ReadFile(c.crossFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read CA %s: %w", commonName, err)
	}
	state, err := parseCA(certPEM, keyPEM, crossPEM)
	if err != nil {
		return nil, fmt.Errorf("CA in %s: %w", c.CertFile(), err)
	}
	if end := state.signer.Certificate.NotAfter; now.After(end) {
		return nil, fmt.Errorf("CA in %s expired on %s: restore DIR/pki from a copy with a newer CA; "+
			"`knarr certificates rotate-ca` replaces a CA before it expires", c.CertFile(), end.Format(time.RFC3339))
	}
	c.current.Store(state)
	return c, nil
}

// parseCA returns the state in the files' contents.
func parseCA(certPEM, keyPEM, crossPEM []byte) (*caState, error) {
	all, err := cert.ParseCertsPEM(certPEM)
	if err != nil {
		return nil, err
	}
	key, err := ParseSigner(keyPEM)
	if err != nil {
		return nil, err
	}
	first := slices.IndexFunc(all, func(c *x509.Certificate) bool { return SamePublicKey(c.PublicKey, key.Public()) })
	if first < 0 {
		return nil, fmt.Errorf("the key does not belong to certificate %q", all[0].Subject.CommonName)
	}
	signer := all[first]
	all = slices.Concat([]*x509.Certificate{signer}, all[:first], all[first+1:])
	s := &caState{all: all, pool: x509.NewCertPool()}
	if s.signer, err = ParseAuthority(encodeCert(signer.Raw), keyPEM); err != nil {
		return nil, err
	}
	for _, c := range all {
		s.pool.AddCert(c)
		s.bundle = append(s.bundle, encodeCert(c.Raw)...)
	}
	// A crash during Adopt can leave the file of another signer.
	if cross, err := parseCert(crossPEM); err == nil && SamePublicKey(cross.PublicKey, key.Public()) {
		s.cross = cross.Raw
	}
	return s, nil
}

// CertFile and KeyFile return the paths of the CA's files.
func (c *CA) CertFile() string { return c.base + ".crt" }
func (c *CA) KeyFile() string  { return c.base + ".key" }

func (c *CA) crossFile() string { return c.base + "-cross.crt" }

// Adopt replaces the CA. bundle holds the trusted certificates; keyPEM is the key of one of them,
// the signer. cross is the signer's certificate by its predecessor, or nil. After a crash at any
// point, Open finds the earlier or the new signer, and Adopt can be repeated.
func (c *CA) Adopt(bundle, keyPEM, cross []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	next, err := parseCA(bundle, keyPEM, cross)
	if err != nil {
		return fmt.Errorf("adopt CA %s: %w", c.name, err)
	}
	have := c.current.Load()
	if bytes.Equal(have.bundle, next.bundle) && bytes.Equal(have.cross, next.cross) {
		return c.store(next, next.bundle) // the files may be behind
	}
	both := next.bundle
	if !slices.ContainsFunc(next.all, have.signer.Certificate.Equal) {
		both = slices.Concat(next.bundle, have.signer.CertPEM)
	}
	if err := c.store(next, both); err != nil {
		return err
	}
	c.current.Store(next)
	changed := make(chan struct{})
	close(*c.changed.Swap(&changed))
	return nil
}

// store writes the files in an order in which each step leaves a usable CA. While the key file is
// of another signer, the certificates in both include that signer's.
func (c *CA) store(next *caState, both []byte) error {
	write := func(path string, data []byte) error {
		if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, data) {
			return nil
		}
		step("write " + filepath.Base(path))
		return durable.WriteFile(path, data)
	}
	if err := write(c.CertFile(), both); err != nil {
		return err
	}
	if next.cross != nil {
		if err := write(c.crossFile(), encodeCert(next.cross)); err != nil {
			return err
		}
	}
	if err := write(c.KeyFile(), next.signer.KeyPEM); err != nil {
		return err
	}
	if next.cross == nil {
		if err := os.Remove(c.crossFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return write(c.CertFile(), next.bundle)
}

// step is called before each write of a rotation. Tests replace it to stop there.
var step = func(string) {}
