package apiserver

import (
	"context"
	"net/http"
	"sync/atomic"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/apiserver/verb"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/auth"
)

// access asks the server's Security. Security may be replaced while the server runs.
type access struct{ current atomic.Pointer[Security] }

// authenticate finds out which user makes a request. Without an authenticator, all are anonymous.
func (a *access) authenticate(r *http.Request) (auth.User, error) {
	authenticator := a.current.Load().Authenticator
	if authenticator == nil {
		return auth.Anonymous(), nil
	}
	user, ok, err := authenticator.Authenticate(r)
	if err != nil {
		return auth.User{}, err
	}
	if !ok {
		return auth.User{}, wire.ErrNoCredentials
	}
	return user, nil
}

// authorize returns the Forbidden error that a user sees when the authorizer refuses.
func (a *access) authorize(ctx context.Context, attributes auth.Attributes) error {
	return auth.Check(ctx, a.Authorizer(), attributes)
}

// Authorizer allows nothing until Security has an authorizer.
func (a *access) Authorizer() auth.Authorizer {
	if z := a.current.Load().Authorizer; z != nil {
		return z
	}
	return auth.Authorizers{}
}

// Admission is the chain of admission plugins.
func (a *access) Admission() admission.Chain { return a.current.Load().Admission }

// Reviews are the parts of Security that answer posted reviews and token requests.
func (a *access) Reviews() verb.Reviews {
	s := a.current.Load()
	return verb.Reviews{Issuer: s.TokenIssuer, Tokens: s.Tokens, Audiences: s.Audiences, Rules: s.Rules}
}

// path is the handler of a path beside the API that Security serves.
func (a *access) path(path string) (http.Handler, bool) {
	h, ok := a.current.Load().Paths[path]
	return h, ok
}
