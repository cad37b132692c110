package why

import (
	"crypto/x509"
	"errors"
	"os"
	"time"

	"k8s.io/client-go/rest"
)

// Causes of connections that do not come about.
const (
	causeClientCertificate = "kubeconfig-certificate"
	causeClientCA          = "kubeconfig-ca"
	causeServerName        = "kubeconfig-server-name"
	causeServerExpired     = "apiserver-certificate-expired"
)

// Unconnected explains an error of a request by the certificates of its connection. It is nil if
// they are not the reason.
func Unconnected(config *rest.Config, err error, now time.Time) *Answer {
	f := connectionFault(config, err, now)
	if f == nil {
		return nil
	}
	f.Subject, f.Root = Ref{Kind: "Kubeconfig", Name: config.Host}, true
	for i := range f.Evidence {
		f.Evidence[i].Text = clean(f.Evidence[i].Text, maxText)
	}
	f.Problem = clean(f.Problem, maxText)
	subject := f.Subject
	return &Answer{Subject: &subject, Roots: roots([]*Finding{f}), Findings: []*Finding{f}}
}

func connectionFault(config *rest.Config, err error, now time.Time) *Finding {
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &authority):
		f := &Finding{Cause: causeClientCA, Problem: "it does not trust the certificate of the API server.", Remedy: generalRemedy(causeClientCA)}
		if authority.Cert != nil {
			f.Evidence = []Fact{{Text: "the API server's certificate was issued by " + named(authority.Cert.Issuer.CommonName)}}
		}
		return f
	case errors.As(err, &host):
		problem := "the certificate of the API server does not cover " + host.Host + "."
		if flaw := hostFlaw(host.Certificate, host.Host); flaw != nil {
			problem = "the certificate of the API server " + flaw.problem + "."
		}
		return &Finding{Cause: causeServerName, Problem: problem, Remedy: generalRemedy(causeServerName)}
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert != nil:
		if flaw := dateFlaw(now, []*x509.Certificate{invalid.Cert}); flaw != nil {
			return &Finding{Cause: causeServerExpired, Problem: "the certificate of the API server " + flaw.problem + ".", Remedy: generalRemedy(causeServerExpired)}
		}
	}
	data := config.CertData
	if len(data) == 0 && config.CertFile != "" {
		data, _ = os.ReadFile(config.CertFile)
	}
	chain := parseCertificates(data)
	if len(chain) == 0 {
		return nil
	}
	user := Fact{Text: "it is the certificate of " + named(chain[0].Subject.CommonName) + ", issued by " + named(chain[0].Issuer.CommonName)}
	flaw := dateFlaw(now, chain[:1])
	switch {
	case flaw != nil:
		return &Finding{Cause: causeClientCertificate, Problem: "its client certificate " + flaw.problem + ".", Evidence: []Fact{user}, Remedy: generalRemedy(causeClientCertificate)}
	case Unauthorized(err):
		return &Finding{
			Cause: causeClientCertificate, Problem: "the API server does not accept its client certificate: another CA signed it, or the user is not known.",
			Evidence: []Fact{user}, Remedy: generalRemedy(causeClientCertificate),
		}
	}
	return nil
}
