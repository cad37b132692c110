package why

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Causes of TLS certificates that a client does not accept.
const (
	causeExpired        = "certificate-expired"
	causeNotYetValid    = "certificate-not-yet-valid"
	causeWrongHost      = "certificate-wrong-host"
	causeWrongCA        = "certificate-wrong-ca"
	causeWrongKey       = "certificate-wrong-key"
	causeBadCertificate = "certificate-unreadable"
)

// ofSecret are the causes that a certificate has by itself, whoever uses it.
var ofSecret = []string{causeExpired, causeNotYetValid, causeWrongKey, causeBadCertificate}

const dateFormat = "2006-01-02 15:04:05 MST"

func date(t time.Time) string { return t.UTC().Format(dateFormat) }

// parseCertificates reads the certificates of a PEM file; the first is the server's.
func parseCertificates(data []byte) (out []*x509.Certificate) {
	for len(out) < 20 {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			out = append(out, c)
		}
	}
	return out
}

// flaw describes what is wrong with a certificate. The problem is the end of a sentence that begins
// with the certificate.
type flaw struct{ cause, problem, remedy string }

// dateFlaw judges the time of a certificate and of those that it comes with.
func dateFlaw(now time.Time, chain []*x509.Certificate) *flaw {
	for i, c := range chain {
		name := ""
		if i > 0 {
			name = "of its issuer " + c.Subject.CommonName + " "
		}
		switch {
		case now.After(c.NotAfter):
			return &flaw{causeExpired, name + "expired at " + date(c.NotAfter) + ", " + age(now.Sub(c.NotAfter)) + " ago", "Renew it. If a controller renews it, such as cert-manager, read its log."}
		case now.Before(c.NotBefore):
			return &flaw{causeNotYetValid, name + "is not valid before " + date(c.NotBefore) + ", in " + age(c.NotBefore.Sub(now)), "Correct the clock of the machine that made it, or issue it again."}
		}
	}
	return nil
}

// hostFlaw reports hosts that a certificate does not cover.
func hostFlaw(c *x509.Certificate, hosts ...string) *flaw {
	for _, host := range hosts {
		if probe := strings.Replace(host, "*.", "any.", 1); host == "" || c.VerifyHostname(probe) == nil {
			continue
		}
		covered := slices.Clone(c.DNSNames)
		for _, ip := range c.IPAddresses {
			covered = append(covered, net.IP.String(ip))
		}
		return &flaw{causeWrongHost, "does not cover " + host + ": it is for " + names(covered), "Issue it with the subject alternative name " + host + "."}
	}
	return nil
}

// authorityFlaw reports a certificate that no authority of a bundle has signed.
func authorityFlaw(chain []*x509.Certificate, bundle []byte) *flaw {
	roots, others := x509.NewCertPool(), x509.NewCertPool()
	if len(bundle) == 0 || !roots.AppendCertsFromPEM(bundle) {
		return nil
	}
	for _, c := range chain[1:] {
		others.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: others, CurrentTime: chain[0].NotBefore.Add(time.Second), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	var unknown x509.UnknownAuthorityError
	if !errors.As(err, &unknown) {
		return nil
	}
	var trusted []string
	for _, c := range parseCertificates(bundle) {
		trusted = append(trusted, c.Subject.CommonName)
	}
	return &flaw{causeWrongCA, "was issued by " + named(chain[0].Issuer.CommonName) + ", and the caBundle trusts " + names(trusted), "Set caBundle to the CA that issued the certificate."}
}

func named(text string) string {
	if text == "" {
		return "a CA without a name"
	}
	return text
}

// pairFlaw judges the certificate and the key of a TLS Secret by themselves.
func pairFlaw(now time.Time, secret *corev1.Secret) *flaw {
	data, key := secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]
	chain := parseCertificates(data)
	if len(chain) == 0 {
		return &flaw{causeBadCertificate, "has no certificate in PEM form", "Create the Secret again: kubectl create secret tls."}
	}
	if f := dateFlaw(now, chain); f != nil {
		return f
	}
	if _, err := tls.X509KeyPair(data, key); err != nil && len(key) > 0 {
		return &flaw{causeWrongKey, "does not belong to the private key beside it", "Store the certificate and the key that belong together."}
	}
	return nil
}

// tlsSecret explains a TLS Secret whose certificate is of no use.
func tlsSecret(s *Snapshot, secret *corev1.Secret) []Finding {
	if secret.Type != corev1.SecretTypeTLS || len(secret.Data[corev1.TLSCertKey]) == 0 {
		return nil
	}
	f := pairFlaw(s.Now, secret)
	if f == nil {
		return nil
	}
	return []Finding{{Cause: f.cause, Problem: "its certificate " + f.problem + ".", Remedy: f.remedy, Evidence: certificateFacts(secret)}}
}

