package apiserver

import (
	"context"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/knarr-project/knarr/internal/auth"
)

func TestAuditLogHasTheIssuedTokensID(t *testing.T) {
	s, sink := recorded(t)
	s.Use(Security{Authorizer: allowAll{}, TokenIssuer: readableTokenIssuer{}})
	do(t, s, "POST", "/api/v1/namespaces/default/serviceaccounts/a/token", `{}`)
	list := sink.take()
	if len(list) != 2 || list[1].Annotations["authentication.kubernetes.io/issued-credential-id"] != "JTI=id-1" {
		t.Errorf("%+v", list)
	}
}

func TestTokenDocumentsAreReadOnlyAndListedIfPresent(t *testing.T) {
	s := newTestServer(t)
	const keys = "/openid/v1/jwks"
	if code, _, body := do(t, s, "GET", keys, ""); code != 404 {
		t.Errorf("without an issuer: %d %s", code, body)
	}
	if _, _, body := do(t, s, "GET", "/", ""); strings.Contains(body, keys) {
		t.Errorf("without an issuer: %s", body)
	}
	s.Use(Security{Authorizer: allowAll{}, Paths: map[string]http.Handler{keys: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"keys":[]}`))
	})}})
	if code, _, body := do(t, s, "GET", keys, ""); code != 200 || body != `{"keys":[]}` {
		t.Errorf("%d %s", code, body)
	}
	if _, _, body := do(t, s, "GET", "/", ""); !strings.Contains(body, keys) {
		t.Errorf("with an issuer: %s", body)
	}
	refused(t, s, "POST PUT PATCH DELETE HEAD", keys, 405, noMethod)
	refused(t, s, "GET", keys, 406, "406: Not Acceptable\n\nAvailable representations: application/jwk-set+json", "Accept", "application/json")
}

// shortTokenIssuer issues tokens of ten minutes, whatever is requested.
type shortTokenIssuer struct{}

func (shortTokenIssuer) Issue(_ context.Context, _, _ string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	request.Spec.ExpirationSeconds, request.UID = new(int64(600)), "of-the-account"
	return request, nil
}

func TestShortenedTokenExpirationWarns(t *testing.T) {
	s := newTestServer(t)
	s.Use(Security{Authorizer: allowAll{}, TokenIssuer: shortTokenIssuer{}})
	for asked, warning := range map[string]string{
		// The request has the default.
		`{}`:                                 `299 - "requested expiration of 3600 seconds shortened to 600 seconds"`,
		`{"spec":{"expirationSeconds":600}}`: "",
		`{"spec":{"expirationSeconds":601}}`: `299 - "requested expiration of 601 seconds shortened to 600 seconds"`,
	} {
		code, header, body := do(t, s, "POST", "/api/v1/namespaces/default/serviceaccounts/a/token", asked)
		if code != 201 || header.Get("Warning") != warning || !strings.Contains(string(body), `"uid":"of-the-account"`) {
			t.Errorf("%s: %d %q %s", asked, code, header.Get("Warning"), body)
		}
	}
}

func TestForbiddenAnswersHaveNosniff(t *testing.T) {
	s := newTestServer(t)
	s.Use(Security{Authorizer: auth.Authorizers{}})
	for path, sniff := range map[string]string{"/api/v1/nodes": "nosniff", "/metrics": "nosniff"} {
		if code, header, _ := do(t, s, "GET", path, ""); code != 403 || header.Get("X-Content-Type-Options") != sniff {
			t.Errorf("%s: %d %v", path, code, header)
		}
	}
}

func TestScaleMayOmitItsNamespace(t *testing.T) {
	s := newTestServer(t)
	const sets = "/apis/apps/v1/namespaces/default/replicasets"
	if code, _, body := do(t, s, "POST", sets, `{"metadata":{"name":"x"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`); code != 201 {
		t.Fatalf("%d %s", code, body)
	}
	for body, want := range map[string]int{`{"metadata":{"name":"x"},"spec":{"replicas":2}}`: 200, `{"metadata":{"name":"x","namespace":"other"},"spec":{"replicas":2}}`: 400} {
		if code, _, answer := do(t, s, "PUT", sets+"/x/scale", body); code != want {
			t.Errorf("%s: %d %s", body, code, answer)
		}
	}
}
