package auth

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strings"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// Authenticators asks each in order until one knows the user. If none does, it returns the joined
// errors of those that refused the credentials.
type Authenticators []Authenticator

// Authenticate implements Authenticator.
func (all Authenticators) Authenticate(r *http.Request) (User, bool, error) {
	var errs []error
	for _, a := range all {
		user, ok, err := a.Authenticate(r)
		if ok && err == nil {
			return user, true, nil
		}
		errs = append(errs, err)
	}
	return User{}, false, errors.Join(errs...)
}

// Requests authenticates the requests of an API server. It asks the authenticators; a request
// without any credentials becomes anonymous, if that is allowed. It adds system:authenticated to
// every authenticated user.
type Requests struct {
	Authenticators Authenticators
	Anonymous      Anonymity
	// ProxyHeaders are removed from every request, since extension servers trust these headers when
	// they come from this server.
	ProxyHeaders FrontProxyHeaders
}

// Anonymity tells which requests need no credentials.
type Anonymity struct {
	Allowed bool
	Paths   []string // restricts Allowed to these paths, if there are any
}

func (a *Anonymity) allows(path string) bool {
	return a.Allowed && (len(a.Paths) == 0 || slices.Contains(a.Paths, path))
}

// Authenticate implements Authenticator.
func (a Requests) Authenticate(r *http.Request) (User, bool, error) {
	user, ok, err := a.Authenticators.Authenticate(r)
	a.ProxyHeaders.remove(r.Header)
	_, _, spaced := bearer(r.Header)
	switch {
	case err != nil:
		return User{}, false, err
	case ok:
		return warned(WithAuthenticatedGroup(user), spaced), true, nil
	case a.Anonymous.allows(r.URL.Path):
		return warned(Anonymous(), spaced), true, nil
	}
	return User{}, false, nil
}

// warned adds a warning for a user whose token was ignored.
func warned(user User, spaced bool) User {
	if !spaced {
		return user
	}
	remarks := Remarks{}
	if user.Remarks != nil {
		remarks = *user.Remarks
	}
	remarks.Warnings = append(slices.Clip(remarks.Warnings), "the provided Authorization header contains extra space before the bearer token, and is ignored")
	user.Remarks = &remarks
	return user
}

// Anonymous returns the user of requests without credentials.
func Anonymous() User { return User{Name: UserAnonymous, Groups: []string{GroupUnauthenticated}} }

// WithAuthenticatedGroup adds system:authenticated to a user other than the anonymous one.
func WithAuthenticatedGroup(user User) User {
	if user.Name == UserAnonymous || slices.Contains(user.Groups, GroupAuthenticated) || slices.Contains(user.Groups, GroupUnauthenticated) {
		return user
	}
	user.Groups = append(slices.Clip(user.Groups), GroupAuthenticated)
	return user
}

// TokenAuthenticator finds the user of a bearer token. accepted lists the requested audiences that
// the token is meant for; a token without audiences is meant for the API server. ok is false for a
// token of another kind.
type TokenAuthenticator interface {
	AuthenticateToken(ctx context.Context, token string, audiences []string) (user User, accepted []string, ok bool, err error)
}

// TokenAuthenticators asks each in order, like Authenticators.
type TokenAuthenticators []TokenAuthenticator

// AuthenticateToken implements TokenAuthenticator.
func (all TokenAuthenticators) AuthenticateToken(ctx context.Context, token string, audiences []string) (User, []string, bool, error) {
	var errs []error
	for _, a := range all {
		user, accepted, ok, err := a.AuthenticateToken(ctx, token, audiences)
		if ok && err == nil {
			return user, accepted, true, nil
		}
		errs = append(errs, err)
	}
	return User{}, nil, false, utilerrors.NewAggregate(errs)
}

// ErrBadToken refuses a bearer token that no authenticator knows.
var ErrBadToken = errors.New("invalid bearer token")

// Bearer authenticates the token in the Authorization header, or in the WebSocket subprotocol that
// browsers use instead.
type Bearer struct {
	Tokens TokenAuthenticator
	// Audiences are the API server's own.
	Audiences []string
}

// Authenticate implements Authenticator. It removes the token from the request, so that no later
// stage logs or forwards it.
func (b Bearer) Authenticate(r *http.Request) (User, bool, error) {
	token := bearerToken(r)
	if token == "" {
		return User{}, false, nil
	}
	user, _, ok, err := b.Tokens.AuthenticateToken(r.Context(), token, b.Audiences)
	if ok && err == nil {
		r.Header.Del("Authorization")
		return user, true, nil
	}
	return User{}, false, badToken(err)
}

// badToken returns the error for a refused token, with the errors of the token authenticators.
func badToken(err error) error { return utilerrors.NewAggregate([]error{ErrBadToken, err}) }

// bearer reads the Authorization header. The token is the text between the first two spaces. ok
// reports a bearer scheme; spaced reports a token behind more than one space, which is ignored.
func bearer(h http.Header) (token string, ok, spaced bool) {
	parts := strings.SplitN(strings.TrimSpace(h.Get("Authorization")), " ", 3)
	if len(parts) < 2 || !strings.EqualFold(parts[0], "bearer") {
		return "", false, false
	}
	return parts[1], true, parts[1] == "" && len(parts) == 3
}

const webSocketTokenPrefix = "base64url.bearer.authorization.k8s.io."

func bearerToken(r *http.Request) string {
	token, ok, _ := bearer(r.Header)
	if ok {
		return token
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return ""
	}
	var others []string
	for _, header := range r.Header.Values("Sec-WebSocket-Protocol") {
		for protocol := range strings.SplitSeq(header, ",") {
			protocol = strings.TrimSpace(protocol)
			encoded, found := strings.CutPrefix(protocol, webSocketTokenPrefix)
			if !found {
				others = append(others, protocol)
				continue
			}
			if raw, err := base64.RawURLEncoding.DecodeString(encoded); err == nil {
				token = string(raw)
			}
		}
	}
	// Another protocol must be offered beside the token, since a reply with the token as protocol
	// would leak it.
	if token == "" || len(others) == 0 {
		return ""
	}
	r.Header.Set("Sec-WebSocket-Protocol", strings.Join(others, ","))
	return token
}

// CommonAudiences returns the requested audiences that are the server's own. Credentials without an
// audience are meant for these.
func CommonAudiences(asked, own []string) []string {
	var common []string
	for _, a := range asked {
		if slices.Contains(own, a) {
			common = append(common, a)
		}
	}
	return common
}
