package jws

import (
	"crypto"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"
)

// Key is a public key as published (RFC 7517).
type Key struct {
	ID string
	// Algorithm is the only one that the key is for; empty: the publisher does not say.
	Algorithm string
	Public    crypto.PublicKey
}

// MarshalJSON implements json.Marshaler: a JWK for signatures.
func (k Key) MarshalJSON() ([]byte, error) {
	return json.Marshal(jose.JSONWebKey{Key: k.Public, KeyID: k.ID, Algorithm: k.Algorithm, Use: use})
}

const use = "sig"

// published has the members of a JWK that this package reads. Others, such as certificates, must
// not break a key set.
type published struct {
	Type      string `json:"kty"`
	Use       string `json:"use,omitempty"`
	ID        string `json:"kid,omitempty"`
	Algorithm string `json:"alg,omitempty"`
	N         string `json:"n,omitempty"`
	E         string `json:"e,omitempty"`
	Curve     string `json:"crv,omitempty"`
	X         string `json:"x,omitempty"`
	Y         string `json:"y,omitempty"`
}

// ParseKeys parses a JWK set. It skips keys for other uses than signatures, and keys of unknown
// kinds (RFC 7517, 5). A broken key is an error.
func ParseKeys(data []byte) ([]Key, error) {
	var set struct {
		Keys []published `json:"keys"`
	}
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, fmt.Errorf("key set: %w", err)
	}
	var keys []Key
	for i, k := range set.Keys {
		if !k.verifies() {
			continue
		}
		public, err := k.public()
		if errors.Is(err, jose.ErrUnsupportedKeyType) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("key set: key %d %q: %w", i, k.ID, err)
		}
		keys = append(keys, Key{ID: k.ID, Algorithm: k.Algorithm, Public: public})
	}
	return keys, nil
}

// verifies reports whether a key is of a known kind and for signatures.
func (k *published) verifies() bool {
	known := k.Type == "RSA" || k.Type == "EC" && (k.Curve == "P-256" || k.Curve == "P-384" || k.Curve == "P-521")
	return known && (k.Use == "" || k.Use == use)
}

func (k *published) public() (crypto.PublicKey, error) {
	raw, err := json.Marshal(k)
	if err != nil {
		return nil, err
	}
	var key jose.JSONWebKey
	if err := key.UnmarshalJSON(raw); err != nil {
		return nil, err
	}
	// The library accepts exponents that crypto/rsa refuses later.
	if r, ok := key.Key.(*rsa.PublicKey); ok && (r.E < 3 || r.E >= 1<<31 || r.N.Sign() == 0) {
		return nil, errors.New("exponent or modulus out of range")
	}
	return key.Key, nil
}
