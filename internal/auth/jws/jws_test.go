package jws

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
)

func TestKeySets(t *testing.T) {
	// The points are the generators of their curves.
	const p256 = `{"kty":"EC","crv":"P-256","kid":"a","alg":"ES256","x":"axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY","y":"T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU"}`
	for name, tc := range map[string]struct {
		set  string
		keys int
		err  string
	}{
		"none":                          {`{"keys":[]}`, 0, ""},
		"one":                           {`{"keys":[` + p256 + `]}`, 1, ""},
		"for something else":            {`{"keys":[` + strings.Replace(p256, `"kid"`, `"use":"enc","kid"`, 1) + `]}`, 0, ""},
		"of an unknown kind":            {`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AA"},{"kty":"oct","k":"AA"},{"kty":"EC","crv":"secp256k1"}]}`, 0, ""},
		"beside its curve":              {`{"keys":[` + strings.Replace(p256, "axfR", "AAAA", 1) + `]}`, 0, `key set: key 0 "a": `},
		"too long":                      {`{"keys":[` + strings.Replace(p256, `"x":"`, `"x":"AAAA`, 1) + `]}`, 0, "wrong length for x"},
		"without a coordinate":          {`{"keys":[{"kty":"EC","crv":"P-256","x":"AA"}]}`, 0, "missing x/y values"},
		"RSA":                           {`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}`, 1, ""},
		"RSA with an exponent of one":   {`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQ"}]}`, 0, "bad e value"},
		"RSA with an enormous exponent": {`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQABAQABAQABAQAB"}]}`, 0, "bad e value"},
		"RSA with an exponent of two":   {`{"keys":[{"kty":"RSA","n":"AQAB","e":"Ag"}]}`, 0, "exponent or modulus out of range"},
		"RSA without a modulus":         {`{"keys":[{"kty":"RSA","n":"","e":"AQAB"}]}`, 0, "key set: key 0"},
		"RSA with an enormous modulus":  {`{"keys":[{"kty":"RSA","n":"` + strings.Repeat("AQAB", 10000) + `","e":"AQAB"}]}`, 0, ""},
		"with a broken certificate":     {`{"keys":[` + strings.Replace(p256, `"kid"`, `"x5c":["***"],"x5t":1,"kid"`, 1) + `]}`, 1, ""},
		"not base64":                    {`{"keys":[{"kty":"RSA","n":"***","e":"AQAB"}]}`, 0, "illegal base64"},
		"no JSON":                       {`keys`, 0, "key set: invalid character"},
	} {
		keys, err := ParseKeys([]byte(tc.set))
		if len(keys) != tc.keys || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %v %v", name, keys, err)
		}
	}
}

func TestSplit(t *testing.T) {
	b64 := base64.RawURLEncoding.EncodeToString
	for name, tc := range map[string]struct {
		token string
		ok    bool
	}{
		"a token":                     {b64([]byte(`{"alg":"ES256","typ":"JWT"}`)) + ".e30.AAAA", true},
		"critical extensions":         {b64([]byte(`{"alg":"ES256","crit":["b64"],"b64":false}`)) + ".e30.AAAA", false},
		"an empty list of them":       {b64([]byte(`{"alg":"ES256","crit":[]}`)) + ".e30.AAAA", false},
		"none of them, said in words": {b64([]byte(`{"alg":"ES256","crit":null}`)) + ".e30.AAAA", false},
		"two parts":                   {b64([]byte(`{"alg":"ES256"}`)) + ".e30", false},
		"four parts":                  {b64([]byte(`{"alg":"ES256"}`)) + ".e30.AAAA.AAAA", false},
		"a payload that is a list":    {b64([]byte(`{"alg":"ES256"}`)) + "." + b64([]byte("[]")) + ".AAAA", false},
		"padding":                     {b64([]byte(`{"alg":"ES256"}`)) + ".e30=.AAAA", false},
	} {
		if _, ok := Split(tc.token); ok != tc.ok {
			t.Errorf("%s: %v", name, ok)
		}
	}
}

