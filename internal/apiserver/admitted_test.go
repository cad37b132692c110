package apiserver

import (
	"context"
	"fmt"
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

func (*meddler) Name() string { return "Meddler" }

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

// readable issues a token that can be parsed.
type readable struct{}

func (readable) Issue(ctx context.Context, namespace, name string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	// {"alg":"none"}, {"jti":"id-1"}
	request.Status.Token = "eyJhbGciOiJub25lIn0.eyJqdGkiOiJpZC0xIn0.AA"
	return brief{}.Issue(ctx, namespace, name, request)
}
