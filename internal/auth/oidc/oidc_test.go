package oidc

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/auth/jws"
)

var b64 = base64.RawURLEncoding.EncodeToString

// issuer is an OpenID provider with as many keys as it is given.
type issuer struct {
	*httptest.Server
	mu    sync.Mutex // guards what follows
	keys  map[string]crypto.Signer
	name  string // what it calls itself, if not its URL
	away  bool
	asked int // for its keys
}

func startIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{keys: map[string]crypto.Signer{"ec": ecKey(t), "rsa": rsaKey(t)}}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.away {
			http.Error(w, "away", http.StatusServiceUnavailable)
			return
		}
		name := i.name
		if name == "" {
			name = i.URL
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": name, "jwks_uri": i.URL + "/keys"})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.asked++
		list := []any{map[string]string{"kty": "oct", "k": "AAAA"}, map[string]string{"kty": "RSA", "use": "enc"}} // for somebody else
		for id, key := range i.keys {
			list = append(list, published(id, key.Public()))
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": list})
	})
	mux.HandleFunc("/groups", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer access" {
			http.Error(w, "", http.StatusForbidden)
			return
		}
		_, _ = w.Write([]byte(i.sign(t, "ES256", "ec", fmt.Sprintf(`{"iss":%q,"aud":"a","exp":4000000000,"groups":["far","away"]}`, i.URL))))
	})
	i.Server = httptest.NewTLSServer(mux)
	i.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	t.Cleanup(i.Close)
	return i
}

func ecKey(t *testing.T) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func rsaKey(t *testing.T) crypto.Signer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func published(id string, public crypto.PublicKey) map[string]string {
	switch k := public.(type) {
	case *ecdsa.PublicKey:
		return map[string]string{"kty": "EC", "crv": "P-256", "kid": id, "alg": "ES256", "use": "sig",
			"x": b64(k.X.FillBytes(make([]byte, 32))), "y": b64(k.Y.FillBytes(make([]byte, 32)))}
	case *rsa.PublicKey:
		return map[string]string{"kty": "RSA", "kid": id, "n": b64(k.N.Bytes()), "e": b64(big.NewInt(int64(k.E)).Bytes())}
	}
	return nil
}

func (i *issuer) ca() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.Certificate().Raw}))
}

// sign makes a token of claims; "unknown" names a key that the issuer does not have.
func (i *issuer) sign(t *testing.T, algorithm, kid, claims string) string {
	t.Helper()
	i.mu.Lock()
	key := i.keys[kid]
	i.mu.Unlock()
	if key == nil {
		key = ecKey(t)
	}
	header, err := json.Marshal(jws.Header{Algorithm: algorithm, KeyID: kid})
	if err != nil {
		t.Fatal(err)
	}
	signed := b64(header) + "." + b64([]byte(claims))
	if !jws.Known(algorithm) {
		return signed + "." + b64([]byte("nothing"))
	}
	digest, hash := jws.Hash(algorithm, signed)
	var signature []byte
	switch k := key.(type) {
	case *ecdsa.PrivateKey:
		r, s, err := ecdsa.Sign(rand.Reader, k, digest)
		if err != nil {
			t.Fatal(err)
		}
		signature = append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	default:
		var options crypto.SignerOpts = hash
		if algorithm[0] == 'P' {
			options = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: hash}
		}
		if signature, err = key.Sign(rand.Reader, digest, options); err != nil {
			t.Fatal(err)
		}
	}
	return signed + "." + b64(signature)
}

const own = "https://kubernetes.default.svc"

