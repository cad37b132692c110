package auth

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/knarr-project/knarr/internal/memo"
)

// ExtraCredentialID is the extra key of the credential that authenticated a user.
const ExtraCredentialID = "authentication.kubernetes.io/credential-id"

// oidUserUID is the subject attribute with a user's UID (API reference, "X.509 client
// certificates").
var oidUserUID = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}

// Certificates authenticates TLS client certificates: the common name is the user, organizations
// are groups.
type Certificates struct {
	now     func() time.Time
	roots   func() *x509.CertPool // nil if only Trust changes the authorities
	trusted atomic.Pointer[trusted]
}

// trusted holds authorities and the chains verified with them recently.
type trusted struct {
	roots    *x509.CertPool
	verified memo.Memo[[sha256.Size]byte, verifiedCertificate]
}

type verifiedCertificate struct {
	user     User
	notAfter time.Time
}

// NewCertificates trusts the roots; now is time.Now except in tests.
func NewCertificates(roots *x509.CertPool, now func() time.Time) *Certificates {
	c := &Certificates{now: now}
	c.Trust(roots)
	return c
}

// FollowCertificates trusts the authorities that roots returns at each request. A change returns
// another pool.
func FollowCertificates(roots func() *x509.CertPool, now func() time.Time) *Certificates {
	c := NewCertificates(roots(), now)
	c.roots = roots
	return c
}

// authorities returns the present authorities.
func (c *Certificates) authorities() *trusted {
	t := c.trusted.Load()
	if c.roots == nil {
		return t
	}
	if roots := c.roots(); roots != t.roots {
		c.Trust(roots)
		t = c.trusted.Load()
	}
	return t
}

// Trust replaces the authorities. All clients are verified again.
func (c *Certificates) Trust(roots *x509.CertPool) {
	t := &trusted{roots: roots}
	t.verified.Size = 1024
	c.trusted.Store(t)
}

// Authenticate implements Authenticator. A verified chain is remembered until it expires, because a
// connection carries many requests.
func (c *Certificates) Authenticate(r *http.Request) (User, bool, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return User{}, false, nil
	}
	leaf, now, trusted := r.TLS.PeerCertificates[0], c.now(), c.authorities()
	id := sha256.Sum256(leaf.Raw)
	if v, ok := trusted.verified.Get(id); ok && now.Before(v.notAfter) {
		return v.user, true, nil
	}
	notAfter, err := verifyClient(r.TLS.PeerCertificates, trusted.roots, now)
	if err != nil {
		return User{}, false, fmt.Errorf("verifying certificate %s failed: %w", describe(leaf), err)
	}
	if leaf.Subject.CommonName == "" {
		return User{}, false, nil
	}
	user := User{
		Name:   leaf.Subject.CommonName,
		Groups: slices.Clip(leaf.Subject.Organization),
		Extra:  map[string][]string{ExtraCredentialID: {"X509SHA256=" + hex.EncodeToString(id[:])}},
	}
	for _, name := range leaf.Subject.Names {
		if uid, ok := name.Value.(string); ok && name.Type.Equal(oidUserUID) {
			user.UID = uid
		}
	}
	trusted.verified.Put(id, verifiedCertificate{user: user, notAfter: notAfter})
	return user, true, nil
}

// verifyClient verifies a chain for client authentication and returns the end of its validity.
func verifyClient(peers []*x509.Certificate, roots *x509.CertPool, now time.Time) (notAfter time.Time, err error) {
	intermediates := x509.NewCertPool()
	for _, cert := range peers[1:] {
		intermediates.AddCert(cert)
	}
	chains, err := peers[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: intermediates, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return time.Time{}, err
	}
	notAfter = peers[0].NotAfter
	for _, cert := range chains[0] {
		if cert.NotAfter.Before(notAfter) {
			notAfter = cert.NotAfter
		}
	}
	return notAfter, nil
}

func describe(c *x509.Certificate) string {
	return fmt.Sprintf("SN=%s, SKID=%s, AKID=%s", c.SerialNumber, hexColons(c.SubjectKeyId), hexColons(c.AuthorityKeyId))
}

func hexColons(b []byte) string {
	var parts []string
	for _, x := range b {
		parts = append(parts, fmt.Sprintf("%02X", x))
	}
	return strings.Join(parts, ":")
}
