package session

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/auth/oidc"
)

// LoginPath is the prefix of the paths by which users log in at an OpenID Connect issuer. They
// need no authentication.
const LoginPath = page + "login/"

const (
	// loginCookie carries a log-in in progress, sealed. Lax, since the issuer's page leads back.
	loginCookie = "__Host-knarr-ui-login"
	// loginTime limits a log-in at the issuer.
	loginTime = 10 * time.Minute
	// exchangeTime limits the requests to the issuer.
	exchangeTime = 15 * time.Second
	// maxExchanges limits the exchanges with issuers in progress.
	maxExchanges = 16
	maxCode      = 4096 // bytes of an issuer's code
	maxSecret    = 4096 // bytes of the client's secret
)

// Issuers log users in. oidc.Tokens implements it.
type Issuers interface {
	// Issuers returns the URLs of the configured issuers.
	Issuers() []string
	// Begin returns the URL at which the user logs in.
	Begin(ctx context.Context, l *oidc.Login) (string, error)
	// Finish returns the user for a code of the issuer.
	Finish(ctx context.Context, l *oidc.Login, code string) (auth.User, error)
}

// Login serves LoginPath: the browser goes to the issuer and comes back with a code, which the
// server exchanges for an ID token. The browser never sees the token; it gets a link.
type Login struct {
	Sessions *Sessions
	Issuers  Issuers
	// SecretFile has the client's secret; "" is a public client.
	SecretFile string
	Scopes     []string
	Log        *slog.Logger

	seal      cipher.AEAD
	exchanges chan struct{}
}

// inProgress is a log-in that the user has begun.
type inProgress struct {
	Issuer, State, Nonce, Verifier string
	Until                          time.Time
}

// Handler returns the handler of LoginPath.
func (l *Login) Handler() http.Handler {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	block, err := aes.NewCipher(key)
	if err == nil {
		l.seal, err = cipher.NewGCM(block)
	}
	if err != nil {
		panic(err) // the key's size is right
	}
	l.exchanges = make(chan struct{}, maxExchanges)
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+LoginPath+"issuers", l.serveIssuers)
	mux.HandleFunc("GET "+LoginPath+"begin", l.serveBegin)
	mux.HandleFunc("GET "+LoginPath+"return", l.serveReturn)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cache-Control", "no-store")
		mux.ServeHTTP(w, r)
	})
}

// IssuerList is the answer of LoginPath with issuers.
type IssuerList struct {
	Issuers []string `json:"issuers"`
}

func (l *Login) serveIssuers(w http.ResponseWriter, _ *http.Request) {
	respond(w, IssuerList{Issuers: append([]string{}, l.Issuers.Issuers()...)})
}

// serveBegin sends the browser to the issuer.
func (l *Login) serveBegin(w http.ResponseWriter, r *http.Request) {
	p := inProgress{Issuer: r.URL.Query().Get("issuer"), Until: l.Sessions.now().Add(loginTime)}
	p.State, _ = secret()
	p.Nonce, _ = secret()
	p.Verifier, _ = secret()
	target, err := l.exchange(r.Context(), func(ctx context.Context) (string, error) {
		login, err := l.login(r, &p)
		if err != nil {
			return "", err
		}
		return l.Issuers.Begin(ctx, login)
	})
	var cookie string
	if err == nil {
		cookie, err = l.close(&p)
	}
	if err != nil {
		l.fail(w, r, "log-in cannot begin", err)
		return
	}
	http.SetCookie(w, l.cookie(cookie, int(loginTime.Seconds())))
	http.Redirect(w, r, target, http.StatusSeeOther)
}

