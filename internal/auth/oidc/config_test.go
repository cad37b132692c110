package oidc

import (
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/egress"
	"github.com/knarr-project/knarr/internal/egress/egresstest"
)

// The texts are upstream's for the same files.
func TestInvalidConfigurationsAreReported(t *testing.T) {
	one := func(text string) string { return head + "jwt:\n- " + text }
	const mappings = "\n  claimMappings: {username: {claim: sub, prefix: ''}}"
	for name, tc := range map[string]struct{ file, want string }{
		"nothing":            {"", "empty config data"},
		"no YAML":            {"{{", "couldn't get version/kind; json parse error: invalid character '{' looking for beginning of object key string"},
		"another kind":       {"apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\n", "expected AuthenticationConfiguration, got *apiserver.AuthorizationConfiguration"},
		"another version":    {"apiVersion: apiserver.config.k8s.io/v9\nkind: AuthenticationConfiguration\n", `no kind "AuthenticationConfiguration" is registered for version "apiserver.config.k8s.io/v9"`},
		"an unknown field":   {head + "foo: 1\n", `strict decoding error: unknown field "foo"`},
		"a field twice":      {head + "jwt: []\njwt: []\n", "strict decoding error: yaml: unmarshal errors:"},
		"HTTP":               {one("issuer: {url: 'http://i.example', audiences: [a]}" + mappings), `invalid authentication configuration: jwt[0].issuer.url: Invalid value: "http://i.example": URL scheme must be https`},
		"many audiences":     {one("issuer: {url: 'https://i.example', audiences: [a,b,'']}" + mappings), `invalid authentication configuration: [jwt[0].issuer.audiences[2]: Required value, jwt[0].issuer.audienceMatchPolicy: Invalid value: "": audienceMatchPolicy must be MatchAny for multiple audiences]`},
		"an unsafe address":  {one("issuer: {url: 'https://i.example', audiences: [a]}\n  claimMappings: {username: {expression: claims.email}}"), "claims.email_verified must be used in claimMappings.username.expression"},
		"conditions of none": {head + "anonymous: {enabled: false, conditions: [{path: /x}]}", "enabled should be set to true when conditions are defined"},
		"our own issuer":     {one("issuer: {url: '" + own + "', audiences: [a]}" + mappings), `issuer.url: Invalid value: "https://kubernetes.default.svc": URL must not overlap with disallowed issuers: [https://kubernetes.default.svc]`},
		"an egress selector": {one("issuer: {url: 'https://i.example', audiences: [a], egressSelectorType: cluster}" + mappings), `oidc: egress lookup required with egress selector type "cluster"`},
		"v1beta1":            {strings.Replace(one("issuer: {url: 'https://i.example', audiences: [a]}"+mappings), "/v1", "/v1beta1", 1), ""},
		"anonymous paths":    {head + "anonymous: {enabled: true, conditions: [{path: /livez}]}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			tokens, err := New(t.Context(), Options{Disallowed: []string{own}, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			config, err := Parse([]byte(tc.file))
			if err == nil {
				err = Validate(config)
			}
			if err == nil {
				err = tokens.Use(t.Context(), config, false)
			}
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %s", err, tc.want)
			}
		})
	}
}

