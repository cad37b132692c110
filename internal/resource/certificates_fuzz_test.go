package resource

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// FuzzCertificates checks that no certificate request or chain makes the parser panic.
func FuzzCertificates(f *testing.F) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:a", Organization: []string{"system:nodes"}}, DNSNames: []string{"a"}}, key)
	if err != nil {
		f.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Unix(4000000000, 0), IsCA: true, BasicConstraintsValid: true}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		f.Fatal(err)
	}
	for _, block := range []*pem.Block{{Type: "CERTIFICATE REQUEST", Bytes: request}, {Type: "CERTIFICATE", Bytes: certificate}, {Type: "CERTIFICATE", Bytes: request},
		{Type: "CERTIFICATE", Headers: map[string]string{"a": "b"}, Bytes: certificate}, {Type: "PRIVATE KEY"}} {
		text := pem.EncodeToMemory(block)
		f.Add(text)
		f.Add(append(text, text...))
	}
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		c := &certificatesv1.CertificateSigningRequest{}
		c.Spec.Request, c.Status.Certificate = data, data
		validateCertificateRequest(c)
		validateCertificateStatus(c, &certificatesv1.CertificateSigningRequest{})
	})
}
