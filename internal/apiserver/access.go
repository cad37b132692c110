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

// access delegates to the server's current Security, which Use may replace at any time.
type access struct{ current atomic.Pointer[Security] }

// authenticate returns the user of a request. Without an authenticator, every user is anonymous.
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

// authorize returns nil if the request is allowed, else the Forbidden error for the user.
func (a *access) authorize(ctx context.Context, attributes auth.Attributes) error {
	return auth.Check(ctx, a.Authorizer(), attributes)
}

// Authorizer returns an authorizer that allows nothing if Security has none.
func (a *access) Authorizer() auth.Authorizer {
	if z := a.current.Load().Authorizer; z != nil {
		return z
	}
	return auth.Authorizers{}
}

// Admission returns the chain of admission plugins.
func (a *access) Admission() admission.Chain { return a.current.Load().Admission }

// Reviews returns the parts of Security that answer reviews and token requests.
func (a *access) Reviews() verb.Reviews {
	s := a.current.Load()
	return verb.Reviews{Issuer: s.TokenIssuer, Tokens: s.Tokens, Audiences: s.Audiences, Rules: s.Rules}
}

// path returns the handler of a path that Security serves besides the API.
func (a *access) path(path string) (http.Handler, bool) {
	h, ok := a.current.Load().Paths[path]
	return h, ok
}
