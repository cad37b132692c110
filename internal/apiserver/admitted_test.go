package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/knarr-project/knarr/internal/admission"
)

// meddler is a mutating plugin that records what it is shown and may change it.
type meddler struct {
	shown  []string
	change func(a *admission.Attributes)
}

func (*meddler) Name() string                     { return "Meddler" }
func (*meddler) Handles(admission.Operation) bool { return true }

func (m *meddler) Admit(_ context.Context, a *admission.Attributes) error {
	namespace := "-"
	if acc, err := meta.Accessor(a.Object); err == nil {
		namespace = acc.GetNamespace()
	}
	m.shown = append(m.shown, fmt.Sprintf("%s %s/%s %q in %s", a.Operation, a.Resource.Resource, a.Subresource, a.Name, namespace))
	if m.change != nil {
		m.change(a)
	}
	return nil
}

func meddled(t *testing.T) (*Server, *meddler) {
	s, m := newTestServer(t), &meddler{}
	s.Use(Security{Authorizer: allowAll{}, TokenIssuer: brief{}, Admission: admission.NewChain(nil, m)})
	return s, m
}

func TestAdmissionCannotMoveAnObjectToAnotherNamespace(t *testing.T) {
	s, m := meddled(t)
	const path = "/api/v1/namespaces/default/configmaps"
	move := func(to string) func(*admission.Attributes) {
		return func(a *admission.Attributes) {
			if acc, err := meta.Accessor(a.Object); err == nil {
				acc.SetNamespace(to)
			}
		}
	}
	for _, to := range []struct {
		namespace    string
		create, edit int
	}{{"other", http.StatusBadRequest, http.StatusBadRequest}, {"", http.StatusCreated, http.StatusOK}} {
		m.change = move(to.namespace)
		if code, _, body := do(t, s, "POST", path, `{"metadata":{"name":"x"}}`); code != to.create {
			t.Errorf("create in %q: %d %s", to.namespace, code, body)
		}
		m.change = nil
		do(t, s, "POST", path, `{"metadata":{"name":"x"}}`)
		m.change = move(to.namespace)
		if code, _, body := do(t, s, "PUT", path+"/x", `{"metadata":{"name":"x"},"data":{"a":"`+to.namespace+`"}}`); code != to.edit {
			t.Errorf("update to %q: %d %s", to.namespace, code, body)
		}
		m.change = nil
		do(t, s, "DELETE", path+"/x", "")
	}
	if code, _, body := do(t, s, "GET", "/api/v1/configmaps", ""); code != 200 || strings.Contains(body, `"name"`) {
		t.Errorf("managed fields after admission: %s", body)
	}
}

func TestAdmissionSeesTheNamesOfThePath(t *testing.T) {
	s, m := meddled(t)
	const namespaced = "/api/v1/namespaces/default/"
	do(t, s, "POST", namespaced+"configmaps", `{"metadata":{"name":"x"}}`)
	for _, tc := range []struct{ method, path, body, want string }{
		{"DELETE", "configmaps", "", `DELETE configmaps/ "" in -`},
		{"GET", "pods/https:x:80/proxy/y", "", `CONNECT pods/proxy "https:x:80" in -`},
		{"POST", "pods/x/binding", `{"metadata":{"name":"x"},"target":{"name":"n"}}`, `CREATE pods/binding "x" in default`},
		{"POST", "bindings", `{"metadata":{"name":"x"},"target":{"name":"n"}}`, `CREATE bindings/ "x" in default`},
		{"POST", "serviceaccounts/x/token", `{}`, `CREATE serviceaccounts/token "x" in default`},
	} {
		m.shown = nil
		code, _, body := do(t, s, tc.method, namespaced+tc.path, tc.body)
		if len(m.shown) != 1 || m.shown[0] != tc.want {
			t.Errorf("%s %s shows %q: %d %s", tc.method, tc.path, m.shown, code, body)
		}
	}
}

func TestDeleteOptionsMayBeOfTheirOwnGroup(t *testing.T) {
	s := newTestServer(t)
	const path = "/api/v1/namespaces/default/configmaps"
	for body, want := range map[string]int{
		`{"apiVersion":"meta.k8s.io/v1","kind":"DeleteOptions"}`:                            200,
		`{"apiVersion":"meta.k8s.io/v1","kind":"DeleteOptions","gracePeriodSeconds":"x"}`:   400,
		`{"apiVersion":"meta.k8s.io/v1","kind":"DeleteOptions","propagationPolicy":"Nope"}`: 422,
	} {
		do(t, s, "POST", path, `{"metadata":{"name":"x"}}`)
		if code, _, answer := do(t, s, "DELETE", path+"/x", body); code != want {
			t.Errorf("%s: %d %s", body, code, answer)
		}
	}
}

// readable issues a token that can be parsed.
type readable struct{}

func (readable) Issue(ctx context.Context, namespace, name string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	// {"alg":"none"}, {"jti":"id-1"}
	request.Status.Token = "eyJhbGciOiJub25lIn0.eyJqdGkiOiJpZC0xIn0.AA"
	return brief{}.Issue(ctx, namespace, name, request)
}

func TestAuditLogHasTheIssuedTokensID(t *testing.T) {
	s, sink := recorded(t)
	s.Use(Security{Authorizer: allowAll{}, TokenIssuer: readable{}})
	do(t, s, "POST", "/api/v1/namespaces/default/serviceaccounts/a/token", `{}`)
	list := sink.take()
	if len(list) != 2 || list[1].Annotations["authentication.kubernetes.io/issued-credential-id"] != "JTI=id-1" {
		t.Errorf("%+v", list)
	}
	for _, token := range []string{"", "x.y.z", "eyJhbGciOiJub25lIn0.AAAA.AA"} {
		if id := credentialOf(token); id != "" {
			t.Errorf("%q has the id %q", token, id)
		}
	}
}
