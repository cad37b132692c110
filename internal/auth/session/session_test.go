package session

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/auth"
)

// clock is a time that tests move.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func start() (*Sessions, *clock) {
	c := &clock{time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
	return New(c.now), c
}

var alice = auth.User{Name: "alice", UID: "7", Groups: []string{"devs", auth.GroupAuthenticated}, Extra: map[string][]string{auth.ExtraCredentialID: {certificateID + "00"}}}

// request returns a request of the page, with further headers as pairs.
func request(method, path string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, "https://host:6443"+path, nil)
	r.Header.Set(ProofHeader, "1")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

// begin exchanges a link for a cookie.
func begin(t *testing.T, s *Sessions, user auth.User, certificateEnds time.Time) (cookie string, ends time.Time) {
	t.Helper()
	code, err := s.Link(user, certificateEnds)
	if err != nil {
		t.Fatal(err)
	}
	got, ok, err := s.Authenticate(request(http.MethodPost, SessionPath, CodeHeader, code))
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	cookie, ends, err = s.open(&got)
	if err != nil {
		t.Fatal(err)
	}
	return cookie, ends
}

func TestASessionActsAsTheUserOfItsLink(t *testing.T) {
	s, c := start()
	cookie, ends := begin(t, s, alice, c.at.Add(24*time.Hour))
	if want := c.at.Add(CertificateTime); !ends.Equal(want) {
		t.Errorf("the session ends at %v, want %v", ends, want)
	}
	r := request(http.MethodGet, "/api/v1/pods", "Cookie", "a=b; "+Cookie+"="+cookie+"; c=d")
	user, ok, err := s.Authenticate(r)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if user.Name != "alice" || user.UID != "7" || fmt.Sprint(user.Groups) != fmt.Sprint(alice.Groups) {
		t.Errorf("the user is %+v", user)
	}
	if len(user.Extra[ExtraSession]) != 1 || len(user.Extra[auth.ExtraCredentialID]) != 1 {
		t.Errorf("the extra fields are %v", user.Extra)
	}
	if got := r.Header.Get("Cookie"); got != "a=b; c=d" {
		t.Errorf("later stages see the cookies %q", got)
	}
	if alice.Extra[ExtraSession] != nil {
		t.Error("the link changed its maker's fields")
	}
}

