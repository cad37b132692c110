package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/validate"
)

const (
	minCertificateSeconds = 600
	maxSignerNameLength   = validation.DNS1123SubdomainMaxLength + validation.DNS1123SubdomainMaxLength + 1 + validation.DNS1123LabelMaxLength
	legacyUnknownSigner   = "kubernetes.io/legacy-unknown"
	maxReasonLength       = 1024
)

// keyUsages are the usages that a request may ask for, sorted.
var keyUsages = slices.Sorted(slices.Values([]certificatesv1.KeyUsage{
	certificatesv1.UsageSigning, certificatesv1.UsageDigitalSignature, certificatesv1.UsageContentCommitment, certificatesv1.UsageKeyEncipherment,
	certificatesv1.UsageKeyAgreement, certificatesv1.UsageDataEncipherment, certificatesv1.UsageCertSign, certificatesv1.UsageCRLSign,
	certificatesv1.UsageEncipherOnly, certificatesv1.UsageDecipherOnly, certificatesv1.UsageAny, certificatesv1.UsageServerAuth,
	certificatesv1.UsageClientAuth, certificatesv1.UsageCodeSigning, certificatesv1.UsageEmailProtection, certificatesv1.UsageSMIME,
	certificatesv1.UsageIPsecEndSystem, certificatesv1.UsageIPsecTunnel, certificatesv1.UsageIPsecUser, certificatesv1.UsageTimestamping,
	certificatesv1.UsageOCSPSigning, certificatesv1.UsageMicrosoftSGC, certificatesv1.UsageNetscapeSGC,
}))

func validateCertificateRequest(c *certificatesv1.CertificateSigningRequest) field.ErrorList {
	spec := &c.Spec
	var errs field.ErrorList
	if err := parseRequest(spec.Request); err != nil {
		errs = append(errs, field.Invalid(validate.SpecPath.Child("request"), spec.Request, fmt.Sprintf("%v", err)))
	}
	usages := validate.SpecPath.Child("usages")
	if len(spec.Usages) == 0 {
		errs = append(errs, field.Required(usages, ""))
	}
	seen := sets.Set[certificatesv1.KeyUsage]{}
	for i, u := range spec.Usages {
		errs = append(errs, validate.NotSupportedUnless(u, usages.Index(i), keyUsages...)...)
		if seen.Has(u) {
			errs = append(errs, field.Duplicate(usages.Index(i), u))
		}
		seen.Insert(u)
	}
	signer := validate.SpecPath.Child("signerName")
	if spec.SignerName == legacyUnknownSigner {
		errs = append(errs, field.Invalid(signer, spec.SignerName, "the legacy signerName is not allowed via this API version"))
	} else {
		errs = append(errs, ValidateSignerName(signer, spec.SignerName)...)
	}
	if s := spec.ExpirationSeconds; s != nil && *s < minCertificateSeconds {
		errs = append(errs, field.Invalid(validate.SpecPath.Child("expirationSeconds"), *s, fmt.Sprintf("may not specify a duration less than %d seconds (10 minutes)", minCertificateSeconds)))
	}
	return append(errs, validateCertificateConditions(c, nil)...)
}

// parseRequest parses a PEM request and checks its signature, which proves possession of the key.
func parseRequest(data []byte) error {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return err
	}
	return request.CheckSignature()
}

