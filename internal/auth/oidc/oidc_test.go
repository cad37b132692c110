package oidc

import (
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/auth"
)

const own = "https://kubernetes.default.svc"

// configured returns the Tokens of one issuer; text continues its configuration.
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
  userValidationRules: [{expression: "!user.username.startsWith('oidc:bad')", message: 'bad user'}, {expression: "user.groups.all(g, g != 'g:evil')"},
    {expression: "!('authentication.kubernetes.io/credential-id' in user.extra) || user.extra['authentication.kubernetes.io/credential-id'] != ['JTI=stolen']", message: 'stolen'}]
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

// The texts are those of upstream's TokenReview for the same tokens.
func TestTokensAreMappedToUsersAsUpstream(t *testing.T) {
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
			err                   string // "-": not a token of this issuer
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

			{"a token with an id", "claims", fine + `,"jti":"x"`, with(bob, func(u *auth.User) { u.Extra = map[string][]string{auth.ExtraCredentialID: {"JTI=x"}} }), ""},
			{"a token whose id a rule refuses", "claims", fine + `,"jti":"stolen"`, auth.User{}, "!= ['JTI=stolen']' failed: stolen"},
			{"a token whose id is a number", "claims", fine + `,"jti":1`, bob, ""},
			{"a token that is young", "claims", fine + `,"iat":"x"`, auth.User{}, "oidc: verify token: oidc: failed to unmarshal claims: json: invalid number literal, trying to unmarshal \"\\\"x\\\"\" into Number"},
			{"a token of no time", "claims", fine + `,"iat":null`, auth.User{}, `oidc: verify token: oidc: failed to unmarshal claims: strconv.ParseFloat: parsing "": invalid syntax`},
			{"an audience that is a number", "claims", from + `,"aud":1`, auth.User{}, "oidc: verify token: oidc: failed to unmarshal claims: json: cannot unmarshal number into Go struct field idToken.aud of type []string"},
			{"an audience that is null", "claims", from + `,"aud":null`, auth.User{}, `oidc: verify token: oidc: expected audience in ["a" "b"] got [""]`},
			{"a nonce that is a number", "claims", fine + `,"nonce":1`, auth.User{}, "oidc: verify token: oidc: failed to unmarshal claims: json: cannot unmarshal number into Go struct field idToken.nonce of type string"},
			{"distributed groups that are no token", "claims", fine + fmt.Sprintf(`,"_claim_names":{"groups":"s"},"_claim_sources":{"s":{"endpoint":"%s/keys"}}`, i.URL), auth.User{}, fmt.Sprintf(`oidc: could not expand distributed claims: getting untrusted issuer from endpoint %s/keys failed for claim "groups": malformed token`, i.URL)},

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

func TestATokenNeedsAValidAudienceAndTime(t *testing.T) {
	now := time.Unix(2000000000, 0)
	for _, tc := range []struct {
		name     string
		meantFor []string
		token    idToken
		err      string
	}{
		{"one audience", []string{"a"}, idToken{Audience: audiences{"b"}}, `oidc: expected audience "a" got ["b"]`},
		{"two audiences", []string{"a", "c"}, idToken{Audience: audiences{"b"}}, `oidc: expected audience in ["a" "c"] got ["b"]`},
		{"a minute before its time", []string{"a"}, idToken{Audience: audiences{"a"}, Expiry: at(now, 600), NotBefore: new(at(now, 60))}, ""},
		{"earlier", []string{"a"}, idToken{Audience: audiences{"a"}, Expiry: at(now, 600), NotBefore: new(at(now, 61))}, "oidc: current time 2033-05-18 03:33:20 +0000 UTC before the nbf (not before) time: 2033-05-18 03:34:21 +0000 UTC"},
	} {
		if err := tc.token.check(tc.meantFor, now.UTC()); (err == nil) != (tc.err == "") || err != nil && err.Error() != tc.err {
			t.Errorf("%s: %v, want %s", tc.name, err, tc.err)
		}
	}
}

func at(now time.Time, seconds int) numericDate {
	return numericDate{now.Add(time.Duration(seconds) * time.Second).UTC()}
}
