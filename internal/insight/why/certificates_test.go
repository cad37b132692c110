package why

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// authority signs certificates of the tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T, name string, from, to time.Time) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: to,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// sign returns a certificate and its key.
func (a *authority) sign(t *testing.T, from, to time.Time, hosts ...string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "ann"}, NotBefore: from, NotAfter: to, DNSNames: hosts}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
}

func secretYAML(cert, key []byte) string {
	return fmt.Sprintf("kind: Secret\nmetadata: {name: tls, namespace: x}\ntype: kubernetes.io/tls\ndata: {tls.crt: %s, tls.key: %s}", base64.StdEncoding.EncodeToString(cert), base64.StdEncoding.EncodeToString(key))
}

// hookServer is a Service named hook with a ready pod that mounts the Secret tls.
const hookServer = "\n---\nkind: Service\nmetadata: {name: hook, namespace: x}\nspec: {selector: {app: hook}, ports: [{port: 443}]}\n---\n" +
	"kind: Pod\nmetadata: {name: hook, namespace: x, labels: {app: hook}}\nspec: {nodeName: n1, containers: [{name: c, image: app}], volumes: [{name: t, secret: {secretName: tls}}]}\n" +
	"status: {phase: Running, conditions: [{type: Ready, status: \"True\"}]}" + readyNode + "\n---\n"

func TestCertificatesAreExplained(t *testing.T) {
	year := 365 * 24 * time.Hour
	before, after := now.Add(-year), now.Add(year)
	ca, other := newAuthority(t, "right-ca", before, after), newAuthority(t, "other-ca", before, after)
	good, goodKey := ca.sign(t, before, after, "hook.x.svc", "shop.example.com")
	expired, expiredKey := ca.sign(t, before, now.Add(-48*time.Hour), "hook.x.svc", "shop.example.com")
	early, earlyKey := ca.sign(t, now.Add(time.Hour), after, "hook.x.svc")
	elsewhere, elsewhereKey := ca.sign(t, before, after, "other.example.com")
	bundle := func(a *authority) string { return base64.StdEncoding.EncodeToString(a.pem) }
	webhook := func(a *authority) string {
		return "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {name: a}\nwebhooks: [{name: w, clientConfig: {service: {namespace: x, name: hook}, caBundle: " + bundle(a) + "}}]"
	}
	ingressTLS := "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: a, namespace: x}\nspec: {ingressClassName: c, tls: [{hosts: [shop.example.com], secretName: tls}]}\n---\napiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata: {name: c}\n---\n"
	apiService := func(a *authority, message string) string {
		return "apiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata: {name: v1.g}\nspec: {service: {namespace: x, name: hook}, caBundle: " + bundle(a) + "}\nstatus: {conditions: [{type: Available, status: \"False\", reason: FailedDiscoveryCheck, message: '" + message + "'}]}"
	}
	conversion := func(a *authority) string {
		return widgetDefinition[:strings.Index(widgetDefinition, "\nstatus")-1] + ", conversion: {strategy: Webhook, webhook: {clientConfig: {service: {namespace: x, name: hook}, caBundle: " + bundle(a) + "}}}}\nstatus: {conditions: [{type: Established, status: \"True\"}]}"
	}
	old := newAuthority(t, "old-ca", before, now.Add(-time.Hour))
	for _, test := range []struct{ name, subject, cause, says, objects string }{
		{"a TLS Secret has expired", "Secret x/tls", causeExpired, "expired at 2029-12-30 00:00:00 UTC, 2d ago", secretYAML(expired, expiredKey)},
		{"a TLS Secret is not valid yet", "Secret x/tls", causeNotYetValid, "not valid before 2030-01-01 01:00:00 UTC, in 60m", secretYAML(early, earlyKey)},
		{"a key belongs to another certificate", "Secret x/tls", causeWrongKey, "does not belong", secretYAML(good, earlyKey)},
		{"a certificate is no PEM", "Secret x/tls", causeBadCertificate, "PEM", secretYAML([]byte("x"), goodKey)},
		{"the certificate of an Ingress has expired", "Ingress x/a", causeExpired, "expired at", ingressTLS + secretYAML(expired, expiredKey)},
		{"the certificate of an Ingress is for another host", "Ingress x/a", causeWrongHost, "does not cover shop.example.com: it is for other.example.com", ingressTLS + secretYAML(elsewhere, elsewhereKey)},
		{"the certificate of an Ingress fits", "Ingress x/a", "", "", ingressTLS + secretYAML(good, goodKey)},
		{"the certificate of a webhook has expired", "ValidatingWebhookConfiguration /a", causeExpired, "expired at", webhook(ca) + hookServer + secretYAML(expired, expiredKey)},
		{"the certificate of a webhook is for another host", "ValidatingWebhookConfiguration /a", causeWrongHost, "does not cover hook.x.svc", webhook(ca) + hookServer + secretYAML(elsewhere, elsewhereKey)},
		{"the certificate of a webhook is of another CA", "ValidatingWebhookConfiguration /a", causeWrongCA, "was issued by right-ca, and the caBundle trusts other-ca", webhook(other) + hookServer + secretYAML(good, goodKey)},
		{"the certificate of a webhook fits", "ValidatingWebhookConfiguration /a", "", "", webhook(ca) + hookServer + secretYAML(good, goodKey)},
		{"the caBundle of a webhook has expired", "ValidatingWebhookConfiguration /a", causeWebhookCA, "expired at 2029-12-31 23:00:00 UTC", webhook(old) + hookServer + secretYAML(good, goodKey)},
		{"the certificate of an API server has expired", "APIService /v1.g", causeExpired, "expired at", apiService(ca, "odd") + hookServer + secretYAML(expired, expiredKey)},
		{"the message of an API server names its certificate", "APIService /v1.g", causeWrongHost, "is for a.example.com, and not for hook.x.svc", apiService(ca, "Get https://10.0.0.1: x509: certificate is valid for a.example.com, not hook.x.svc") + hookServer + secretYAML(good, goodKey)},
		{"a rejection names the certificate of the webhook", "ReplicaSet x/a", causeExpired, "expired at 2029", rejected(`Internal error occurred: failed calling webhook "w": x509: certificate has expired or is not yet valid: current time 2030-01-01T00:00:00Z is after 2029-01-01T00:00:00Z`)},
		{"the certificate of a conversion webhook has expired", "CustomResourceDefinition /widgets.example.com", causeExpired, "cannot be converted", conversion(ca) + hookServer + secretYAML(expired, expiredKey)},
	} {
		t.Run(test.name, func(t *testing.T) {
			kind, key, _ := strings.Cut(test.subject, " ")
			namespace, name, _ := strings.Cut(key, "/")
			a := ask(t, Ref{kind, namespace, name}, nil, decode(t, test.objects)...)
			switch {
			case test.cause == "" && len(a.Roots) > 0:
				t.Errorf("false alarm: %s", a.Roots[0].Problem)
			case test.cause != "" && (len(a.Roots) == 0 || a.Roots[0].Cause != test.cause || !strings.Contains(a.Roots[0].Problem, test.says)):
				t.Errorf("the root causes are %+v, not %s: %s", a.Roots, test.cause, test.says)
			}
		})
	}
}