// serveReturn takes the issuer's code, and sends the browser to the page with a link.
func (l *Login) serveReturn(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	p, err := l.open(r)
	http.SetCookie(w, l.cookie("", -1))
	switch code := q.Get("code"); {
	case err != nil:
	case !l.Sessions.now().Before(p.Until), subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(p.State)) != 1:
		err = ErrBadLogin
	case q.Has("iss") && q.Get("iss") != p.Issuer: // RFC 9207
		err = ErrBadLogin
	case q.Get("error") != "":
		err = errors.New("the issuer refuses: " + clip(q.Get("error")+" "+q.Get("error_description")))
	case code == "" || len(code) > maxCode:
		err = ErrBadLogin
	}
	if err != nil {
		l.fail(w, r, "log-in failed", err)
		return
	}
	link, err := l.exchange(r.Context(), func(ctx context.Context) (string, error) {
		login, err := l.login(r, p)
		if err != nil {
			return "", err
		}
		user, err := l.Issuers.Finish(ctx, login, q.Get("code"))
		if err != nil {
			return "", err
		}
		return l.Sessions.Link(user, time.Time{})
	})
	if err != nil {
		l.fail(w, r, "log-in failed", err)
		return
	}
	http.Redirect(w, r, page+"#code="+link, http.StatusSeeOther)
}

// ErrBadLogin is the error of a return that belongs to no log-in of this browser.
var ErrBadLogin = errors.New("this log-in is unknown or older than ten minutes: begin again")

// exchange calls fn within the limits for requests to issuers.
func (l *Login) exchange(ctx context.Context, fn func(context.Context) (string, error)) (string, error) {
	select {
	case l.exchanges <- struct{}{}:
		defer func() { <-l.exchanges }()
	default:
		return "", ErrFull
	}
	ctx, cancel := context.WithTimeout(ctx, exchangeTime)
	defer cancel()
	return fn(ctx)
}

// login returns the log-in for the issuer's package.
func (l *Login) login(r *http.Request, p *inProgress) (*oidc.Login, error) {
	sum := sha256.Sum256([]byte(p.Verifier))
	out := &oidc.Login{
		Issuer: p.Issuer, Redirect: "https://" + r.Host + LoginPath + "return", State: p.State, Nonce: p.Nonce, Verifier: p.Verifier,
		Challenge: base64.RawURLEncoding.EncodeToString(sum[:]), Scopes: l.Scopes,
	}
	if l.SecretFile != "" {
		data, err := os.ReadFile(l.SecretFile)
		if err != nil || len(data) > maxSecret {
			l.Log.Error("the secret for log-ins to the page cannot be read", "file", l.SecretFile, "err", err)
			return nil, errors.New("the server cannot read its client secret")
		}
		out.Secret = strings.TrimSpace(string(data))
	}
	return out, nil
}

// fail leads back to the page, which shows the reason.
func (l *Login) fail(w http.ResponseWriter, r *http.Request, what string, err error) {
	l.Log.Info(what, "component", "ui", "err", err)
	http.Redirect(w, r, page+"#failed="+url.PathEscape(clip(err.Error())), http.StatusSeeOther)
}

// clip limits a text that an issuer may have written.
func clip(text string) string {
	return string([]rune(text)[:min(300, len([]rune(text)))])
}

func (l *Login) cookie(value string, seconds int) *http.Cookie {
	return &http.Cookie{Name: loginCookie, Value: value, Path: "/", MaxAge: seconds, Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode}
}

// close seals a log-in for the cookie, so that the server keeps nothing.
func (l *Login) close(p *inProgress) (string, error) {
	plain, err := json.Marshal(p)
	if err != nil {
		return "", err
	}
	nonce := make([]byte, l.seal.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return base64.RawURLEncoding.EncodeToString(l.seal.Seal(nonce, nonce, plain, []byte(loginCookie))), nil
}

// open returns the log-in of the request's cookie.
func (l *Login) open(r *http.Request) (*inProgress, error) {
	cookie, err := r.Cookie(loginCookie)
	if err != nil {
		return nil, ErrBadLogin
	}
	data, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil || len(data) < l.seal.NonceSize() {
		return nil, ErrBadLogin
	}
	size := l.seal.NonceSize()
	plain, err := l.seal.Open(nil, data[:size], data[size:], []byte(loginCookie))
	if err != nil {
		return nil, ErrBadLogin
	}
	p := &inProgress{}
	return p, json.Unmarshal(plain, p)
}