// ValidateSignerName checks a signer's name, such as "example.com/serving".
func ValidateSignerName(at *field.Path, name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	parts := strings.Split(name, "/")
	if len(parts) != 2 {
		return field.ErrorList{field.Invalid(at, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")}
	}
	var errs field.ErrorList
	domain, path := parts[0], parts[1]
	labels := strings.Split(domain, ".")
	if len(labels) < 2 {
		errs = append(errs, field.Invalid(at, domain, "should be a domain with at least two segments separated by dots"))
	}
	for _, l := range labels {
		for _, m := range validation.IsDNS1123Label(l) {
			errs = append(errs, field.Invalid(at, domain, fmt.Sprintf("validating label %q: %s", l, m)))
		}
	}
	for _, s := range strings.Split(path, ".") {
		for _, m := range validation.IsDNS1123Subdomain(s) {
			errs = append(errs, field.Invalid(at, path, fmt.Sprintf("validating label %q: %s", s, m)))
		}
	}
	if len(name) > maxSignerNameLength {
		errs = append(errs, field.TooLong(at, name, maxSignerNameLength))
	}
	return errs
}

// validateCertificateConditions refuses a request that is both approved and denied, and the removal
// of a verdict.
func validateCertificateConditions(c, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
	at := field.NewPath("status", "conditions")
	var errs field.ErrorList
	seen := map[certificatesv1.RequestConditionType]bool{}
	for i, condition := range c.Status.Conditions {
		switch condition.Type {
		case certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			errs = append(errs, validate.OneOf(condition.Status, at.Index(i).Child("status"), "True")...)
		default:
			if condition.Type == "" {
				errs = append(errs, field.Required(at.Index(i).Child("type"), ""))
			}
			errs = append(errs, validate.OneOf(condition.Status, at.Index(i).Child("status"), "False", "True", "Unknown")...)
		}
		if seen[condition.Type] {
			errs = append(errs, field.Duplicate(at.Index(i).Child("type"), condition.Type))
		}
		seen[condition.Type] = true
	}
	if seen[certificatesv1.CertificateApproved] && seen[certificatesv1.CertificateDenied] {
		errs = append(errs, field.Invalid(at, verdicts(c)[1].Type, "Approved and Denied conditions are mutually exclusive"))
	}
	if old == nil {
		return errs
	}
	for _, kind := range []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed} {
		had := slices.IndexFunc(old.Status.Conditions, func(o certificatesv1.CertificateSigningRequestCondition) bool { return o.Type == kind })
		if had < 0 {
			continue
		}
		has := slices.IndexFunc(c.Status.Conditions, func(o certificatesv1.CertificateSigningRequestCondition) bool { return o.Type == kind })
		if has < 0 {
			errs = append(errs, field.Forbidden(at, fmt.Sprintf("updates may not remove a condition of type %q", kind)))
		}
	}
	return errs
}

// verdicts returns the Approved and Denied conditions in order.
func verdicts(c *certificatesv1.CertificateSigningRequest) (found []certificatesv1.CertificateSigningRequestCondition) {
	for _, condition := range c.Status.Conditions {
		if condition.Type == certificatesv1.CertificateApproved || condition.Type == certificatesv1.CertificateDenied {
			found = append(found, condition)
		}
	}
	return found
}

func validateCertificateUpdate(c, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
	return validateCertificateConditions(c, old)
}

func validateCertificateStatus(c, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
	errs := validateCertificateConditions(c, old)
	// Approving and denying need the approval subresource and its permission.
	for _, v := range verdicts(c) {
		if !slices.ContainsFunc(old.Status.Conditions, func(o certificatesv1.CertificateSigningRequestCondition) bool { return o.Type == v.Type }) {
			errs = append(errs, field.Forbidden(field.NewPath("status", "conditions"), fmt.Sprintf("updates may not add a condition of type %q", v.Type)))
		}
	}
	at := field.NewPath("status", "certificate")
	switch {
	case len(old.Status.Certificate) > 0 && !slices.Equal(c.Status.Certificate, old.Status.Certificate):
		errs = append(errs, field.Forbidden(at, "updates may not modify existing certificate content"))
	case len(c.Status.Certificate) > 0:
		if err := parseChain(c.Status.Certificate); err != nil {
			errs = append(errs, field.Invalid(at, "<certificate data>", err.Error()))
		}
	}
	return errs
}

// parseChain checks that data is one or more PEM blocks, all of them certificates.
func parseChain(data []byte) error {
	blocks := 0
	for rest := data; len(rest) > 0; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return errors.New("only CERTIFICATE PEM blocks are allowed, found " + fmt.Sprintf("%q", block.Type))
		}
		if len(block.Headers) > 0 {
			return errors.New("no PEM block headers are permitted")
		}
		if _, err := x509.ParseCertificates(block.Bytes); err != nil {
			return err
		}
		blocks++
	}
	if blocks == 0 {
		return errors.New("must contain at least one CERTIFICATE PEM block")
	}
	return nil
}
