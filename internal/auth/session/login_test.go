package session

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/auth/oidc"
)

// fakeIssuer accepts the code "good" with the verifier of the log-in that it has seen last.
type fakeIssuer struct {
	last oidc.Login
	user string
}

func (f *fakeIssuer) Issuers() []string { return []string{"https://issuer"} }

func (f *fakeIssuer) Begin(_ context.Context, l *oidc.Login) (string, error) {
	if l.Issuer != "https://issuer" {
		return "", oidc.ErrNoIssuer
	}
	f.last = *l
	return "https://issuer/authorize", nil
}

func (f *fakeIssuer) Finish(_ context.Context, l *oidc.Login, code string) (auth.User, error) {
	sum := sha256.Sum256([]byte(l.Verifier))
	if code != "good" || base64.RawURLEncoding.EncodeToString(sum[:]) != f.last.Challenge || l.Nonce != f.last.Nonce {
		return auth.User{}, errors.New("refused")
	}
	return auth.User{Name: f.user}, nil
}

// visit makes a request, and returns the answer with the cookie that it sets.
func visit(h http.Handler, path, cookie string) (w *httptest.ResponseRecorder, set string) {
	r := httptest.NewRequest("GET", "https://server:6443"+path, nil)
	if cookie != "" {
		r.AddCookie(&http.Cookie{Name: loginCookie, Value: cookie})
	}
	w = httptest.NewRecorder()
	h.ServeHTTP(w, r)
	for _, c := range w.Result().Cookies() {
		set = c.Value
	}
	return w, set
}

func TestALogInAtTheIssuerMakesALink(t *testing.T) {
	now := time.Now()
	s := New(func() time.Time { return now })
	f := &fakeIssuer{user: "jane"}
	h := (&Login{Sessions: s, Issuers: f, Log: slog.New(slog.DiscardHandler)}).Handler()
	begin := func() string {
		t.Helper()
		w, cookie := visit(h, LoginPath+"begin?issuer=https://issuer", "")
		if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "https://issuer/authorize" || f.last.Redirect != "https://server:6443/ui/login/return" {
			t.Fatalf("%d %v %+v", w.Code, w.Header(), f.last)
		}
		set := w.Result().Cookies()[0]
		if !set.HttpOnly || !set.Secure || set.SameSite != http.SameSiteLaxMode || set.Path != "/" {
			t.Errorf("the cookie is %v", set)
		}
		return cookie
	}
	cookie := begin()
	back := LoginPath + "return?code=good&state=" + url.QueryEscape(f.last.State)
	w, left := visit(h, back+"&iss=https://issuer", cookie)
	code, ok := strings.CutPrefix(w.Header().Get("Location"), "/ui/#code=")
	if !ok || left != "" {
		t.Fatalf("%d %v", w.Code, w.Header())
	}
	if user, err := s.redeem(code); err != nil || user.Name != "jane" {
		t.Errorf("%+v %v", user, err)
	}

	// Answers that belong to no log-in of this browser make no link.
	for what, try := range map[string]struct{ path, cookie string }{
		"no cookie":           {back, ""},
		"a foreign cookie":    {back, strings.Repeat("A", len(cookie))},
		"another state":       {LoginPath + "return?code=good&state=other", cookie},
		"no state":            {LoginPath + "return?code=good", cookie},
		"another issuer":      {back + "&iss=https://evil", cookie},
		"a bad code":          {strings.Replace(back, "good", "bad", 1), cookie},
		"no code":             {LoginPath + "return?state=" + url.QueryEscape(f.last.State), cookie},
		"the issuer's no":     {back + "&error=access_denied", cookie},
		"a huge code":         {strings.Replace(back, "good", strings.Repeat("g", maxCode+1), 1), cookie},
		"an unknown issuer":   {LoginPath + "begin?issuer=https://evil", ""},
		"no issuer":           {LoginPath + "begin", ""},
		"a truncated cookie":  {back, cookie[:10]},
		"not even base64 url": {back, "%%"},
	} {
		if w, _ := visit(h, try.path, try.cookie); !strings.HasPrefix(w.Header().Get("Location"), "/ui/#failed=") {
			t.Errorf("%s: %d %v", what, w.Code, w.Header())
		}
	}
	cookie = begin()
	back = LoginPath + "return?code=good&state=" + url.QueryEscape(f.last.State)
	now = now.Add(loginTime)
	if w, _ := visit(h, back, cookie); !strings.HasPrefix(w.Header().Get("Location"), "/ui/#failed=") {
		t.Errorf("an old log-in: %v", w.Header())
	}
	// Tokens of programs make no link either.
	now, f.user = time.Now(), "system:serviceaccount:a:b"
	cookie = begin()
	if w, _ := visit(h, LoginPath+"return?code=good&state="+url.QueryEscape(f.last.State), cookie); !strings.HasPrefix(w.Header().Get("Location"), "/ui/#failed=") {
		t.Errorf("a service account: %v", w.Header())
	}
}
