package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/auth/jws"
)

// Errors of a log-in.
var (
	ErrNoIssuer = errors.New("oidc: no such issuer is configured")
	errNonce    = errors.New("oidc: the token is of another log-in: its nonce differs")
)

// maxAnswer limits the answer of a token endpoint, in bytes.
const maxAnswer = 256 << 10

// Login is one log-in by the authorization code flow with PKCE (OpenID Connect Core 1.0, RFC 7636).
type Login struct {
	// Issuer is the URL of a configured issuer. Its first audience is the client ID.
	Issuer string
	// Redirect is the URL that the issuer sends the browser back to.
	Redirect string
	// State, Nonce and Verifier are random texts of this log-in. Challenge is the verifier's
	// SHA-256 in base64url.
	State, Nonce, Verifier, Challenge string
	// Secret is the client's; "" is a public client.
	Secret string
	Scopes []string
}

// endpoints are the parts of a discovery document that a log-in needs.
type endpoints struct {
	Issuer        string   `json:"issuer"`
	Authorization string   `json:"authorization_endpoint"`
	Token         string   `json:"token_endpoint"`
	Methods       []string `json:"token_endpoint_auth_methods_supported"`
}

// Issuers returns the URLs of the configured issuers.
func (t *Tokens) Issuers() []string {
	var urls []string
	for _, a := range *t.list.Load() {
		urls = append(urls, a.config.Issuer.URL)
	}
	return urls
}

func (t *Tokens) issuer(url string) (*authenticator, error) {
	list := *t.list.Load()
	at := slices.IndexFunc(list, func(a *authenticator) bool { return a.config.Issuer.URL == url })
	if at < 0 || len(list[at].config.Issuer.Audiences) == 0 {
		return nil, ErrNoIssuer
	}
	return list[at], nil
}

// Begin returns the URL of the issuer's page at which the user logs in.
func (t *Tokens) Begin(ctx context.Context, l *Login) (string, error) {
	a, err := t.issuer(l.Issuer)
	if err != nil {
		return "", err
	}
	at, err := a.endpoints(ctx)
	if err != nil {
		return "", err
	}
	u, err := url.Parse(at.Authorization)
	if err != nil {
		return "", fmt.Errorf("oidc: authorization_endpoint: %w", err)
	}
	q := u.Query()
	for name, value := range map[string]string{
		"response_type": "code", "client_id": a.config.Issuer.Audiences[0], "redirect_uri": l.Redirect, "scope": strings.Join(l.Scopes, " "),
		"state": l.State, "nonce": l.Nonce, "code_challenge": l.Challenge, "code_challenge_method": "S256",
	} {
		q.Set(name, value)
	}
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// Finish exchanges the code for an ID token, and returns the token's user. The token is verified
// like one that a client sends.
func (t *Tokens) Finish(ctx context.Context, l *Login, code string) (auth.User, error) {
	a, err := t.issuer(l.Issuer)
	if err != nil {
		return auth.User{}, err
	}
	token, err := a.exchange(ctx, l, code)
	if err != nil {
		return auth.User{}, err
	}
	parts, ok := jws.Split(token)
	if !ok || issuerOf(&parts) != l.Issuer {
		return auth.User{}, errors.New("oidc: the issuer sent no ID token of its own")
	}
	user, err := a.authenticate(ctx, &parts)
	if err != nil {
		return auth.User{}, err
	}
	var own struct {
		Nonce string `json:"nonce"`
	}
	if err := json.Unmarshal(parts.Payload, &own); err != nil || own.Nonce != l.Nonce {
		return auth.User{}, errNonce
	}
	return user, nil
}

// endpoints fetches the discovery document.
func (a *authenticator) endpoints(ctx context.Context) (at endpoints, err error) {
	data, err := fetch(ctx, a.provider.http, a.provider.discovery, "")
	if err != nil {
		return at, fmt.Errorf("oidc: %w", err)
	}
	switch err := json.Unmarshal(data, &at); {
	case err != nil:
		return at, fmt.Errorf("oidc: failed to decode provider discovery object: %w", err)
	case at.Issuer != a.config.Issuer.URL:
		return at, fmt.Errorf("oidc: the discovery document is of the issuer %q, not of %q", at.Issuer, a.config.Issuer.URL)
	case !strings.HasPrefix(at.Authorization, "https://") || !strings.HasPrefix(at.Token, "https://"):
		return at, errors.New("oidc: the issuer's authorization_endpoint and token_endpoint must be https URLs")
	}
	return at, nil
}

// exchange returns the ID token for a code.
func (a *authenticator) exchange(ctx context.Context, l *Login, code string) (string, error) {
	at, err := a.endpoints(ctx)
	if err != nil {
		return "", err
	}
	client := a.config.Issuer.Audiences[0]
	form := url.Values{"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {l.Redirect}, "code_verifier": {l.Verifier}}
	basic := l.Secret != "" && (len(at.Methods) == 0 || slices.Contains(at.Methods, "client_secret_basic"))
	if !basic {
		form.Set("client_id", client)
		if l.Secret != "" {
			form.Set("client_secret", l.Secret)
		}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at.Token, strings.NewReader(form.Encode()))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "application/json")
	if basic {
		r.SetBasicAuth(url.QueryEscape(client), url.QueryEscape(l.Secret))
	}
	answer, err := a.provider.http.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return "", err
	}
	var got struct {
		IDToken     string `json:"id_token"`
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	err = json.Unmarshal(data, &got)
	switch {
	case answer.StatusCode != http.StatusOK && got.Error != "":
		return "", fmt.Errorf("oidc: the issuer refuses the code: %s %s", got.Error, got.Description)
	case answer.StatusCode != http.StatusOK:
		return "", &statusError{at.Token, answer.Status}
	case err != nil || got.IDToken == "":
		return "", errors.New("oidc: the issuer's answer has no id_token")
	}
	return got.IDToken, nil
}