func TestALinkWorksOnce(t *testing.T) {
	s, _ := start()
	code, err := s.Link(alice, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []error{nil, ErrBadCode} {
		if _, _, err := s.Authenticate(request(http.MethodPost, SessionPath, CodeHeader, code)); !errors.Is(err, want) {
			t.Errorf("use %d: %v, want %v", i+1, err, want)
		}
	}
}

func TestALinkIsOnlyForItsPath(t *testing.T) {
	for _, r := range []*http.Request{request(http.MethodPost, "/api/v1/namespaces"), request(http.MethodDelete, SessionPath), request(http.MethodGet, SessionPath)} {
		s, _ := start()
		code, err := s.Link(alice, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(CodeHeader, code)
		if _, ok, err := s.Authenticate(r); ok || !errors.Is(err, ErrBadCode) {
			t.Errorf("%s %s: %v, %v", r.Method, r.URL.Path, ok, err)
		}
	}
}

func TestLinksAndSessionsExpire(t *testing.T) {
	s, c := start()
	code, _ := s.Link(alice, time.Time{})
	c.at = c.at.Add(LinkTime)
	if _, _, err := s.Authenticate(request(http.MethodPost, SessionPath, CodeHeader, code)); !errors.Is(err, ErrBadCode) {
		t.Errorf("an old link: %v", err)
	}
	use := func(cookie string) error {
		_, _, err := s.Authenticate(request(http.MethodGet, "/api", "Cookie", Cookie+"="+cookie))
		return err
	}
	t.Run("when idle", func(t *testing.T) {
		cookie, _ := begin(t, s, alice, c.at.Add(24*time.Hour))
		c.at = c.at.Add(IdleTime - time.Second)
		if err := use(cookie); err != nil {
			t.Fatal(err)
		}
		c.at = c.at.Add(IdleTime)
		if err := use(cookie); !errors.Is(err, ErrEnded) {
			t.Error(err)
		}
	})
	t.Run("after eight hours, though in use", func(t *testing.T) {
		cookie, _ := begin(t, s, alice, c.at.Add(24*time.Hour))
		for range 15 {
			c.at = c.at.Add(30 * time.Minute)
			if err := use(cookie); err != nil {
				t.Fatal(err)
			}
		}
		c.at = c.at.Add(30 * time.Minute)
		if err := use(cookie); !errors.Is(err, ErrEnded) {
			t.Error(err)
		}
	})
	t.Run("with the certificate", func(t *testing.T) {
		want := c.at.Add(10 * time.Minute)
		if _, ends := begin(t, s, alice, want); !ends.Equal(want) {
			t.Errorf("%v, want %v", ends, want)
		}
	})
	t.Run("after an hour for a token", func(t *testing.T) {
		if _, ends := begin(t, s, auth.User{Name: "bob"}, c.at.Add(24*time.Hour)); !ends.Equal(c.at.Add(TokenTime)) {
			t.Error(ends)
		}
	})
}

func TestASessionNeedsAProofThatThePageAsks(t *testing.T) {
	s, c := start()
	cookie, _ := begin(t, s, alice, c.at.Add(24*time.Hour))
	for name, tt := range map[string]struct {
		headers []string
		want    error
	}{
		"the header alone":          {nil, nil},
		"same origin":               {[]string{"Origin", "https://host:6443", "Sec-Fetch-Site", "same-origin", "Sec-Fetch-Dest", "empty"}, nil},
		"a WebSocket of the page":   {[]string{ProofHeader, "", "Upgrade", "websocket", "Origin", "https://host:6443"}, nil},
		"no header":                 {[]string{ProofHeader, ""}, ErrNotProof},
		"another value":             {[]string{ProofHeader, "true"}, ErrNotProof},
		"another origin":            {[]string{"Origin", "https://evil.example"}, ErrNotProof},
		"the same host, http":       {[]string{"Origin", "http://host:6443"}, ErrNotProof},
		"another port":              {[]string{"Origin", "https://host:6444"}, ErrNotProof},
		"an opaque origin":          {[]string{"Origin", "null"}, ErrNotProof},
		"another site":              {[]string{"Sec-Fetch-Site", "cross-site"}, ErrNotProof},
		"a subdomain":               {[]string{"Sec-Fetch-Site", "same-site"}, ErrNotProof},
		"a document":                {[]string{"Sec-Fetch-Dest", "document"}, ErrNotProof},
		"a frame":                   {[]string{"Sec-Fetch-Dest", "iframe"}, ErrNotProof},
		"a WebSocket of another":    {[]string{ProofHeader, "", "Upgrade", "websocket", "Origin", "https://evil.example"}, ErrNotProof},
		"a WebSocket of no browser": {[]string{ProofHeader, "", "Upgrade", "websocket"}, ErrNotProof},
	} {
		t.Run(name, func(t *testing.T) {
			r := request(http.MethodGet, "/api", append([]string{"Cookie", Cookie + "=" + cookie}, tt.headers...)...)
			for range 2 { // the API server may ask twice
				_, ok, err := s.Authenticate(r)
				switch {
				case tt.want == nil:
					if !ok || err != nil {
						t.Fatal(ok, err)
					}
					return
				case ok || err == nil:
					t.Fatal("it is accepted")
				case r.Header.Get("Cookie") != "":
					t.Error("later stages see the cookie")
				}
			}
		})
	}
}

func TestForgedSecretsAreRefused(t *testing.T) {
	s, c := start()
	cookie, _ := begin(t, s, alice, c.at.Add(24*time.Hour))
	for _, forged := range []string{"x", cookie[1:], cookie + "A", strings.Repeat("A", len(cookie)), strings.Repeat("A", 1<<20), cookie + "; " + Cookie + "=" + cookie} {
		if _, ok, err := s.Authenticate(request(http.MethodGet, "/api", "Cookie", Cookie+"="+forged)); ok || !errors.Is(err, ErrEnded) {
			t.Errorf("a forged cookie of %d bytes: %v, %v", len(forged), ok, err)
		}
		if _, ok, err := s.Authenticate(request(http.MethodPost, SessionPath, CodeHeader, forged)); ok || !errors.Is(err, ErrBadCode) {
			t.Errorf("a forged code of %d bytes: %v, %v", len(forged), ok, err)
		}
	}
	if _, _, err := s.open(&auth.User{Name: "alice", Extra: map[string][]string{ExtraSession: {"00"}}}); !errors.Is(err, ErrBadCode) {
		t.Errorf("a session without a link: %v", err)
	}
}

func TestLogOutEndsTheSession(t *testing.T) {
	s, c := start()
	cookie, _ := begin(t, s, alice, c.at.Add(24*time.Hour))
	another, _ := begin(t, s, alice, c.at.Add(24*time.Hour))
	user, _, err := s.Authenticate(request(http.MethodDelete, SessionPath, "Cookie", Cookie+"="+cookie))
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	r := request(http.MethodDelete, SessionPath)
	s.Paths()[SessionPath].ServeHTTP(w, r.WithContext(auth.WithUser(r.Context(), user)))
	if w.Code != http.StatusNoContent {
		t.Error(w.Code)
	}
	for cookie, want := range map[string]error{cookie: ErrEnded, another: nil} {
		if _, _, err := s.Authenticate(request(http.MethodGet, "/api", "Cookie", Cookie+"="+cookie)); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
}

func TestProgramsAndSessionsGetNoLinks(t *testing.T) {
	s, _ := start()
	for name, tt := range map[string]struct {
		user auth.User
		want error
	}{
		"anonymous":         {auth.Anonymous(), ErrProgram},
		"a service account": {auth.ServiceAccount("default", "robot"), ErrProgram},
		"a node":            {auth.User{Name: "system:node:a", Groups: []string{auth.GroupNodes}}, ErrProgram},
		"a session":         {auth.User{Name: "alice", Extra: map[string][]string{ExtraSession: {"1"}}}, ErrSession},
	} {
		if _, err := s.Link(tt.user, time.Time{}); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	r := request(http.MethodPost, LinksPath, "Impersonate-User", "bob")
	if _, ok, err := s.Authenticate(r); ok || err != nil {
		t.Fatal(ok, err)
	}
	w := httptest.NewRecorder()
	s.Paths()[LinksPath].ServeHTTP(w, r.WithContext(auth.WithUser(r.Context(), alice)))
	if w.Code != http.StatusForbidden {
		t.Errorf("an impersonated user: %d", w.Code)
	}
}

func TestLinksAndSessionsAreBounded(t *testing.T) {
	s, c := start()
	first, _ := begin(t, s, alice, c.at.Add(24*time.Hour))
	for range perUser {
		c.at = c.at.Add(time.Millisecond)
		begin(t, s, alice, c.at.Add(24*time.Hour))
	}
	if len(s.sessions) != perUser {
		t.Errorf("one user has %d sessions, want %d", len(s.sessions), perUser)
	}
	if _, _, err := s.Authenticate(request(http.MethodGet, "/api", "Cookie", Cookie+"="+first)); !errors.Is(err, ErrEnded) {
		t.Errorf("the oldest session: %v", err)
	}
	for i := range inAll {
		if _, err := s.Link(auth.User{Name: fmt.Sprint(i)}, time.Time{}); err != nil {
			t.Fatal(i, err)
		}
	}
	if _, err := s.Link(auth.User{Name: "late"}, time.Time{}); !errors.Is(err, ErrFull) {
		t.Errorf("a link too many: %v", err)
	}
	c.at = c.at.Add(LinkTime)
	if _, err := s.Link(auth.User{Name: "late"}, time.Time{}); err != nil {
		t.Errorf("after a minute: %v", err)
	}
}

func TestTheCookieIsForThePageAlone(t *testing.T) {
	s, c := start()
	code, _ := s.Link(alice, c.at.Add(24*time.Hour))
	r := request(http.MethodPost, SessionPath, CodeHeader, code)
	user, _, err := s.Authenticate(r)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	s.Paths()[SessionPath].ServeHTTP(w, r.WithContext(auth.WithUser(r.Context(), user)))
	got := w.Header().Get("Set-Cookie")
	for _, want := range []string{Cookie + "=", "Path=/;", "Max-Age=28800", "HttpOnly", "Secure", "SameSite=Strict"} {
		if !strings.Contains(got, want) {
			t.Errorf("Set-Cookie: %s, want %s", got, want)
		}
	}
	if strings.Contains(got, "Domain") || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("Set-Cookie: %s, headers %v", got, w.Header())
	}
}

func FuzzCookies(f *testing.F) {
	f.Add("a=b; " + Cookie + "=x")
	f.Add(";;=;" + Cookie)
	f.Fuzz(func(t *testing.T, line string) {
		s, _ := start()
		r := request(http.MethodGet, "/api")
		r.Header["Cookie"] = []string{line}
		if _, ok, _ := s.Authenticate(r); ok {
			t.Fatal("a session without a link")
		}
		for _, cookie := range r.Cookies() {
			if cookie.Name == Cookie {
				t.Fatalf("%q leaves the session's cookie", line)
			}
		}
	})
}