// certificateFacts describes the public part of a certificate.
func certificateFacts(secret *corev1.Secret) []Fact {
	chain := parseCertificates(secret.Data[corev1.TLSCertKey])
	if len(chain) == 0 {
		return nil
	}
	c := chain[0]
	return []Fact{{Text: fmt.Sprintf("valid from %s to %s, for %s, issued by %s", date(c.NotBefore), date(c.NotAfter), names(c.DNSNames), named(c.Issuer.CommonName))}}
}

// servingCertificate explains a Service's certificate that a caller with this bundle does not
// accept. Only certificates that the Service's pods mount from Secrets are known. Any that fits
// settles the question.
func servingCertificate(s *Snapshot, namespace, name string, bundle []byte) *Finding {
	svc, presence := get[*corev1.Service](s, namespace, name)
	if presence != Found || len(svc.Spec.Selector) == 0 {
		return nil
	}
	pods, _ := list[*corev1.Pod](s, namespace)
	host := name + "." + namespace + ".svc"
	var first *Finding
	for _, p := range pods {
		if podOver(p) || !labels.SelectorFromSet(svc.Spec.Selector).Matches(labels.Set(p.Labels)) {
			continue
		}
		for i := range p.Spec.Volumes {
			source := p.Spec.Volumes[i].Secret
			if source == nil {
				continue
			}
			secret, presence := get[*corev1.Secret](s, namespace, source.SecretName)
			if presence != Found || len(secret.Data[corev1.TLSCertKey]) == 0 || len(secret.Data[corev1.TLSPrivateKeyKey]) == 0 {
				continue
			}
			f := servingFlaw(s, secret, host, bundle)
			if f == nil {
				return nil
			}
			if first == nil {
				ref := refTo(secret)
				first = &Finding{Cause: f.cause, Problem: "the certificate of " + refTo(svc).String() + ", in " + ref.String() + ", " + f.problem + ".", Remedy: f.remedy}
				first.Evidence = certificateFacts(secret)
			}
		}
		break // the pods of a Service have the same volumes
	}
	return first
}

func servingFlaw(s *Snapshot, secret *corev1.Secret, host string, bundle []byte) *flaw {
	if f := pairFlaw(s.Now, secret); f != nil {
		return f
	}
	chain := parseCertificates(secret.Data[corev1.TLSCertKey])
	if f := hostFlaw(chain[0], host); f != nil {
		return f
	}
	return authorityFlaw(chain, bundle)
}

// tlsErrors classify the messages of Go's TLS client, in lower case.
var tlsErrors = []struct {
	flaw
	pattern *regexp.Regexp
}{
	{flaw{causeNotYetValid, "is not valid before $1", "Correct the clock of the machine that made it, or issue it again."}, regexp.MustCompile(`current time \S+ is before (\S+)`)},
	{flaw{causeExpired, "expired at $1", "Renew it."}, regexp.MustCompile(`current time \S+ is after (\S+)`)},
	{flaw{causeExpired, "has expired", "Renew it."}, regexp.MustCompile(`certificate has expired`)},
	{flaw{causeWrongHost, "is for $1, and not for $2", "Issue it with the subject alternative name $2."}, regexp.MustCompile(`certificate is valid for (.+), not ([^\s:,"]+)`)},
	{flaw{causeWrongHost, "covers no name, and must cover $1", "Issue it with the subject alternative name $1."}, regexp.MustCompile(`not valid for any names, but wanted to match ([^\s:,"]+)`)},
	{flaw{causeWrongHost, "has no subject alternative name", "Issue it with the name as subject alternative name."}, regexp.MustCompile(`relies on legacy common name`)},
	{flaw{causeWrongCA, "is signed by a CA that the caBundle does not trust", "Set caBundle to the CA that issued the certificate."}, regexp.MustCompile(`signed by unknown authority|not trusted|unable to verify the first certificate`)},
}

// flawIn finds what the message of a failed connection says about the server's certificate.
func flawIn(message string) *flaw {
	lower := strings.ToLower(message)
	if !strings.Contains(lower, "x509") && !strings.Contains(lower, "certificate") {
		return nil
	}
	for _, e := range tlsErrors {
		m := e.pattern.FindStringSubmatch(lower)
		if m == nil {
			continue
		}
		fill := func(text string) string {
			for i, group := range m[1:] {
				text = strings.ReplaceAll(text, fmt.Sprintf("$%d", i+1), group)
			}
			return text
		}
		return &flaw{e.cause, fill(e.problem), fill(e.remedy)}
	}
	return nil
}
