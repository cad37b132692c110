// Package jws reads and checks compact JSON Web Signatures (RFC 7515), and the keys that issuers publish for them (RFC 7517). Only
// asymmetric algorithms exist here: a token never chooses that a public key is a secret, or that nothing is signed.
package jws

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	_ "crypto/sha256" // hashes of the algorithms that end in 256
	_ "crypto/sha512" // hashes of the algorithms that end in 384 and 512
	"encoding/base64"
	"encoding/json"
	"math/big"
	"strings"
)

// Header is what a signature says of itself.
type Header struct {
	Algorithm string `json:"alg"`
	KeyID     string `json:"kid,omitempty"`
}

// Parts are the three of a compact JWS, decoded. Signed is what the signature covers.
type Parts struct {
	Header    Header
	Payload   []byte
	Signed    string
	Signature []byte
}

// Split takes a compact JWS of a JSON object apart; ok is false for anything else.
func Split(token string) (p Parts, ok bool) {
	dot := strings.LastIndexByte(token, '.')
	if dot < 0 {
		return p, false
	}
	header, payload, found := strings.Cut(token[:dot], ".")
	if !found || strings.Contains(payload, ".") {
		return p, false
	}
	p.Signed = token[:dot]
	rawHeader, err := base64.RawURLEncoding.DecodeString(header)
	if err != nil {
		return p, false
	}
	// What a header calls critical must be understood, or the whole refused (RFC 7515, 4.1.11): nothing that it could name is.
	var critical struct {
		Names json.RawMessage `json:"crit"`
	}
	if json.Unmarshal(rawHeader, &p.Header) != nil || json.Unmarshal(rawHeader, &critical) != nil || critical.Names != nil {
		return p, false
	}
	if p.Payload, err = base64.RawURLEncoding.DecodeString(payload); err != nil || !bytes.HasPrefix(p.Payload, []byte("{")) {
		return p, false
	}
	p.Signature, err = base64.RawURLEncoding.DecodeString(token[dot+1:])
	return p, err == nil
}

// algorithm is a name of RFC 7518 taken apart.
type algorithm struct {
	hash  crypto.Hash
	curve elliptic.Curve // of ES…, nil for the others
	pss   bool           // PS…, else RS…
}

var algorithms = map[string]algorithm{
	"RS256": {hash: crypto.SHA256}, "RS384": {hash: crypto.SHA384}, "RS512": {hash: crypto.SHA512},
	"PS256": {hash: crypto.SHA256, pss: true}, "PS384": {hash: crypto.SHA384, pss: true}, "PS512": {hash: crypto.SHA512, pss: true},
	"ES256": {hash: crypto.SHA256, curve: elliptic.P256()}, "ES384": {hash: crypto.SHA384, curve: elliptic.P384()}, "ES512": {hash: crypto.SHA512, curve: elliptic.P521()},
}

// Known tells whether signatures of the algorithm can be checked.
func Known(name string) bool {
	_, ok := algorithms[name]
	return ok
}

// Hash is what an algorithm signs: the digest and the function that made it. The algorithm must be Known.
func Hash(name, signed string) (digest []byte, hash crypto.Hash) {
	a := algorithms[name]
	h := a.hash.New()
	h.Write([]byte(signed))
	return h.Sum(nil), a.hash
}

// Verify tells whether the signature is one of the key over what is signed. A key of another kind than the algorithm's has made none.
func Verify(name string, key crypto.PublicKey, signed string, signature []byte) bool {
	a, ok := algorithms[name]
	if !ok {
		return false
	}
	digest, _ := Hash(name, signed)
	switch k := key.(type) {
	case *ecdsa.PublicKey:
		if a.curve == nil || k.Curve != a.curve {
			return false
		}
		size := CoordinateSize(k.Curve)
		if len(signature) != 2*size {
			return false
		}
		return ecdsa.Verify(k, digest, new(big.Int).SetBytes(signature[:size]), new(big.Int).SetBytes(signature[size:]))
	case *rsa.PublicKey:
		switch {
		case a.curve != nil:
			return false
		case a.pss:
			return rsa.VerifyPSS(k, a.hash, digest, signature, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash}) == nil
		}
		return rsa.VerifyPKCS1v15(k, a.hash, digest, signature) == nil
	}
	return false
}

// CoordinateSize is how many bytes a coordinate, or half a signature, has on the wire.
func CoordinateSize(curve elliptic.Curve) int { return (curve.Params().BitSize + 7) / 8 }
