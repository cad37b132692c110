package apiserver

import (
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/auth"
)

// Errors that admission finds in a claim are reported together with the other field errors.
func TestErrorsOfAdminAccessClaimsAreReportedTogether(t *testing.T) {
	s := newTestServer(t)
	chain, err := admission.Default(t.Context(), s.Client(auth.Component("tester", auth.GroupMasters)), admission.Config{Disable: []string{"ServiceAccount"}, Authorizer: auth.Masters{}})
	if err != nil {
		t.Fatal(err)
	}
	s.Use(Security{Authorizer: allowAll{}, Admission: chain})
	if code, _, body := do(t, s, "POST", "/api/v1/namespaces", `{"metadata":{"name":"ns"}}`); code != 201 {
		t.Fatalf("%d %s", code, body)
	}
	const claims = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims"
	const refused = "spec.devices.requests[0].adminAccess: Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label"
	for _, a := range []answerCase{
		{"an otherwise valid claim", "POST", claims, `{"metadata":{"name":"a"},"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c","adminAccess":true}}]}}}`, nil, 422, "is invalid: " + refused, "requests[0].name", ""},
		{"a claim with another error", "POST", claims, `{"metadata":{"name":"a"},"spec":{"devices":{"requests":[{"name":"R","exactly":{"deviceClassName":"c","adminAccess":true}}]}}}`, nil, 422, "is invalid: [" + refused, "", ""},
	} {
		a.check(t, s)
	}
}

// allRules allows all requests.
type allRules struct{}

func (allRules) ReviewRules(_ auth.User, review *authorizationv1.SelfSubjectRulesReview) error {
	review.Status.ResourceRules = []authorizationv1.ResourceRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}}
	return nil
}
