package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

// FuzzCertificates checks that no certificate request or chain makes the parser panic.
func FuzzCertificates(f *testing.F) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:a", Organization: []string{"system:nodes"}}, DNSNames: []string{"a"}}, key)
	if err != nil {
		f.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Unix(4000000000, 0), IsCA: true, BasicConstraintsValid: true}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		f.Fatal(err)
	}
	for _, block := range []*pem.Block{{Type: "CERTIFICATE REQUEST", Bytes: request}, {Type: "CERTIFICATE", Bytes: certificate}, {Type: "CERTIFICATE", Bytes: request},
		{Type: "CERTIFICATE", Headers: map[string]string{"a": "b"}, Bytes: certificate}, {Type: "PRIVATE KEY"}} {
		text := pem.EncodeToMemory(block)
		f.Add(text)
		f.Add(append(text, text...))
	}
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		c := &certificatesv1.CertificateSigningRequest{}
		c.Spec.Request, c.Status.Certificate = data, data
		validateCertificateRequest(c)
		validateCertificateStatus(c, &certificatesv1.CertificateSigningRequest{})
	})
}

// The wanted texts are upstream's.
func TestApprovalAndDenialOfCertificateRequests(t *testing.T) {
	request := func(kinds ...string) *certificatesv1.CertificateSigningRequest {
		c := &certificatesv1.CertificateSigningRequest{}
		for _, kind := range kinds {
			kind, status, ok := strings.Cut(kind, "=")
			if !ok {
				status = "True"
			}
			c.Status.Conditions = append(c.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
				Type: certificatesv1.RequestConditionType(kind), Status: corev1.ConditionStatus(status),
			})
		}
		return c
	}
	s := CertificateRequestStrategy()
	status, approval := s.ValidateStatus, s.Subresource["approval"].Validate
	for _, tc := range []struct {
		name     string
		approval bool
		from, to *certificatesv1.CertificateSigningRequest
		want     string
	}{
		{"an approval", true, request(), request("Approved"), ""},
		{"an approval in the status", false, request(), request("Approved"), `status.conditions: Forbidden: updates may not add a condition of type "Approved"`},
		{"an unchanged approval in the status", false, request("Approved"), request("Approved", "Failed"), ""},
		{"an approval without status", true, request(), request("Approved="), `status.conditions[0].status: Required value`},
		{"an approval with status False", true, request(), request("Approved=False"), `status.conditions[0].status: Unsupported value: "False": supported values: "True"`},
		{"approved and denied", true, request(), request("Approved", "Denied"), `status.conditions: Invalid value: "Denied": Approved and Denied conditions are mutually exclusive`},
		{"denied and approved", true, request(), request("Denied", "Approved"), `status.conditions: Invalid value: "Approved": Approved and Denied conditions are mutually exclusive`},
		{"a removed denial", true, request("Denied"), request(), `status.conditions: Forbidden: updates may not remove a condition of type "Denied"`},
		{"a removed approval in the status", false, request("Approved"), request(), `status.conditions: Forbidden: updates may not remove a condition of type "Approved"`},
		{"another condition type", true, request(), request("Foo=Unknown"), ""},
		{"a condition without type", true, request(), request("=Maybe"), `[status.conditions[0].type: Required value, status.conditions[0].status: Unsupported value: "Maybe": supported values: "False", "True", "Unknown"]`},
	} {
		validate := status
		if tc.approval {
			validate = approval
		}
		got := ""
		if err := validate(tc.to, tc.from).ToAggregate(); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%s: %s\nwant %s", tc.name, got, tc.want)
		}
	}
	old, now := request("Foo=Unknown"), metav1.NewTime(time.Unix(1_800_000_000, 0))
	before := metav1.NewTime(now.Add(-time.Hour))
	old.Status.Conditions[0].LastTransitionTime, old.Status.Conditions[0].LastUpdateTime = before, before
	changed := request("Foo=Unknown", "Approved")
	s.Stamp(changed, old, now)
	if c := changed.Status.Conditions; c[0].LastTransitionTime != before || c[0].LastUpdateTime != now || c[1].LastTransitionTime != now || c[1].LastUpdateTime != now {
		t.Errorf("times: %+v", c)
	}
	unknown := request("Foo=Unknown")
	fresh := request("Foo=Unknown")
	s.Stamp(fresh, unknown, now)
	if c := fresh.Status.Conditions; c[0].LastTransitionTime != now {
		t.Errorf("a condition that never had a time: %+v", c)
	}
}

func TestStatusUpdatesKeepApprovalAndDenial(t *testing.T) {
	s := CertificateRequestStrategy()
	approved := func(reason string) *certificatesv1.CertificateSigningRequest {
		return &certificatesv1.CertificateSigningRequest{Status: certificatesv1.CertificateSigningRequestStatus{
			Conditions: []certificatesv1.CertificateSigningRequestCondition{
				{Type: certificatesv1.CertificateApproved, Status: "True", Reason: reason}, {Type: "Foo", Status: "True", Reason: reason}}}}
	}
	changed := approved("forged")
	s.PrepareStatus(changed, approved("asked"))
	if c := changed.Status.Conditions; c[0].Reason != "asked" || c[1].Reason != "forged" {
		t.Errorf("%+v", c)
	}
}

func TestManyUsagesOfACertificateAreNotComparedEachWithEach(t *testing.T) {
	errs := validateCertificateRequest(&certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
		Usages: append(resourcetest.Numbered(func(i int) certificatesv1.KeyUsage { return certificatesv1.KeyUsage(resourcetest.Text(i)) }), "n000000")}})
	if n := resourcetest.OfType(errs, field.ErrorTypeDuplicate); n != 1 {
		t.Errorf("%d duplicates, want 1", n)
	}
}

func TestManyConditionsOfACertificateAreNotComparedEachWithEach(t *testing.T) {
	now, before := metav1.Unix(1, 0), metav1.NewTime(time.Unix(2, 0))
	conditions := func(at metav1.Time) []certificatesv1.CertificateSigningRequestCondition {
		return resourcetest.Numbered(func(i int) certificatesv1.CertificateSigningRequestCondition {
			return certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.RequestConditionType(resourcetest.Text(i)), Status: "True", LastTransitionTime: at}
		})
	}
	is := conditions(metav1.Time{})
	is[0].Status = "False"
	stampConditions(is, conditions(before), now)
	if !is[0].LastTransitionTime.Equal(&now) || !is[resourcetest.LongList-1].LastTransitionTime.Equal(&before) {
		t.Errorf("%v, %v", is[0], is[resourcetest.LongList-1])
	}
}

func TestOnlyTheApprovalSubresourceApproves(t *testing.T) {
	s := CertificateRequestStrategy()
	old := &certificatesv1.CertificateSigningRequest{}
	approved := &certificatesv1.CertificateSigningRequest{Status: certificatesv1.CertificateSigningRequestStatus{
		Certificate: []byte("x"), Conditions: []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved}}}}
	status := approved.DeepCopy()
	s.PrepareStatus(status, old)
	if errs := s.ValidateStatus(status, old); len(errs) == 0 || len(status.Status.Certificate) == 0 {
		t.Errorf("status: %+v %v", status.Status, errs)
	}
	s.Subresource["approval"].Prepare(approved, old)
	if len(approved.Status.Conditions) != 1 || len(approved.Status.Certificate) != 0 {
		t.Errorf("approval: %+v", approved.Status)
	}
}
