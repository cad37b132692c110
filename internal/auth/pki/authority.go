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
	"io/fs"
	"math/big"
	"os"
	"time"

	"k8s.io/client-go/util/keyutil"

	"github.com/knarr-project/knarr/internal/durable"
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

// openAuthority reads certFile and keyFile, or creates them if neither exists.
func openAuthority(certFile, keyFile, commonName string, now time.Time) (*Authority, error) {
	certPEM, certErr := os.ReadFile(certFile)
	keyPEM, keyErr := os.ReadFile(keyFile)
	if errors.Is(certErr, fs.ErrNotExist) && errors.Is(keyErr, fs.ErrNotExist) {
		a, err := newAuthority(commonName, now)
		if err != nil {
			return nil, err
		}
		// Write the key first: a key without a certificate is reported as an error, but a
		// certificate without a key looks usable.
		if err := durable.WriteFile(keyFile, a.KeyPEM); err != nil {
			return nil, err
		}
		return a, durable.WriteFile(certFile, a.CertPEM)
	}
	if err := errors.Join(certErr, keyErr); err != nil {
		return nil, fmt.Errorf("read CA %s: %w", commonName, err)
	}
	a, err := ParseAuthority(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("CA in %s: %w", certFile, err)
	}
	if now.After(a.Certificate.NotAfter) {
		return nil, fmt.Errorf("CA in %s expired on %s", certFile, a.Certificate.NotAfter.Format(time.RFC3339))
	}
	return a, nil
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
	key, err := parseSigner(keyPEM)
	if err != nil {
		return nil, err
	}
	if !samePublicKey(cert.PublicKey, key.Public()) {
		return nil, fmt.Errorf("the key does not belong to certificate %q", cert.Subject.CommonName)
	}
	return &Authority{Certificate: cert, Key: key, CertPEM: certPEM, KeyPEM: keyPEM}, nil
}

func newAuthority(commonName string, now time.Time) (*Authority, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, err
	}
	serial, err := serialNumber()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: commonName},
		DNSNames:              []string{commonName},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(authorityLifetime),
		KeyUsage:              x509.KeyUsageKeyEncipherment | x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make CA %q: %w", commonName, err)
	}
	return ParseAuthority(encodeCert(der), keyPEM)
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

func parseSigner(data []byte) (crypto.Signer, error) {
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

func samePublicKey(a, b crypto.PublicKey) bool {
	k, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && k.Equal(b)
}
