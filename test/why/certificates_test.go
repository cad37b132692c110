package why

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// authority is a CA.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// authorities are the CA that signs, another one, and one that has expired.
type authorities [3]authority

func newAuthorities(t *testing.T) (out authorities) {
	t.Helper()
	for i, end := range []time.Duration{time.Hour, time.Hour, -time.Hour} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: []string{"right-ca", "other-ca", "old-ca"}[i]},
			NotBefore: time.Now().Add(-1000 * time.Hour), NotAfter: time.Now().Add(end), IsCA: true, BasicConstraintsValid: true,
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
		if err == nil {
			out[i].cert, err = x509.ParseCertificate(der)
		}
		if err != nil {
			t.Fatal(err)
		}
		out[i].key = key
	}
	return out
}

func (a authorities) bundle(i int) string {
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a[i].cert.Raw}))
}

// tlsSecret makes a TLS Secret. The words are when it begins and ends, from now, and its host.
func (b *broken) tlsSecret(ctx context.Context, namespace, name string, words []string) error {
	from, err := time.ParseDuration(words[0])
	if err != nil {
		return err
	}
	to, err := time.ParseDuration(words[1])
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	ca := b.authorities[0]
	template := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(from), NotAfter: time.Now().Add(to), DNSNames: words[2:]}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, &key.PublicKey, ca.key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	_, err = b.typed.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{
			corev1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
			corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}),
		},
	}, metav1.CreateOptions{})
	return err
}
