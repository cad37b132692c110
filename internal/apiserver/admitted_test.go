package apiserver

import (
	"context"
	"fmt"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/knarr-project/knarr/internal/admission"
)

// recordingPlugin is a mutating plugin that records each object and may change it.
type recordingPlugin struct {
	shown  []string
	change func(a *admission.Attributes)
}

func (*recordingPlugin) Name() string { return "Recorder" }

func (*recordingPlugin) Handles(admission.Operation) bool { return true }

func (m *recordingPlugin) Admit(_ context.Context, a *admission.Attributes) error {
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

func newRecordingServer(t *testing.T) (*Server, *recordingPlugin) {
	s, m := newTestServer(t), &recordingPlugin{}
	s.Use(Security{Authorizer: allowAll{}, TokenIssuer: shortTokenIssuer{}, Admission: admission.NewChain(nil, m)})
	return s, m
}

// readableTokenIssuer issues a token that can be parsed.
type readableTokenIssuer struct{}

func (readableTokenIssuer) Issue(ctx context.Context, namespace, name string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	// {"alg":"none"}, {"jti":"id-1"}
	request.Status.Token = "eyJhbGciOiJub25lIn0.eyJqdGkiOiJpZC0xIn0.AA"
	return shortTokenIssuer{}.Issue(ctx, namespace, name, request)
}
