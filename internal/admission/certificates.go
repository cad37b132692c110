package admission

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/knarr-project/knarr/internal/auth"
)

// mayUseSigner reports whether a user has the verb (approve, sign) on a signer, or on all signers
// of its domain.
func mayUseSigner(ctx context.Context, z auth.Authorizer, u auth.User, verb, signer string) bool {
	domain, _, _ := strings.Cut(signer, "/")
	for _, name := range []string{signer, domain + "/*"} {
		decision, _, err := z.Authorize(ctx, auth.Attributes{User: u, Verb: verb, Group: certificatesv1.GroupName, Version: "*", Resource: "signers", Name: name})
		if err == nil && decision == auth.Allow {
			return true
		}
	}
	return false
}

// certificateApproval requires the verb approve on the signer to approve a request.
type certificateApproval struct {
	base
	authorizer auth.Authorizer
}

func newCertificateApproval(z auth.Authorizer) Plugin {
	return certificateApproval{base{"CertificateApproval", []Operation{Update}}, z}
}

// Validate implements Validator.
func (p certificateApproval) Validate(ctx context.Context, a *Attributes) error {
	request, _, ok := updated[*certificatesv1.CertificateSigningRequest](a, certificatesv1.GroupName, "certificatesigningrequests", "approval")
	if !ok {
		return nil
	}
	if !mayUseSigner(ctx, p.authorizer, a.User, "approve", request.Spec.SignerName) {
		return a.forbid(fmt.Errorf("user not permitted to approve requests with signerName %q", request.Spec.SignerName))
	}
	return nil
}

// certificateSigning requires the verb sign on the signer to set the certificate or the condition
// Failed.
type certificateSigning struct {
	base
	authorizer auth.Authorizer
}

func newCertificateSigning(z auth.Authorizer) Plugin {
	return certificateSigning{base{"CertificateSigning", []Operation{Update}}, z}
}

// Validate implements Validator.
func (p certificateSigning) Validate(ctx context.Context, a *Attributes) error {
	old, changed, ok := updated[*certificatesv1.CertificateSigningRequest](a, certificatesv1.GroupName, "certificatesigningrequests", "status")
	if !ok || equality.Semantic.DeepEqual(old.Status, changed.Status) {
		return nil
	}
	if !mayUseSigner(ctx, p.authorizer, a.User, "sign", old.Spec.SignerName) {
		return a.forbid(fmt.Errorf("user not permitted to sign requests with signerName %q", old.Spec.SignerName))
	}
	return nil
}

// certificateSubject refuses requests for certificates of the group system:masters.
type certificateSubject struct{ base }

func newCertificateSubject() Plugin {
	return certificateSubject{base{"CertificateSubjectRestriction", []Operation{Create}}}
}

// Validate implements Validator.
func (certificateSubject) Validate(_ context.Context, a *Attributes) error {
	request, ok := a.Object.(*certificatesv1.CertificateSigningRequest)
	if !ok || !a.is(certificatesv1.GroupName, "certificatesigningrequests", "") || request.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		return nil
	}
	block, _ := pem.Decode(request.Spec.Request)
	if block == nil {
		return a.forbid(fmt.Errorf("failed to parse CSR: PEM block type must be CERTIFICATE REQUEST"))
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return a.forbid(fmt.Errorf("failed to parse CSR: %w", err))
	}
	if slices.Contains(parsed.Subject.Organization, auth.GroupMasters) {
		return a.forbid(fmt.Errorf("use of %s signer with system:masters group is not allowed", certificatesv1.KubeAPIServerClientSignerName))
	}
	return nil
}