func TestTheOwnerOfAKeySigns(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	elliptical := func(curve elliptic.Curve) *ecdsa.PrivateKey {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	p256, p384, p521 := elliptical(elliptic.P256()), elliptical(elliptic.P384()), elliptical(elliptic.P521())
	keys := map[string]crypto.Signer{
		"RS256": rsaKey, "RS384": rsaKey, "RS512": rsaKey, "PS256": rsaKey, "PS384": rsaKey, "PS512": rsaKey, "ES256": p256, "ES384": p384, "ES512": p521,
	}
	for name, key := range keys {
		token, err := Sign(Header{name, "id"}, key, []byte(`{"iss":"a"}`))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		p, ok := Split(token)
		if !ok || p.Header != (Header{name, "id"}) || string(p.Payload) != `{"iss":"a"}` {
			t.Fatalf("%s: %v %+v", name, ok, p)
		}
		for _, other := range []crypto.Signer{rsaKey, p256, p384, p521, elliptical(elliptic.P256())} {
			if p.SignedBy(other.Public()) != (other == key) {
				t.Errorf("%s: is it signed by a %T? %v", name, other, p.SignedBy(other.Public()))
			}
		}
		if changed, ok := Split(strings.Replace(token, ".e", ".f", 1)); ok && changed.SignedBy(key.Public()) {
			t.Errorf("%s: a changed payload has a signature", name)
		}
	}
}

// Tokens with other algorithms are parsed, so that an error can name the algorithm. No key has
// signed them.
func TestUnknownAlgorithmsSignNothing(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	b64 := base64.RawURLEncoding.EncodeToString
	for _, name := range []string{"none", "None", "HS256", "EdDSA", ""} {
		p, ok := Split(b64([]byte(`{"alg":"`+name+`"}`)) + ".e30.")
		if !ok || p.Header.Algorithm != name || p.SignedBy(key.Public()) || Known(name) {
			t.Errorf("%q: %v %+v", name, ok, p)
		}
	}
}

// The library verifies the parts encoded again. A text that differs from that is another token.
func TestATokenHasOneText(t *testing.T) {
	token := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256"}`)) + ".e30.AAAA"
	for name, other := range map[string]string{
		"bits behind the end of the payload": strings.Replace(token, ".e30.", ".e31.", 1),
		"a line break in the payload":        strings.Replace(token, ".e30.", ".e3\n0.", 1),
		"a line break in the header":         token[:4] + "\n" + token[4:],
		"space before the token":             " " + token,
	} {
		if _, ok := Split(other); ok {
			t.Errorf("%s: it is a token", name)
		}
	}
	if _, ok := Split(token); !ok {
		t.Error("without changes it is none")
	}
}

func TestKeysArePublishedAsTheyAreRead(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(map[string]any{"keys": []Key{{"id", "ES512", key.Public()}}})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := ParseKeys(raw)
	if err != nil || len(keys) != 1 || keys[0].ID != "id" || keys[0].Algorithm != "ES512" || !key.PublicKey.Equal(keys[0].Public) || !strings.Contains(string(raw), `"use":"sig"`) {
		t.Errorf("%s: %v %v", raw, keys, err)
	}
}

func FuzzSplitAndParseKeys(f *testing.F) {
	const set = `{"keys":[{"kty":"EC","crv":"P-256","x":"axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY","y":"T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU"},{"kty":"RSA","n":"AQAB","e":"AQAB"}]}`
	f.Add("eyJhbGciOiJFUzI1NiJ9.e30.AAAA", set)
	f.Add("eyJhbGciOiJFUzI1NiJ9.e30.AAAA", `{"keys":[{"kty":"EC","crv":"P-384","x":"AA","y":"AA"}]}`)
	f.Fuzz(func(t *testing.T, token, set string) {
		p, ok := Split(token)
		if ok && !strings.HasPrefix(string(p.Payload), "{") {
			t.Errorf("the payload is %q", p.Payload)
		}
		keys, err := ParseKeys([]byte(set))
		if err != nil {
			return
		}
		for _, k := range keys {
			switch k.Public.(type) {
			case *rsa.PublicKey, *ecdsa.PublicKey:
			default:
				t.Errorf("a %T", k.Public)
			}
			if ok && p.SignedBy(k.Public) {
				t.Error("a signature of no key is accepted")
			}
		}
	})
}
