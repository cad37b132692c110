// Package certificates holds CertificateSigningRequest, the kind of certificates.k8s.io.
package certificates

import (
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
)

func CertificateRequestStrategy() *strategy.Strategy {
	s := strategy.WithStatus(true)
	s.ValidateName = func(string, bool) []string { return nil }
	s.PrepareUpdate = strategy.OnBoth(func(c, old *certificatesv1.CertificateSigningRequest) {
		// spec and status stay as they were when the request was created.
		request := old.DeepCopy()
		c.Spec, c.Status = request.Spec, request.Status
	})
	s.PrepareStatus = strategy.OnBoth(func(c, old *certificatesv1.CertificateSigningRequest) {
		request := old.DeepCopy()
		c.Spec = request.Spec
		// Keep approvals and denials as they are; validation refuses to add or remove one.
		for _, v := range verdicts(request) {
			if i := slices.IndexFunc(c.Status.Conditions, func(n certificatesv1.CertificateSigningRequestCondition) bool { return n.Type == v.Type }); i >= 0 {
				c.Status.Conditions[i] = v
			}
		}
	})
	s.SetRequester = func(obj runtime.Object, user authenticationv1.UserInfo) {
		setRequester(&obj.(*certificatesv1.CertificateSigningRequest).Spec, user)
	}
	s.Stamp = func(obj, old runtime.Object, now metav1.Time) {
		stampConditions(obj.(*certificatesv1.CertificateSigningRequest).Status.Conditions, old.(*certificatesv1.CertificateSigningRequest).Status.Conditions, now)
	}
	s.ValidateCreate = strategy.Checks(validateCertificateRequest)
	s.ValidateUpdate = strategy.ChecksBoth(validateCertificateUpdate)
	s.ValidateStatus = strategy.ChecksBoth(validateCertificateStatus)
	s.Subresource = map[string]strategy.UpdateStrategy{
		"approval": {Validate: strategy.ChecksBoth(validateCertificateUpdate), Prepare: strategy.OnBoth(func(c, old *certificatesv1.CertificateSigningRequest) {
			conditions := c.Status.Conditions
			request := old.DeepCopy()
			c.Spec, c.Status = request.Spec, request.Status
			c.Status.Conditions = conditions
		})},
	}
	s.Resets = map[string][]string{"": {"spec"}, "status": {"status.conditions"}, "approval": {"spec", "status.certificate"}}
	s.FieldNames = []string{"spec.signerName"}
	s.Fields = func(obj runtime.Object) fields.Set {
		return fields.Set{"spec.signerName": obj.(*certificatesv1.CertificateSigningRequest).Spec.SignerName}
	}
	return strategy.Show(s, certificateRequestColumns, certificateRequestRow)
}

// setRequester records the user who requests the certificate, whatever the request itself claims
// (API reference, CertificateSigningRequestSpec).
func setRequester(spec *certificatesv1.CertificateSigningRequestSpec, user authenticationv1.UserInfo) {
	spec.Username, spec.UID, spec.Groups, spec.Extra = user.Username, user.UID, user.Groups, nil
	for key, values := range user.Extra {
		if spec.Extra == nil {
			spec.Extra = make(map[string]certificatesv1.ExtraValue, len(user.Extra))
		}
		spec.Extra[key] = certificatesv1.ExtraValue(values)
	}
}

// stampConditions sets the times of conditions: of their last write, and of their last change of
// status.
func stampConditions(conditions, old []certificatesv1.CertificateSigningRequestCondition, now metav1.Time) {
	type kind struct {
		of     certificatesv1.RequestConditionType
		status corev1.ConditionStatus
	}
	since := map[kind]metav1.Time{}
	for _, o := range old {
		if !o.LastTransitionTime.IsZero() {
			since[kind{o.Type, o.Status}] = o.LastTransitionTime
		}
	}
	for i := range conditions {
		c := &conditions[i]
		if c.LastUpdateTime.IsZero() {
			c.LastUpdateTime = now
		}
		if !c.LastTransitionTime.IsZero() {
			continue
		}
		c.LastTransitionTime = now
		if before, ok := since[kind{c.Type, c.Status}]; ok {
			c.LastTransitionTime = before
		}
	}
}

var certificateRequestColumns = columns.Define("Name", "Age", "SignerName="+certificatesv1beta1.CertificateSigningRequestSpec{}.SwaggerDoc()["signerName"], "Requestor=Base64-encoded PKCS#10 CSR data",
	"RequestedDuration@spec.expirationSeconds", "Condition=Conditions applied to the request, such as approval or denial.")

func certificateRequestRow(c *certificatesv1.CertificateSigningRequest, now metav1.Time) []any {
	wanted := columns.None
	if s := c.Spec.ExpirationSeconds; s != nil {
		wanted = duration.HumanDuration(time.Duration(*s) * time.Second)
	}
	return []any{c.Name, columns.AgeOf(c, now), columns.OrNone(c.Spec.SignerName), c.Spec.Username, wanted, certificateCondition(c)}
}

func certificateCondition(c *certificatesv1.CertificateSigningRequest) string {
	var approved, denied, failed bool
	for _, condition := range c.Status.Conditions {
		switch condition.Type {
		case certificatesv1.CertificateApproved:
			approved = true
		case certificatesv1.CertificateDenied:
			denied = true
		case certificatesv1.CertificateFailed:
			failed = true
		}
	}
	text := "Pending"
	switch {
	case denied:
		text = "Denied"
	case approved:
		text = "Approved"
	}
	if failed {
		text += ",Failed"
	}
	if len(c.Status.Certificate) > 0 {
		text += ",Issued"
	}
	return text
}
