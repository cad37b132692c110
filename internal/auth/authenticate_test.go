package auth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/auth/pki"
)

type tokens map[string]User

func (t tokens) AuthenticateToken(_ context.Context, token string, audiences []string) (User, []string, bool, error) {
	if token == "bad" {
		return User{}, nil, false, errors.New("refused")
	}
	u, ok := t[token]
	return u, audiences, ok, nil
}

func TestRequestsAreAuthenticatedAsUpstreamDoes(t *testing.T) {
	known, err := pki.Open(pki.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	strangers, err := pki.Open(pki.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	a := Requests{ProxyHeaders: RemoteHeaders, Anonymous: Anonymity{Allowed: true}, Authenticators: Authenticators{
		FrontProxy{Roots: known.FrontProxyCA.Pool, Names: []string{"front-proxy-client"}, Headers: RemoteHeaders, Now: time.Now},
		NewCertificates(known.CA.Pool(), time.Now),
		Bearer{Tokens: tokens{"good": {Name: "bob"}}},
	}}
	cases := []struct {
		name    string
		cert    *pki.Leaf
		headers map[string]string
		user    string // "" means 401
		groups  []string
	}{
		{"nothing is anonymous", nil, nil, "system:anonymous", []string{GroupUnauthenticated}},
		{"a certificate", known.Admin, nil, "kubernetes-admin", []string{GroupMasters, GroupAuthenticated}},
		{"a certificate of another CA", strangers.Admin, nil, "", nil},
		{"a certificate of another CA and a good token", strangers.Admin, map[string]string{"Authorization": "Bearer good"}, "bob", []string{GroupAuthenticated}},
		{"a good token", nil, map[string]string{"Authorization": "bearer good"}, "bob", []string{GroupAuthenticated}},
		{"an unknown token", nil, map[string]string{"Authorization": "Bearer what"}, "", nil},
		{"a bad token", nil, map[string]string{"Authorization": "Bearer bad"}, "", nil},
		{"a token behind two spaces", nil, map[string]string{"Authorization": "Bearer  good"}, "system:anonymous", []string{GroupUnauthenticated}},
		{"two tokens", nil, map[string]string{"Authorization": "Bearer good bad"}, "bob", []string{GroupAuthenticated}},
		{"another scheme", nil, map[string]string{"Authorization": "Basic Zm9v"}, "system:anonymous", []string{GroupUnauthenticated}},
		{"a WebSocket token", nil, map[string]string{"Upgrade": "websocket", "Sec-Websocket-Protocol": "base64url.bearer.authorization.k8s.io.Z29vZA, v5.channel.k8s.io"}, "bob", []string{GroupAuthenticated}},
		{"the front proxy", known.FrontProxyClient, map[string]string{"X-Remote-User": "eve", "X-Remote-Group": "dev"}, "eve", []string{"dev", GroupAuthenticated}},
		{"the front proxy with a group without name", known.FrontProxyClient, map[string]string{"X-Remote-User": "eve", "X-Remote-Group": ""}, "eve", []string{GroupAuthenticated}},
		{"someone else with the front proxy's headers", known.Admin, map[string]string{"X-Remote-User": "eve"}, "kubernetes-admin", []string{GroupMasters, GroupAuthenticated}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			if c.cert != nil {
				r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c.cert.Certificate().Leaf}}
			}
			for k, v := range c.headers {
				r.Header.Set(k, v)
			}
			for range 2 { // the second result comes from memory
				user, ok, err := a.Authenticate(r.Clone(context.Background()))
				if c.user == "" {
					if ok || err == nil {
						t.Fatalf("was accepted as %+v", user)
					}
					continue
				}
				if err != nil || !ok || user.Name != c.user || !slices.Equal(user.Groups, c.groups) {
					t.Fatalf("%+v %v %v", user, ok, err)
				}
				if warned := user.Remarks != nil; warned != strings.Contains(c.headers["Authorization"], "  ") {
					t.Errorf("remarks %+v", user.Remarks)
				}
			}
		})
	}
}

func TestAnExtraOfAFrontProxyMayHaveNoName(t *testing.T) {
	if got := extraHeaders(http.Header{"X-Remote-Extra-": {"v"}, "X-Remote-Extr": {"w"}}, "X-Remote-Extra-"); len(got) != 1 || !slices.Equal(got[""], []string{"v"}) {
		t.Errorf("%v", got)
	}
}

