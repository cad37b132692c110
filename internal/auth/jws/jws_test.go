package jws

import (
	"crypto/ecdsa"
	"crypto/rsa"
	"encoding/base64"
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
		"too long":                      {`{"keys":[` + strings.Replace(p256, `"x":"`, `"x":"AAAA`, 1) + `]}`, 0, "coordinate too long"},
		"without a coordinate":          {`{"keys":[{"kty":"EC","crv":"P-256","x":"AA"}]}`, 0, "y: is missing"},
		"RSA":                           {`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}`, 1, ""},
		"RSA with an exponent of one":   {`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQ"}]}`, 0, "exponent out of range"},
		"RSA with an enormous exponent": {`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQABAQABAQABAQAB"}]}`, 0, "exponent out of range"},
		"not base64":                    {`{"keys":[{"kty":"RSA","n":"***","e":"AQAB"}]}`, 0, "n: illegal base64"},
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

func FuzzSplitAndParseKeys(f *testing.F) {
	f.Add("eyJhbGciOiJFUzI1NiJ9.e30.AAAA")
	f.Add(`{"keys":[{"kty":"EC","crv":"P-384","x":"AA","y":"AA"},{"kty":"RSA","n":"AQAB","e":"AQAB"}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		keys, err := ParseKeys([]byte(text))
		if err == nil {
			for _, k := range keys {
				switch k.Public.(type) {
				case *rsa.PublicKey, *ecdsa.PublicKey:
				default:
					t.Errorf("a %T", k.Public)
				}
				if Verify("ES256", k.Public, text, []byte(text)) {
					t.Error("a signature of nobody is believed")
				}
			}
		}
		if p, ok := Split(text); ok && !strings.HasPrefix(text, p.Signed+".") {
			t.Errorf("%q covers %q", text, p.Signed)
		}
	})
}
