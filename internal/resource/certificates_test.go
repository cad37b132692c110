package resource

import (
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The wanted texts are upstream's.
func TestVerdictsAboutCertificateRequests(t *testing.T) {
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
	s := certificateRequestStrategy()
	status, approval := s.ValidateStatus, s.Subresource["approval"].Validate
	for _, tc := range []struct {
		name     string
		approval bool
		from, to *certificatesv1.CertificateSigningRequest
		want     string
	}{
		{"an approval", true, request(), request("Approved"), ""},
		{"an approval in the status", false, request(), request("Approved"), `status.conditions: Forbidden: updates may not add a condition of type "Approved"`},
		{"an approval that stays in the status", false, request("Approved"), request("Approved", "Failed"), ""},
		{"an approval that says nothing", true, request(), request("Approved="), `status.conditions[0].status: Required value`},
		{"an approval that is none", true, request(), request("Approved=False"), `status.conditions[0].status: Unsupported value: "False": supported values: "True"`},
		{"approved and denied", true, request(), request("Approved", "Denied"), `status.conditions: Invalid value: "Denied": Approved and Denied conditions are mutually exclusive`},
		{"denied and approved", true, request(), request("Denied", "Approved"), `status.conditions: Invalid value: "Approved": Approved and Denied conditions are mutually exclusive`},
		{"a denial taken back", true, request("Denied"), request(), `status.conditions: Forbidden: updates may not remove a condition of type "Denied"`},
		{"an approval lost in the status", false, request("Approved"), request(), `status.conditions: Forbidden: updates may not remove a condition of type "Approved"`},
		{"a condition of another kind", true, request(), request("Foo=Unknown"), ""},
		{"a condition without kind", true, request(), request("=Maybe"), `[status.conditions[0].type: Required value, status.conditions[0].status: Unsupported value: "Maybe": supported values: "False", "True", "Unknown"]`},
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

func TestAVerdictStaysWhatItWasInStatusUpdates(t *testing.T) {
	s := certificateRequestStrategy()
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
