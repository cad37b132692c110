package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	apiserverconfig "k8s.io/apiserver/pkg/apis/apiserver"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/auth/jws"
)

// authenticator authenticates the tokens of one issuer.
type authenticator struct {
	config     apiserverconfig.JWTAuthenticator
	algorithms []string // sorted
	mapper     authenticationcel.CELMapper
	provider   *provider
	log        *slog.Logger
	now        func() time.Time
	// end stops the requests for the issuer's discovery document; nil if the issuer had answered
	// before.
	end     context.CancelFunc
	metrics *issuerMetrics

	mu sync.Mutex // guards sources
	// sources holds the providers of other issuers that sign distributed claims.
	sources map[string]*provider
}

// maxSources limits the issuers that tokens may name as sources of their claims.
const maxSources = 32

// authenticate returns the user of a token of this issuer, and records the duration.
func (a *authenticator) authenticate(ctx context.Context, t *jws.Parts) (auth.User, error) {
	since := time.Now()
	user, err := a.userOf(ctx, t)
	a.metrics.authenticated(time.Since(since), err)
	return user, err
}

func (a *authenticator) userOf(ctx context.Context, t *jws.Parts) (auth.User, error) {
	if err := a.provider.ready(); err != nil {
		return auth.User{}, err
	}
	token, err := a.verify(ctx, a.provider, t)
	if err != nil {
		return auth.User{}, fmt.Errorf("oidc: verify token: %w", err)
	}
	c := claims{}
	if err := json.Unmarshal(t.Payload, &c); err != nil {
		return auth.User{}, fmt.Errorf("oidc: parse claims: %w", err)
	}
	if err := a.expand(ctx, token, c); err != nil {
		return auth.User{}, fmt.Errorf("oidc: could not expand distributed claims: %w", err)
	}
	m := mapping{config: &a.config, mapper: &a.mapper, claims: c}
	return m.user(ctx)
}

// verify checks everything about a token except the mapping of its claims.
func (a *authenticator) verify(ctx context.Context, p *provider, t *jws.Parts) (*idToken, error) {
	var token idToken
	if err := json.Unmarshal(t.Payload, &token); err != nil {
		return nil, fmt.Errorf("oidc: failed to unmarshal claims: %w", err)
	}
	if err := token.check(a.config.Issuer.Audiences, a.now()); err != nil {
		return nil, err
	}
	if !slices.Contains(a.algorithms, t.Header.Algorithm) {
		return nil, fmt.Errorf("oidc: id token signed with unsupported algorithm, expected %q got %q", a.algorithms, t.Header.Algorithm)
	}
	return &token, p.verify(ctx, t)
}

// expand fetches the groups claim from the source that the token names. Other distributed claims
// are ignored, as upstream.
func (a *authenticator) expand(ctx context.Context, token *idToken, c claims) error {
	name := a.config.ClaimMappings.Groups.Claim
	where, ok := token.ClaimNames[name]
	if name == "" || !ok || c.has(name) {
		return nil
	}
	s := token.ClaimSources[where]
	if s.Endpoint == "" {
		return nil // an aggregated claim, which is not supported
	}
	value, err := a.distributed(ctx, name, s)
	if err != nil {
		return err
	}
	c[name] = value
	return nil
}

func (a *authenticator) distributed(ctx context.Context, name string, s source) (json.RawMessage, error) {
	text, err := fetch(ctx, a.provider.http, s.Endpoint, s.AccessToken)
	var answered *statusError
	switch {
	case errors.As(err, &answered):
		return nil, fmt.Errorf("while getting distributed claim %q: error while getting distributed claim JWT: %s", name, answered.status)
	case err != nil:
		return nil, fmt.Errorf("while getting distributed claim %q: %w", name, err)
	}
	t, ok := jws.Split(string(text))
	if !ok {
		return nil, fmt.Errorf("getting untrusted issuer from endpoint %v failed for claim %q: malformed token", s.Endpoint, name)
	}
	issuer := issuerOf(&t)
	p, err := a.source(ctx, issuer)
	if err != nil {
		return nil, fmt.Errorf("verifying untrusted issuer %v failed: %w", issuer, err)
	}
	if _, err := a.verify(ctx, p, &t); err != nil {
		return nil, fmt.Errorf("verify distributed claim token: %w", err)
	}
	c := claims{}
	if err := json.Unmarshal(t.Payload, &c); err != nil {
		return nil, fmt.Errorf("could not parse distributed claims for claim %v: %w", name, err)
	}
	value, ok := c[name]
	if !ok {
		return nil, fmt.Errorf("jwt returned by distributed claim endpoint %q did not contain claim: %v", s.Endpoint, name)
	}
	return value, nil
}

// source returns the provider of another issuer.
func (a *authenticator) source(ctx context.Context, issuer string) (*provider, error) {
	if issuer == a.config.Issuer.URL {
		return a.provider, nil
	}
	a.mu.Lock()
	p, ok := a.sources[issuer]
	if !ok {
		if len(a.sources) >= maxSources {
			a.mu.Unlock()
			return nil, errors.New("too many issuers of distributed claims")
		}
		p = newProvider(issuer, "", a.provider.http, a.log, a.now, nil)
		a.sources[issuer] = p
	}
	a.mu.Unlock()
	if p.ready() == nil {
		return p, nil
	}
	err := p.discover(ctx)
	if err != nil {
		// Any token may name an invalid issuer, which must not take the place of another one.
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.sources[issuer] == p && p.ready() != nil {
			delete(a.sources, issuer)
		}
	}
	return p, err
}

// issuerOf returns the unverified issuer in the token, or "".
func issuerOf(t *jws.Parts) string {
	var named struct {
		Issuer string `json:"iss"`
	}
	if err := json.Unmarshal(t.Payload, &named); err != nil {
		return ""
	}
	return named.Issuer
}

// allAlgorithms lists the algorithms that tokens may be signed with unless a flag restricts them.
// Sorted.
var allAlgorithms = []string{"ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512"}
