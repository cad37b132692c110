package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"

	"k8s.io/client-go/util/keyutil"
)

const (
	authorityLifetime = 10 * 365 * 24 * time.Hour
	leafLifetime      = 365 * 24 * time.Hour
	// clockSkew is the time by which certificates are backdated, for machines with slow clocks.
	clockSkew = 5 * time.Minute
)

// Authority is a CA: its certificate and its key.
type Authority struct {
	Certificate *x509.Certificate
	Key         crypto.Signer
	CertPEM     []byte
	KeyPEM      []byte
}

// Pool returns a pool with only this authority.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.Certificate)
	return pool
}

// Hash returns "sha256:" and the hash of the CA's public key (SPKI), as in kubeadm's
// --discovery-token-ca-cert-hash.
func (a *Authority) Hash() string { return CertificateHash(a.Certificate) }

// CertificateHash returns the hash of a certificate's public key in the form of join tokens.
func CertificateHash(c *x509.Certificate) string {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Sign signs a certificate for the public key. It sets SerialNumber and Issuer of the template, and
// limits NotAfter to the authority's own.
func (a *Authority) Sign(template *x509.Certificate, public crypto.PublicKey) (certPEM []byte, err error) {
	if template.SerialNumber, err = serialNumber(); err != nil {
		return nil, err
	}
	if template.NotAfter.After(a.Certificate.NotAfter) {
		template.NotAfter = a.Certificate.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.Certificate, public, a.Key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate %q: %w", template.Subject.CommonName, err)
	}
	return encodeCert(der), nil
}

// ParseAuthority returns the Authority of a certificate and its key in PEM.
func ParseAuthority(certPEM, keyPEM []byte) (*Authority, error) {
	cert, err := parseCert(certPEM)
	if err != nil {
		return nil, err
	}
	if !cert.IsCA {
		return nil, fmt.Errorf("certificate %q is not a CA", cert.Subject.CommonName)
	}
	key, err := ParseSigner(keyPEM)
	if err != nil {
		return nil, err
	}
	if !SamePublicKey(cert.PublicKey, key.Public()) {
		return nil, fmt.Errorf("the key does not belong to certificate %q", cert.Subject.CommonName)
	}
	return &Authority{Certificate: cert, Key: key, CertPEM: certPEM, KeyPEM: keyPEM}, nil
}

// newAuthority makes a CA with the subject in DER, or, without one, with the common name. A CA that
// replaces another has its subject, because clients choose their certificates by it.
func newAuthority(commonName string, subject []byte, now time.Time) (*Authority, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, err
	}
	template := authorityTemplate(commonName, subject, now)
	if template.SerialNumber, err = serialNumber(); err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make CA %q: %w", commonName, err)
	}
	return ParseAuthority(encodeCert(der), keyPEM)
}

func authorityTemplate(commonName string, subject []byte, now time.Time) *x509.Certificate {
	return &x509.Certificate{
		Subject:               pkix.Name{CommonName: commonName},
		RawSubject:            subject,
		DNSNames:              []string{commonName},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(authorityLifetime),
		KeyUsage:              x509.KeyUsageKeyEncipherment | x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
}

// Successor makes the CA that replaces this one. cross is the successor's certificate signed by
// this CA: with it, clients that know only this CA accept what the successor signs.
func (a *Authority) Successor(now time.Time) (next *Authority, cross []byte, err error) {
	name := a.Certificate.Subject.CommonName
	if next, err = newAuthority(name, a.Certificate.RawSubject, now); err != nil {
		return nil, nil, err
	}
	template := authorityTemplate(name, a.Certificate.RawSubject, now)
	template.SubjectKeyId = next.Certificate.SubjectKeyId
	cross, err = a.Sign(template, next.Key.Public())
	return next, cross, err
}

func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make key: %w", err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	return key, keyPEM, err
}

// serialNumber returns a random positive number of 127 bits.
func serialNumber() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("make serial number: %w", err)
	}
	return n.Add(n, big.NewInt(1)), nil
}

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func parseCert(data []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("no PEM certificate")
	}
	return x509.ParseCertificate(block.Bytes)
}

// ParseSigner parses a PEM private key that can sign.
func ParseSigner(data []byte) (crypto.Signer, error) {
	key, err := keyutil.ParsePrivateKeyPEM(data)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a %T cannot sign", key)
	}
	return signer, nil
}

// SamePublicKey reports whether two public keys are equal.
func SamePublicKey(a, b crypto.PublicKey) bool {
	k, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && k.Equal(b)
}