// Extension servers trust these headers from this server, so a client's headers must not reach
// them.
func TestFrontProxyHeadersOfAClientAreRemoved(t *testing.T) {
	for _, token := range []string{"", "Bearer good", "Bearer bad"} {
		a := Requests{
			Authenticators: Authenticators{Bearer{Tokens: tokens{"good": {Name: "bob"}}}},
			ProxyHeaders:   FrontProxyHeaders{User: []string{"X-Our-User"}, UID: []string{"X-Our-Uid"}, Group: []string{"X-Our-Group"}, ExtraPrefix: []string{"X-Our-Extra-"}},
		}
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", token)
		for _, name := range []string{"X-Our-User", "X-Our-Uid", "X-Our-Group", "X-Our-Extra-Scopes", "X-Other"} {
			r.Header.Set(name, "root")
		}
		_, _, _ = a.Authenticate(r)
		for name := range r.Header {
			if strings.HasPrefix(name, "X-Our-") {
				t.Errorf("%q: %s is still there", token, name)
			}
		}
		if r.Header.Get("X-Other") == "" {
			t.Errorf("%q: took a header that is not a front proxy's", token)
		}
	}
}

func TestAnonymousRequestsCanBeLimitedToPaths(t *testing.T) {
	for name, tc := range map[string]struct {
		anonymity Anonymity
		path      string
		want      bool
	}{
		"disabled":             {Anonymity{}, "/livez", false},
		"everywhere":           {Anonymity{Allowed: true}, "/api", true},
		"a path that is named": {Anonymity{Allowed: true, Paths: []string{"/livez", "/readyz"}}, "/readyz", true},
		"another path":         {Anonymity{Allowed: true, Paths: []string{"/livez"}}, "/api", false},
		"below a path":         {Anonymity{Allowed: true, Paths: []string{"/livez"}}, "/livez/ping", false},
		"disabled, with paths": {Anonymity{Paths: []string{"/livez"}}, "/livez", false},
	} {
		if _, ok, err := (Requests{Anonymous: tc.anonymity}).Authenticate(httptest.NewRequest(http.MethodGet, tc.path, nil)); ok != tc.want || err != nil {
			t.Errorf("%s: %v %v", name, ok, err)
		}
	}
}

func FuzzFrontProxyHeaders(f *testing.F) {
	known, err := pki.Open(pki.Config{Dir: f.TempDir()})
	if err != nil {
		f.Fatal(err)
	}
	proxy := FrontProxy{Roots: known.FrontProxyCA.Pool, Headers: RemoteHeaders, Now: time.Now}
	tlsState := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{known.FrontProxyClient.Certificate().Leaf}}
	f.Add("eve", "7", "dev", "Acme.io%2Fx", "y")
	f.Add("", "", "", "%zz", "\x00")
	f.Fuzz(func(t *testing.T, name, uid, group, key, value string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.TLS = tlsState
		r.Header = http.Header{"X-Remote-User": {name}, "X-Remote-Uid": {uid}, "X-Remote-Group": {group}, "X-Remote-Extra-" + key: {value}}
		user, ok, err := proxy.Authenticate(r)
		if err != nil || ok != (name != "") {
			t.Fatalf("%v %v", ok, err)
		}
		if ok && (user.Name != name || user.UID != uid || slices.Contains(user.Groups, "") || len(r.Header) != 0) {
			t.Errorf("%+v, left %v", user, r.Header)
		}
	})
}

func FuzzBearerToken(f *testing.F) {
	f.Add("Bearer good", "", "")
	f.Add("", "websocket", "base64url.bearer.authorization.k8s.io.Z29vZA, v5.channel.k8s.io")
	f.Add("bearer", "WebSocket", "base64url.bearer.authorization.k8s.io.")
	f.Fuzz(func(t *testing.T, authorization, upgrade, protocols string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header = http.Header{"Authorization": {authorization}, "Upgrade": {upgrade}, "Sec-Websocket-Protocol": {protocols}}
		if _, ok, err := (Bearer{Tokens: tokens{"good": {Name: "bob"}}}).Authenticate(r); ok && (err != nil || r.Header.Get("Authorization") != "") {
			t.Errorf("a token is left in the request: %v", err)
		}
	})
}
