// Package certificates approves, signs and deletes CertificateSigningRequests, and decides which
// machine owns a node's name.
package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
)

const account = "certificate-controller"

// condition returns the request's condition of the type if it is True, else nil.
func condition(csr *certificatesv1.CertificateSigningRequest, t certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequestCondition {
	for i := range csr.Status.Conditions {
		if c := &csr.Status.Conditions[i]; c.Type == t && c.Status != corev1.ConditionFalse {
			return c
		}
	}
	return nil
}

// parse reads the PKCS #10 request.
func parse(csr *certificatesv1.CertificateSigningRequest) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(csr.Spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	return request, request.CheckSignature()
}

var (
	clientUsages      = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageClientAuth}
	clientUsagesNoRSA = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	servingUsages     = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageServerAuth}
	servingNoRSA      = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}
)

// sameUsages compares the usages as sets.
func sameUsages(a, b []certificatesv1.KeyUsage) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(slices.Compact(a), slices.Compact(b))
}

// validateFor checks a request against the rules of its signer (API reference, "Kubernetes
// signers").
func validateFor(csr *certificatesv1.CertificateSigningRequest, request *x509.CertificateRequest) error {
	usages := csr.Spec.Usages
	switch csr.Spec.SignerName {
	case certificatesv1.KubeAPIServerClientSignerName:
		if !slices.Contains(usages, certificatesv1.UsageClientAuth) {
			return errors.New("usages did not contain \"client auth\"")
		}
		for _, u := range usages {
			if !slices.Contains(clientUsages, u) {
				return fmt.Errorf("usage %q is not allowed for client certificates", u)
			}
		}
	case certificatesv1.KubeAPIServerClientKubeletSignerName:
		return validateKubeletClient(request, usages)
	case certificatesv1.KubeletServingSignerName:
		return validateKubeletServing(csr.Spec.Username, request, usages)
	case legacyUnknown:
	default:
		return fmt.Errorf("signer %q is not signed here", csr.Spec.SignerName)
	}
	return nil
}

func validateNodeSubject(request *x509.CertificateRequest) error {
	if !slices.Equal(request.Subject.Organization, []string{"system:nodes"}) {
		return errors.New("subject organization is not system:nodes")
	}
	if !strings.HasPrefix(request.Subject.CommonName, "system:node:") || request.Subject.CommonName == "system:node:" {
		return errors.New("subject common name does not begin with system:node: ")
	}
	return nil
}

func validateKubeletClient(request *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	if err := validateNodeSubject(request); err != nil {
		return err
	}
	if len(request.DNSNames)+len(request.EmailAddresses)+len(request.IPAddresses)+len(request.URIs) > 0 {
		return errors.New("subjectAltNames are not allowed")
	}
	if !sameUsages(usages, clientUsages) && !sameUsages(usages, clientUsagesNoRSA) {
		return errors.New("usages did not match [digital signature client auth] or with key encipherment")
	}
	return nil
}

func validateKubeletServing(username string, request *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	if err := validateNodeSubject(request); err != nil {
		return err
	}
	switch {
	case request.Subject.CommonName != username:
		return errors.New("subject common name is not the requesting node")
	case len(request.DNSNames)+len(request.IPAddresses) == 0:
		return errors.New("DNS or IP subjectAltName is required")
	case len(request.EmailAddresses) > 0:
		return errors.New("email subjectAltNames are not allowed")
	case len(request.URIs) > 0:
		return errors.New("URI subjectAltNames are not allowed")
	case !sameUsages(usages, servingUsages) && !sameUsages(usages, servingNoRSA):
		return errors.New("usages did not match [digital signature server auth] or with key encipherment")
	}
	return nil
}
