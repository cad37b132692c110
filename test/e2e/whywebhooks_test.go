package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"strings"
	"time"
)

// pair is a certificate and its key, both in PEM, and what signs others with it.
type pair struct {
	certificate, key []byte
	signer           tls.Certificate
}

func (p pair) encoded() (certificate, key string) {
	return base64.StdEncoding.EncodeToString(p.certificate), base64.StdEncoding.EncodeToString(p.key)
}

// issue makes a certificate for the address of the machine's servers. An authority signs it, or its
// own key.
func (f *fleet) issue(authority *pair, from, until time.Time) (p pair) {
	f.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "harbour"}, NotBefore: from, NotAfter: until, IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.ParseIP("192.168.88.1")}, DNSNames: []string{"harbour.example"},
	}
	parent, signer := template, any(key)
	if authority != nil {
		parent, signer = authority.signer.Leaf, authority.signer.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		f.t.Fatal(err)
	}
	bytes, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		f.t.Fatal(err)
	}
	p.certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	p.key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: bytes})
	if p.signer, err = tls.X509KeyPair(p.certificate, p.key); err != nil {
		f.t.Fatal(err)
	}
	return p
}

// serveWebhook serves a webhook on the machine that denies all requests.
func (f *fleet) serveWebhook(address string, p pair) {
	f.t.Helper()
	listener, err := f.cluster.listen(address)
	if err != nil {
		f.t.Fatal(err)
	}
	server := &http.Server{
		ReadHeaderTimeout: time.Second, TLSConfig: &tls.Config{Certificates: []tls.Certificate{p.signer}}, ErrorLog: log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
			_, uid, _ := strings.Cut(string(body), `"uid":"`) // the review's own is its first
			uid, _, _ = strings.Cut(uid, `"`)
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":false,"status":{"message":"the harbour is full"}}}`, uid)
		}),
	}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	f.t.Cleanup(func() { _ = server.Close() })
}

// webhookManifest is a webhook for the pods of a namespace of its name, and a Deployment there.
func webhookManifest(name, address string, authority pair) string {
	bundle, _ := authority.encoded()
	return fmt.Sprintf(`apiVersion: v1
kind: Namespace
metadata: {name: %[1]s}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: %[1]s}
webhooks:
- name: %[1]s.example.com
  clientConfig: {url: "https://%[2]s/", caBundle: %[3]s}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
  admissionReviewVersions: [v1]
  sideEffects: None
---
`, name, address, bundle) + deploymentManifest("boats", name, "")
}

// tlsSituations serves webhooks, and returns situations with them and with certificates.
func (f *fleet) tlsSituations() []situation {
	f.t.Helper()
	now := time.Now()
	valid, other := f.issue(nil, now.Add(-time.Hour), now.Add(time.Hour)), f.issue(nil, now.Add(-time.Hour), now.Add(time.Hour))
	old := f.issue(&valid, now.Add(-2*time.Hour), now.Add(-time.Hour))
	const denying, expired, nobody = "192.168.88.1:5002", "192.168.88.1:5003", "192.168.88.1:5004"
	f.serveWebhook(denying, valid)
	f.serveWebhook(expired, old)
	secret := func(name string, certificate, key pair) string {
		c, _ := certificate.encoded()
		_, k := key.encoded()
		return fmt.Sprintf("apiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\nmetadata: {name: %s}\ndata: {tls.crt: %s, tls.key: %s}\n", name, c, k)
	}
	return []situation{
		{"a webhook denies pods", "deploy/boats -n denied", "webhook-denied", "denied the request", webhookManifest("denied", denying, valid)},
		{"a webhook does not answer", "deploy/boats -n nobody", "webhook-call-failed", "Repair the webhook", webhookManifest("nobody", nobody, valid)},
		{"a webhook has a certificate of another authority", "deploy/boats -n distrusted", "certificate-wrong-ca", "caBundle", webhookManifest("distrusted", denying, other)},
		{"the certificate of a webhook has expired", "deploy/boats -n expired", "certificate-expired", "Renew it", webhookManifest("expired", expired, valid)},
		{"a certificate has expired", "secret/old", "certificate-expired", "ago", secret("old", old, old)},
		{"a certificate has another key", "secret/mixed", "certificate-wrong-key", "belong together", secret("mixed", valid, other)},
	}
}