// configured are the tokens of one issuer whose configuration goes on with the text.
func configured(t *testing.T, i *issuer, text string) *Tokens {
	t.Helper()
	tokens, err := New(t.Context(), Options{Audiences: []string{own}, Disallowed: []string{own}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := tokens.Use(t.Context(), configuration(t, i, text), true); err != nil {
		t.Fatal(err)
	}
	return tokens
}

func configuration(t *testing.T, i *issuer, text string) *Configuration {
	t.Helper()
	config, err := Parse([]byte(head + "jwt:\n- issuer:\n    url: " + i.URL + "\n    audiences: [a, b]\n    audienceMatchPolicy: MatchAny\n    certificateAuthority: |\n      " +
		strings.ReplaceAll(i.ca(), "\n", "\n      ") + "\n" + text))
	if err != nil {
		t.Fatal(err)
	}
	if err := Validate(config); err != nil {
		t.Fatal(err)
	}
	return config
}

const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n"

const byClaims = `  claimValidationRules:
  - {claim: hd, requiredValue: here}
  claimMappings:
    username: {claim: sub, prefix: 'oidc:'}
    groups: {claim: groups, prefix: 'g:'}
    uid: {claim: uid}
    extra: [{key: example.com/x, valueExpression: 'has(claims.x) ? claims.x : ""'}]
  userValidationRules: [{expression: "!user.username.startsWith('oidc:bad')", message: 'bad user'}, {expression: "user.groups.all(g, g != 'g:evil')"}]
`

const byExpressions = `  claimValidationRules:
  - {expression: 'claims.exp - claims.iat <= 86400', message: 'too long'}
  claimMappings:
    username: {expression: 'claims.u'}
    groups: {expression: 'claims.g'}
    uid: {expression: 'claims.id'}
    extra: [{key: example.com/x, valueExpression: 'claims.e'}]
  userValidationRules: [{expression: "user.extra['example.com/x'].size() < 3", message: 'many'}]
`

const byEmail = "  claimMappings:\n    username: {claim: email, prefix: ''}\n"

// The texts are those that upstream's TokenReview shows for the same tokens.
func TestTokensMeanWhatTheyMeanUpstream(t *testing.T) {
	i := startIssuer(t)
	from := fmt.Sprintf(`"iss":%q`, i.URL)
	good := from + `,"aud":"a","exp":4000000000`
	fine := good + `,"sub":"bob","hd":"here","uid":"u"`
	named := good + `,"iat":3999990000,"u":"bob","id":"i"`
	bob := auth.User{Name: "oidc:bob", UID: "u", Extra: map[string][]string{}}
	with := func(u auth.User, change func(*auth.User)) auth.User { change(&u); return u }
	groups := func(names ...string) func(*auth.User) { return func(u *auth.User) { u.Groups = names } }
	for name, mapping := range map[string]string{"claims": byClaims, "expressions": byExpressions, "email": byEmail} {
		tokens := configured(t, i, mapping)
		for _, tc := range []struct {
			name, mapping, claims string
			want                  auth.User
			err                   string // "-": nobody's token
		}{
			{"claims", "claims", fine + `,"groups":["x","y"],"x":["1","","2"]`, auth.User{Name: "oidc:bob", UID: "u", Groups: []string{"g:x", "g:y"}, Extra: map[string][]string{"example.com/x": {"1", "2"}}}, ""},
			{"one group", "claims", fine + `,"groups":"x"`, with(bob, groups("g:x")), ""},
			{"an empty group", "claims", fine + `,"groups":""`, with(bob, groups("g:")), ""},
			{"no groups", "claims", fine, bob, ""},
			{"groups that are null", "claims", fine + `,"groups":null`, bob, ""},
			{"an object of groups", "claims", fine + `,"groups":{"a":1}`, auth.User{}, `oidc: parse groups claim "groups": json: cannot unmarshal object into Go value of type string`},
			{"a group that is a number", "claims", fine + `,"groups":[1]`, auth.User{}, `oidc: parse groups claim "groups": json: cannot unmarshal array into Go value of type string`},
			{"a forbidden group", "claims", fine + `,"groups":["evil"]`, auth.User{}, "oidc: error evaluating user info validation rule: validation expression 'user.groups.all(g, g != 'g:evil')' failed: "},
			{"a forbidden name", "claims", good + `,"sub":"bad","hd":"here","uid":"u"`, auth.User{}, "oidc: error evaluating user info validation rule: validation expression '!user.username.startsWith('oidc:bad')' failed: bad user"},
			{"no uid", "claims", good + `,"sub":"bob","hd":"here"`, auth.User{}, `oidc: parse uid claim "uid": claim not present`},
			{"an empty uid", "claims", good + `,"sub":"bob","hd":"here","uid":""`, with(bob, func(u *auth.User) { u.UID = "" }), ""},
			{"a uid that is a number", "claims", good + `,"sub":"bob","hd":"here","uid":1`, auth.User{}, `oidc: parse uid claim "uid": json: cannot unmarshal number into Go value of type string`},
			{"another required claim", "claims", good + `,"sub":"bob","hd":"there","uid":"u"`, auth.User{}, "oidc: required claim hd value does not match. Got = there, want = here"},
			{"no required claim", "claims", good + `,"sub":"bob","uid":"u"`, auth.User{}, "oidc: required claim hd not present in ID token"},
			{"a required claim that is a number", "claims", good + `,"sub":"bob","uid":"u","hd":1`, auth.User{}, "oidc: parse claim hd: json: cannot unmarshal number into Go value of type string"},
			{"no name", "claims", good + `,"hd":"here","uid":"u"`, auth.User{}, `oidc: parse username claims "sub": claim not present`},
			{"an empty name", "claims", good + `,"hd":"here","uid":"u","sub":""`, with(bob, func(u *auth.User) { u.Name = "oidc:" }), ""},
			{"a name that is a number", "claims", good + `,"sub":1`, auth.User{}, "oidc: verify token: oidc: failed to unmarshal claims: json: cannot unmarshal number into Go struct field idToken.sub of type string"},
			{"an extra that is a number", "claims", fine + `,"x":1`, auth.User{}, `oidc: error evaluating extra claim expression: has(claims.x) ? claims.x : "": expression must return a string or a list of strings`},
			{"an extra of numbers", "claims", fine + `,"x":[1]`, auth.User{}, `oidc: error evaluating extra claim expression: has(claims.x) ? claims.x : "": expression must return a string or a list of strings`},
			{"an extra that is null", "claims", fine + `,"x":null`, bob, ""},
			{"another audience", "claims", from + `,"aud":["zzz","yyy"],"exp":4000000000`, auth.User{}, `oidc: verify token: oidc: expected audience in ["a" "b"] got ["zzz" "yyy"]`},
			{"no audience", "claims", from + `,"exp":4000000000`, auth.User{}, `oidc: verify token: oidc: expected audience in ["a" "b"] got []`},
			{"one audience of several", "claims", from + `,"aud":["zzz","b"],"exp":4000000000.5,"sub":"bob","hd":"here","uid":"u"`, bob, ""},
			{"an old token", "claims", from + `,"aud":"a","exp":1000000000`, auth.User{}, "oidc: verify token: oidc: token is expired (Token Expiry: 2001-09-09 01:46:40 +0000 UTC)"},
			{"a token without end", "claims", from + `,"aud":"a"`, auth.User{}, "oidc: verify token: oidc: token is expired (Token Expiry: 0001-01-01 00:00:00 +0000 UTC)"},
			{"a token whose end is text", "claims", from + `,"aud":"a","exp":"x"`, auth.User{}, "oidc: verify token: oidc: failed to unmarshal claims: json: invalid number literal, trying to unmarshal \"\\\"x\\\"\" into Number"},
			{"a token of the future", "claims", good + `,"nbf":3999999999`, auth.User{}, "before the nbf (not before) time: 2096-10-02 07:06:39 +0000 UTC"},
			{"another issuer", "claims", `"iss":"https://other","aud":"a"`, auth.User{}, "-"},
			{"no issuer", "claims", `"aud":"a"`, auth.User{}, "-"},
			{"distributed groups", "claims", fine + fmt.Sprintf(`,"_claim_names":{"groups":"s"},"_claim_sources":{"s":{"endpoint":"%s/groups","access_token":"access"}}`, i.URL), with(bob, groups("g:far", "g:away")), ""},
			{"distributed groups that are refused", "claims", fine + fmt.Sprintf(`,"_claim_names":{"groups":"s"},"_claim_sources":{"s":{"endpoint":"%s/groups"}}`, i.URL), auth.User{}, `oidc: could not expand distributed claims: while getting distributed claim "groups": error while getting distributed claim JWT: 403 Forbidden`},
			{"distributed groups of nowhere", "claims", fine + `,"_claim_names":{"groups":"s"}`, auth.User{}, "oidc: verify token: oidc: source does not exist"},
			{"distributed groups that are there, too", "claims", fine + `,"groups":"x","_claim_names":{"groups":"s"},"_claim_sources":{"s":{"endpoint":"https://nowhere"}}`, with(bob, groups("g:x")), ""},

			{"expressions", "expressions", named + `,"g":["a",""],"e":["1"]`, auth.User{Name: "bob", UID: "i", Groups: []string{"a"}, Extra: map[string][]string{"example.com/x": {"1"}}}, ""},
			{"nothing that a rule looks at", "expressions", named + `,"g":"a","e":""`, auth.User{}, "oidc: error evaluating user info validation rule: expression 'user.extra['example.com/x'].size() < 3' resulted in error: no such key: example.com/x"},
			{"no group for an expression", "expressions", named + `,"e":"1"`, auth.User{}, "oidc: error evaluating group claim expression: expression 'claims.g' resulted in error: no such key: g"},
			{"groups of an expression that are a number", "expressions", named + `,"g":1,"e":"1"`, auth.User{}, "oidc: error evaluating group claim expression: expression must return a string or a list of strings"},
			{"a uid of an expression that is null", "expressions", good + `,"iat":3999990000,"u":"bob","g":[],"id":null,"e":"1"`, auth.User{}, "oidc: error evaluating uid claim expression: uid claim expression must return a string"},
			{"an empty name of an expression", "expressions", good + `,"u":"","g":[],"id":"","e":"1"`, auth.User{}, "oidc: empty username via CEL expression is not allowed"},
			{"a name of an expression that is a number", "expressions", good + `,"u":1,"g":[],"id":"","e":"1"`, auth.User{}, "oidc: error evaluating username claim expression: username claim expression must return a string"},
			{"no name for an expression", "expressions", good, auth.User{}, "oidc: error evaluating username claim expression: expression 'claims.u' resulted in error: no such key: u"},
			{"too many extras", "expressions", named + `,"g":[],"e":["1","2","3"]`, auth.User{}, "oidc: error evaluating user info validation rule: validation expression 'user.extra['example.com/x'].size() < 3' failed: many"},
			{"a token that lasts too long", "expressions", good + `,"iat":1,"u":"bob","id":"i","g":[],"e":"1"`, auth.User{}, "oidc: error evaluating claim validation expression: validation expression 'claims.exp - claims.iat <= 86400' failed: too long"},

			{"an address", "email", good + `,"email":"a@b"`, auth.User{Name: "a@b"}, ""},
			{"a verified address", "email", good + `,"email":"a@b","email_verified":true`, auth.User{Name: "a@b"}, ""},
			{"an address that is not verified", "email", good + `,"email":"a@b","email_verified":false`, auth.User{}, "oidc: email not verified"},
			{"an address that is verified in words", "email", good + `,"email":"a@b","email_verified":"true"`, auth.User{}, "oidc: parse 'email_verified' claim: json: cannot unmarshal string into Go value of type bool"},
		} {
			if tc.mapping != name {
				continue
			}
			t.Run(tc.name, func(t *testing.T) {
				user, accepted, ok, err := tokens.AuthenticateToken(t.Context(), i.sign(t, "ES256", "ec", "{"+tc.claims+"}"), []string{own})
				switch {
				case tc.err == "":
					if err != nil || !ok || !reflect.DeepEqual(user, tc.want) || !reflect.DeepEqual(accepted, []string{own}) {
						t.Errorf("%+v %v %v %v, want %+v", user, accepted, ok, err, tc.want)
					}
				case tc.err == "-":
					if ok || err != nil {
						t.Errorf("%+v %v %v", user, ok, err)
					}
				case ok || err == nil || !strings.HasSuffix(err.Error(), tc.err):
					t.Errorf("%+v %v\n%v, want\n%s", user, ok, err, tc.err)
				}
			})
		}
	}
}

func TestSignatures(t *testing.T) {
	i := startIssuer(t)
	tokens := configured(t, i, "  claimMappings:\n    username: {claim: sub, prefix: ''}\n")
	claims := fmt.Sprintf(`{"iss":%q,"aud":"a","exp":4000000000,"sub":"bob"}`, i.URL)
	const unsupported = `oidc: verify token: oidc: id token signed with unsupported algorithm, expected ["ES256" "ES384" "ES512" "PS256" "PS384" "PS512" "RS256" "RS384" "RS512"] got `
	const wrong = "oidc: verify token: failed to verify signature: failed to verify id token signature"
	for _, tc := range []struct{ algorithm, key, err string }{
		{"ES256", "ec", ""}, {"RS256", "rsa", ""}, {"RS384", "rsa", ""}, {"PS512", "rsa", ""},
		{"none", "ec", unsupported + `"none"`}, {"HS256", "ec", unsupported + `"HS256"`},
		{"ES256", "unknown", wrong}, {"ES256", "rsa", wrong}, {"RS256", "ec", wrong},
	} {
		_, _, ok, err := tokens.AuthenticateToken(t.Context(), i.sign(t, tc.algorithm, tc.key, claims), []string{own})
		if ok != (tc.err == "") || err != nil && err.Error() != tc.err {
			t.Errorf("%s by %s: %v %v", tc.algorithm, tc.key, ok, err)
		}
	}
	good := i.sign(t, "ES256", "ec", claims)
	for name, token := range map[string]string{"no JWT": "abc", "two parts": "abc.def", "four parts": good + ".x", "no base64": "a." + strings.Repeat("*", 8) + ".b"} {
		if _, _, ok, err := tokens.AuthenticateToken(t.Context(), token, []string{own}); ok || err != nil {
			t.Errorf("%s: %v %v", name, ok, err)
		}
	}
	if _, _, ok, err := tokens.AuthenticateToken(t.Context(), good, []string{"somebody else"}); ok || err != nil {
		t.Errorf("for another audience: %v %v", ok, err)
	}
	changed := strings.Split(good, ".")
	changed[1] = b64([]byte(strings.Replace(claims, "bob", "eve", 1)))
	if _, _, ok, err := tokens.AuthenticateToken(t.Context(), strings.Join(changed, "."), []string{own}); ok || err == nil {
		t.Error("a changed token is believed")
	}
}

func TestNewKeysOfAnIssuerAreFetchedWhenTheyAreUsed(t *testing.T) {
	i := startIssuer(t)
	tokens := configured(t, i, "  claimMappings:\n    username: {claim: sub, prefix: ''}\n")
	claims := fmt.Sprintf(`{"iss":%q,"aud":"a","exp":4000000000,"sub":"bob"}`, i.URL)
	is := func(token string) bool {
		_, _, ok, _ := tokens.AuthenticateToken(t.Context(), token, []string{own})
		return ok
	}
	old := i.sign(t, "ES256", "ec", claims)
	for range 2 {
		if !is(old) || i.asked != 1 {
			t.Fatalf("the keys were fetched %d times", i.asked)
		}
	}
	i.mu.Lock()
	i.keys = map[string]crypto.Signer{"next": ecKey(t)}
	i.mu.Unlock()
	if !is(old) { // its key is still known, and nobody has said that it is gone
		t.Error("an old key is forgotten before a new one was seen")
	}
	if next := i.sign(t, "ES256", "next", claims); !is(next) {
		t.Error("the new key is not found")
	}
	if is(old) {
		t.Error("a key that is no longer published is believed")
	}
}

func TestAnIssuerThatDoesNotAnswerYet(t *testing.T) {
	i := startIssuer(t)
	i.away = true
	tokens, err := New(t.Context(), Options{Audiences: []string{own}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	config := configuration(t, i, byEmail)
	if err := tokens.Use(t.Context(), config, true); err == nil {
		t.Error("a changed configuration counts whose issuer does not answer")
	}
	ctx, cancel := context.WithCancel(t.Context())
	tokens.ctx = ctx
	if err := tokens.Use(t.Context(), config, false); err != nil {
		t.Fatal(err)
	}
	defer cancel()
	claims := fmt.Sprintf(`{"iss":%q,"aud":"a","exp":4000000000,"email":"a@b"}`, i.URL)
	_, _, _, err = tokens.AuthenticateToken(t.Context(), i.sign(t, "ES256", "ec", claims), []string{own})
	if want := fmt.Sprintf("oidc: authenticator for issuer %q is not initialized", i.URL); err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	i.mu.Lock()
	i.away = false
	i.mu.Unlock()
	first := (*tokens.list.Load())[0]
	if err := first.provider.discover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, _, ok, err := tokens.AuthenticateToken(t.Context(), i.sign(t, "ES256", "ec", claims), []string{own}); !ok {
		t.Error(err)
	}
	// The same configuration beside another one keeps its authenticator, and one that is not named any more ends.
	if err := tokens.Use(t.Context(), config, true); err != nil || (*tokens.list.Load())[0] != first {
		t.Errorf("an authenticator that did not change was made again: %v", err)
	}
	if err := tokens.Use(t.Context(), &Configuration{}, true); err != nil || first.ctx.Err() == nil {
		t.Errorf("an authenticator that is gone goes on: %v", err)
	}
	// An issuer that calls itself otherwise is not believed.
	i.name = "https://other"
	if err := tokens.Use(t.Context(), config, true); err == nil || !strings.Contains(err.Error(), "did not match the issuer URL returned by provider") {
		t.Error(err)
	}
}

// The texts are upstream's for the same files.
func TestWhatIsWrongWithAConfiguration(t *testing.T) {
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

func TestFlagsMeanAConfiguration(t *testing.T) {
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
		m := mapping{ctx: t.Context(), config: &a.config, mapper: &a.mapper, claims: c}
		if user, err := m.user(); err == nil && !strings.HasPrefix(user.Name, "oidc:") {
			t.Errorf("%s is %+v", text, user)
		}
	})
}
