// Package jws reads, verifies and makes compact JSON Web Signatures (RFC 7515), and reads the keys
// that issuers publish for them (RFC 7517). The format and the cryptography are go-jose's.
//
// The package narrows the library to what tokens of Kubernetes need. Only asymmetric algorithms
// exist: a token cannot ask for HMAC with a public key as its secret, or for no signature at all. A
// critical header is refused, because none is understood here (RFC 7515, 4.1.11).
package jws

import (
	"bytes"
	"crypto"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// algorithms are those that the package verifies.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512,
}

// Known reports whether signatures of an algorithm can be verified.
func Known(name string) bool { return slices.Contains(algorithms, jose.SignatureAlgorithm(name)) }

// Header has the fields of a token's header that matter here.
type Header struct{ Algorithm, KeyID string }

// Parts are the parts of a compact JWS. Nothing in them is verified.
type Parts struct {
	Header  Header
	Payload []byte // a JSON object, by its first byte

	parsed *jose.JSONWebSignature
}

// Split parses a compact JWS whose payload is a JSON object. ok is false for anything else. The
// algorithm may be unknown.
func Split(token string) (p Parts, ok bool) {
	parsed, err := jose.ParseSignedCompact(token, algorithms)
	if other := (*jose.ErrUnexpectedSignatureAlgorithm)(nil); errors.As(err, &other) {
		parsed, err = jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{other.Got})
	}
	if err != nil {
		return p, false
	}
	header := parsed.Signatures[0].Header
	p = Parts{Header: Header{header.Algorithm, header.KeyID}, Payload: parsed.UnsafePayloadWithoutVerification(), parsed: parsed}
	return p, bytes.HasPrefix(p.Payload, []byte("{")) && p.covers(token)
}

// covers reports whether a signature of the parts is one of the token's text, without a critical
// header. The library encodes the parts again to verify a signature, and base64 has several forms
// of some values.
func (p *Parts) covers(token string) bool {
	header, rest, _ := strings.Cut(token, ".")
	payload, _, _ := strings.Cut(rest, ".")
	raw, err := base64.RawURLEncoding.DecodeString(header)
	if err != nil || base64.RawURLEncoding.EncodeToString(raw) != header || base64.RawURLEncoding.EncodeToString(p.Payload) != payload {
		return false
	}
	var critical struct {
		Names json.RawMessage `json:"crit"`
	}
	return json.Unmarshal(raw, &critical) == nil && critical.Names == nil
}

// SignedBy reports whether the owner of a public key signed the token. The algorithm must be known
// and fit the key.
func (p *Parts) SignedBy(key crypto.PublicKey) bool {
	if !Known(p.Header.Algorithm) {
		return false
	}
	_, err := p.parsed.Verify(key)
	return err == nil
}

// Sign returns the compact JWS of a payload. The key is an RSA or ECDSA private key that fits the
// algorithm.
func Sign(h Header, key crypto.PrivateKey, payload []byte) (string, error) {
	signer, err := jose.NewSigner(jose.SigningKey{
		Algorithm: jose.SignatureAlgorithm(h.Algorithm), Key: jose.JSONWebKey{Key: key, KeyID: h.KeyID},
	}, nil)
	if err != nil {
		return "", err
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}
