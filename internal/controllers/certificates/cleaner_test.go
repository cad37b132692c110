package certificates

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRequestsAreDeletedAfterTheirTime(t *testing.T) {
	created := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	until := func(notAfter time.Time) []byte {
		template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: notAfter}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	decided := func(kind certificatesv1.RequestConditionType, at time.Time) []certificatesv1.CertificateSigningRequestCondition {
		return []certificatesv1.CertificateSigningRequestCondition{{Type: kind, LastUpdateTime: metav1.NewTime(at)}}
	}
	for _, test := range []struct {
		name   string
		status certificatesv1.CertificateSigningRequestStatus
		want   time.Duration
	}{
		{"an undecided one for a day", certificatesv1.CertificateSigningRequestStatus{}, 24 * time.Hour},
		{"an approved one for an hour after it was", certificatesv1.CertificateSigningRequestStatus{Conditions: decided(certificatesv1.CertificateApproved, created.Add(2*time.Hour))}, 3 * time.Hour},
		{"a denied one too", certificatesv1.CertificateSigningRequestStatus{Conditions: decided(certificatesv1.CertificateDenied, created.Add(time.Hour))}, 2 * time.Hour},
		{"one with a certificate until that expires", certificatesv1.CertificateSigningRequestStatus{Certificate: until(created.Add(5 * time.Hour))}, 5 * time.Hour},
		{"one whose certificate came expired for its first hour", certificatesv1.CertificateSigningRequestStatus{Certificate: until(created.Add(-time.Hour))}, time.Hour},
	} {
		csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(created)}, Status: test.status}
		if got := keepUntil(csr).Sub(created); got != test.want {
			t.Errorf("%s: kept for %s, want %s", test.name, got, test.want)
		}
	}
}
