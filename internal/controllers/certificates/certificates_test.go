package certificates_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
	"github.com/knarr-project/knarr/internal/controllers/certificates"
)

// authority returns a new CA in PEM.
func authority(t *testing.T) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(100 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

func request(t *testing.T, subject pkix.Name) []byte {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func create(t *testing.T, c *controllertest.Cluster, name, signer string, subject pkix.Name, usages ...certificatesv1.KeyUsage) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	ttl := int32(3600)
	csr, err := client.Create(t.Context(), c.Client, &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certificatesv1.CertificateSigningRequestSpec{
		Request: request(t, subject), SignerName: signer, Usages: usages, ExpirationSeconds: &ttl,
	}})
	if err != nil {
		t.Fatal(err)
	}
	return controllertest.Retry(c, csr, func(csr *certificatesv1.CertificateSigningRequest) {
		csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "ByHand", LastUpdateTime: metav1.Now()})
	}, "approval")
}

func TestApprovedRequestsAreSignedOrFail(t *testing.T) {
	c := controllertest.New(t)
	c.Config.SigningCert, c.Config.SigningKey = authority(t)
	c.Run(certificates.Signing, certificates.Approving, certificates.Cleaner)
	create(t, c, "good", certificatesv1.KubeAPIServerClientSignerName, pkix.Name{CommonName: "ann", Organization: []string{"team"}}, certificatesv1.UsageClientAuth)
	create(t, c, "bad", certificatesv1.KubeAPIServerClientKubeletSignerName, pkix.Name{CommonName: "ann"}, certificatesv1.UsageClientAuth)
	c.Eventually("one is signed", func() string {
		csr, err := client.Get[*certificatesv1.CertificateSigningRequest](t.Context(), c.Client, "", "good")
		if err != nil {
			return err.Error()
		}
		block, _ := pem.Decode(csr.Status.Certificate)
		if block == nil {
			return "not signed"
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return err.Error()
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(c.Config.SigningCert)
		if _, err := cert.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
			return err.Error()
		}
		if cert.Subject.CommonName != "ann" || time.Until(cert.NotAfter) > time.Hour+time.Minute {
			return fmt.Sprint(cert.Subject, cert.NotAfter)
		}
		return ""
	})
	c.Eventually("the other fails", func() string {
		csr, err := client.Get[*certificatesv1.CertificateSigningRequest](t.Context(), c.Client, "", "bad")
		if err != nil {
			return err.Error()
		}
		for _, cond := range csr.Status.Conditions {
			if cond.Type == certificatesv1.CertificateFailed && cond.Reason == "SignerValidationFailure" {
				return ""
			}
		}
		return fmt.Sprintf("%+v", csr.Status)
	})
}
