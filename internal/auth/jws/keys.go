package jws

import (
	"crypto"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
)

// Key is a public key as published (RFC 7517).
type Key struct {
	ID string
	// Algorithm is the only one that the key is for; empty when the publisher does not say.
	Algorithm string
	Public    crypto.PublicKey
}

// ParseKeys reads a JWK set. Keys for something else than signatures, or of a kind unknown here, are left out, as RFC 7517 wants; a key that
// is broken is an error.
func ParseKeys(data []byte) ([]Key, error) {
	var set struct {
		Keys []jwk `json:"keys"`
	}
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, fmt.Errorf("key set: %w", err)
	}
	var keys []Key
	for i := range set.Keys {
		k := &set.Keys[i]
		if k.Use != "" && k.Use != "sig" {
			continue
		}
		public, err := k.public()
		if err != nil {
			return nil, fmt.Errorf("key set: key %d %q: %w", i, k.ID, err)
		}
		if public != nil {
			keys = append(keys, Key{ID: k.ID, Algorithm: k.Algorithm, Public: public})
		}
	}
	return keys, nil
}

type jwk struct {
	Type      string `json:"kty"`
	Use       string `json:"use"`
	ID        string `json:"kid"`
	Algorithm string `json:"alg"`
	N         string `json:"n"`
	E         string `json:"e"`
	Curve     string `json:"crv"`
	X         string `json:"x"`
	Y         string `json:"y"`
}

// public is nil for a kind of key that no algorithm here uses.
func (k *jwk) public() (crypto.PublicKey, error) {
	switch k.Type {
	case "RSA":
		n, err := decode("n", k.N)
		if err != nil {
			return nil, err
		}
		e, err := decode("e", k.E)
		if err != nil {
			return nil, err
		}
		exponent := new(big.Int).SetBytes(e)
		if !exponent.IsInt64() || exponent.Int64() < 3 || exponent.Int64() >= 1<<31 {
			return nil, errors.New("exponent out of range")
		}
		return &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(exponent.Int64())}, nil
	case "EC":
		return k.ellipticKey()
	}
	return nil, nil
}

func (k *jwk) ellipticKey() (crypto.PublicKey, error) {
	var curve elliptic.Curve
	var check ecdh.Curve // says whether a point is on the curve
	switch k.Curve {
	case "P-256":
		curve, check = elliptic.P256(), ecdh.P256()
	case "P-384":
		curve, check = elliptic.P384(), ecdh.P384()
	case "P-521":
		curve, check = elliptic.P521(), ecdh.P521()
	default:
		return nil, nil
	}
	x, err := decode("x", k.X)
	if err != nil {
		return nil, err
	}
	y, err := decode("y", k.Y)
	if err != nil {
		return nil, err
	}
	size := CoordinateSize(curve)
	if len(x) > size || len(y) > size {
		return nil, errors.New("coordinate too long")
	}
	public := &ecdsa.PublicKey{Curve: curve, X: new(big.Int).SetBytes(x), Y: new(big.Int).SetBytes(y)}
	point := append([]byte{4}, public.X.FillBytes(make([]byte, size))...)
	if _, err := check.NewPublicKey(append(point, public.Y.FillBytes(make([]byte, size))...)); err != nil {
		return nil, err
	}
	return public, nil
}

func decode(name, text string) ([]byte, error) {
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil && len(data) == 0 {
		err = errors.New("is missing")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return data, nil
}