func TestCertificatesOfConnectionsAreExplained(t *testing.T) {
	year := 365 * 24 * time.Hour
	ca := newAuthority(t, "right-ca", now.Add(-year), now.Add(year))
	good, _ := ca.sign(t, now.Add(-year), now.Add(year), "server.example.com")
	expired, _ := ca.sign(t, now.Add(-year), now.Add(-time.Hour))
	server := parseCertificates(good)[0]
	refused := apierrors.NewUnauthorized("no")
	for _, test := range []struct {
		name, cause, says string
		client            []byte
		err               error
	}{
		{"the client certificate has expired", causeClientCertificate, "expired at 2029-12-31 23:00:00 UTC", expired, errors.New("tls: expired certificate")},
		{"the client certificate is refused", causeClientCertificate, "does not accept", good, refused},
		{"the CA is not trusted", causeClientCA, "does not trust", good, fmt.Errorf("get: %w", x509.UnknownAuthorityError{Cert: server})},
		{"the server has another name", causeServerName, "does not cover elsewhere: it is for server.example.com", good, fmt.Errorf("get: %w", x509.HostnameError{Certificate: server, Host: "elsewhere"})},
		{"the server's certificate has expired", causeServerExpired, "expired at", good, fmt.Errorf("get: %w", x509.CertificateInvalidError{Cert: parseCertificates(expired)[0], Reason: x509.Expired})},
		{"the connection fails otherwise", "", "", good, errors.New("connection refused")},
		{"there is no client certificate", "", "", nil, refused},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := Unconnected(&rest.Config{Host: "https://h", TLSClientConfig: rest.TLSClientConfig{CertData: test.client}}, test.err, now)
			switch {
			case test.cause == "":
				if a != nil {
					t.Errorf("it is explained: %+v", a.Roots)
				}
			case a == nil || a.Roots[0].Cause != test.cause || !strings.Contains(a.Roots[0].Problem, test.says) || a.Roots[0].Remedy == "":
				t.Errorf("%+v, not %s: %s", a, test.cause, test.says)
			}
		})
	}
}

// FuzzCertificate checks that no content of a Secret makes the rules fail.
func FuzzCertificate(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"), []byte("x"))
	f.Fuzz(func(t *testing.T, cert, key []byte) {
		objects := decode(t, secretYAML(cert, key))
		if _, err := Evaluate(SnapshotOf(now, nil, objects...), Question{Subject: &Ref{"Secret", "x", "tls"}}); err != nil {
			t.Error(err)
		}
	})
}