// An issuer that names an unconfigured network is an error here, as upstream.
func TestAnIssuerIsReachedThroughItsNetwork(t *testing.T) {
	proxy := egresstest.Connect(t, nil)
	tokens, err := New(t.Context(), Options{Egress: proxy.Selector(t, "HTTPConnect", egress.Cluster), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer tokens.Close()
	const mappings = "\n  claimMappings: {username: {claim: sub, prefix: ''}}"
	use := func(network string) error {
		config, err := Parse([]byte("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n- issuer: {url: 'https://127.0.0.1:1', audiences: [a], egressSelectorType: " + network + "}" + mappings))
		if err != nil {
			t.Fatal(err)
		}
		return tokens.Use(t.Context(), config, true)
	}
	if err := use("controlplane"); err == nil || err.Error() != `oidc: egress lookup for "controlplane" is not configured` {
		t.Error(err)
	}
	if err := use("cluster"); err == nil || !strings.Contains(err.Error(), "while dialing 127.0.0.1:1, code 502") {
		t.Error(err)
	}
	if asked := proxy.Asked(); !slices.Equal(asked, []string{"127.0.0.1:1"}) {
		t.Errorf("the proxy was asked for %v", asked)
	}
}

func TestFlagsBecomeAConfiguration(t *testing.T) {
	for name, tc := range map[string]struct {
		flags        Flags
		prefix, want string
	}{
		"the least":         {Flags{Issuer: "https://i", ClientID: "c", UsernameClaim: "sub"}, "https://i#", ""},
		"an address":        {Flags{Issuer: "https://i", ClientID: "c", UsernameClaim: "email"}, "", ""},
		"without prefix":    {Flags{Issuer: "https://i", ClientID: "c", UsernameClaim: "sub", UsernamePrefix: "-"}, "", ""},
		"with a prefix":     {Flags{Issuer: "https://i", ClientID: "c", UsernameClaim: "sub", UsernamePrefix: "x:"}, "x:", ""},
		"no issuer":         {Flags{ClientID: "c"}, "", "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set"},
		"no client":         {Flags{Issuer: "https://i"}, "", "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set"},
		"no authority file": {Flags{Issuer: "https://i", ClientID: "c", CAFile: "/nope"}, "", "open /nope: no such file or directory"},
	} {
		config, err := tc.flags.Configuration()
		if err != nil || tc.want != "" {
			if err == nil || err.Error() != tc.want {
				t.Errorf("%s: %v, want %s", name, err, tc.want)
			}
			continue
		}
		if err := Validate(config); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := *config.JWT[0].ClaimMappings.Username.Prefix; got != tc.prefix {
			t.Errorf("%s: prefix %q, want %q", name, got, tc.prefix)
		}
	}
	if _, err := New(t.Context(), Options{Algorithms: []string{"HS256"}}); err == nil || err.Error() != `oidc: unsupported signing alg: "HS256"` {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(head + "jwt:\n- issuer: {url: 'https://i.example', audiences: [a]}\n" + byClaims))
	f.Add([]byte(head + "jwt:\n- issuer: {url: 'https://i.example', audiences: [a]}\n" + byExpressions))
	f.Add([]byte(head + "anonymous: {enabled: true, conditions: [{path: /livez}]}"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		if config, err := Parse(data); err == nil {
			_ = Validate(config)
		}
	})
}

func FuzzClaims(f *testing.F) {
	f.Add(`{"sub":"bob","hd":"here","uid":"u","groups":["a"],"aud":["a"],"exp":4000000000.5,"nbf":1,"_claim_names":{"groups":"s"}}`)
	f.Add(`{"sub":1,"groups":{"a":null},"aud":null,"exp":"1"}`)
	config, err := Parse([]byte(head + "jwt:\n- issuer: {url: 'https://i.example', audiences: [a]}\n" + byClaims))
	if err != nil {
		f.Fatal(err)
	}
	tokens, err := New(f.Context(), Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.Fatal(err)
	}
	a, err := tokens.newAuthenticator(&config.JWT[0])
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var token idToken
		if json.Unmarshal([]byte(text), &token) == nil {
			_ = token.check([]string{"a"}, time.Unix(2000000000, 0))
		}
		c := claims{}
		if json.Unmarshal([]byte(text), &c) != nil {
			return
		}
		m := mapping{config: &a.config, mapper: &a.mapper, claims: c}
		if user, err := m.user(t.Context()); err == nil && !strings.HasPrefix(user.Name, "oidc:") {
			t.Errorf("%s is %+v", text, user)
		}
	})
}
