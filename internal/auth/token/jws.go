package token

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	_ "crypto/sha256" // hashes of ES256 and RS256
	_ "crypto/sha512" // hashes of ES384 and ES512
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
)

// key is one signing or verifying key with its JWS names (RFC 7518).
type key struct {
	public crypto.PublicKey
	signer crypto.Signer // nil for a key that only verifies
	id     string        // the hash of the public key, as upstream names keys
	alg    string        // ES256, ES384, ES512 or RS256
	hash   crypto.Hash
}

func newKey(public crypto.PublicKey) (*key, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return nil, fmt.Errorf("service account key: %w", err)
	}
	digest := crypto.SHA256.New()
	digest.Write(der)
	k := &key{public: public, id: base64.RawURLEncoding.EncodeToString(digest.Sum(nil))}
	switch p := public.(type) {
	case *ecdsa.PublicKey:
		switch p.Curve {
		case elliptic.P256():
			k.alg, k.hash = "ES256", crypto.SHA256
		case elliptic.P384():
			k.alg, k.hash = "ES384", crypto.SHA384
		case elliptic.P521():
			k.alg, k.hash = "ES512", crypto.SHA512
		default:
			return nil, fmt.Errorf("service account key: curve %s is not P-256, P-384 or P-521", p.Curve.Params().Name)
		}
	case *rsa.PublicKey:
		k.alg, k.hash = "RS256", crypto.SHA256
	default:
		return nil, fmt.Errorf("service account key: a %T is neither ECDSA nor RSA", public)
	}
	return k, nil
}

type jwsHeader struct {
	Algorithm string `json:"alg"`
	KeyID     string `json:"kid,omitempty"`
}

// sign makes a compact JWS of the claims.
func (k *key) sign(claims any) (string, error) {
	header, err := json.Marshal(jwsHeader{Algorithm: k.alg, KeyID: k.id})
	if err != nil {
		return "", err
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	signed := base64.RawURLEncoding.EncodeToString(header) + "." + base64.RawURLEncoding.EncodeToString(payload)
	digest := k.digest(signed)
	var signature []byte
	switch signer := k.signer.(type) {
	case *ecdsa.PrivateKey:
		r, s, err := ecdsa.Sign(rand.Reader, signer, digest)
		if err != nil {
			return "", err
		}
		size := (signer.Curve.Params().BitSize + 7) / 8
		signature = make([]byte, 2*size)
		r.FillBytes(signature[:size])
		s.FillBytes(signature[size:])
	default:
		if signature, err = k.signer.Sign(rand.Reader, digest, k.hash); err != nil {
			return "", err
		}
	}
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}

func (k *key) digest(signed string) []byte {
	h := k.hash.New()
	h.Write([]byte(signed))
	return h.Sum(nil)
}

func (k *key) verify(signed string, signature []byte) bool {
	digest := k.digest(signed)
	switch p := k.public.(type) {
	case *ecdsa.PublicKey:
		size := (p.Curve.Params().BitSize + 7) / 8
		if len(signature) != 2*size {
			return false
		}
		return ecdsa.Verify(p, digest, new(big.Int).SetBytes(signature[:size]), new(big.Int).SetBytes(signature[size:]))
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(p, k.hash, digest, signature) == nil
	}
	return false
}

var errSignature = errors.New("invalid signature")

// parts are the three of a compact JWS, decoded. signed is what the signature covers.
type parts struct {
	header    jwsHeader
	payload   []byte
	signed    string
	signature []byte
}

// split takes a compact JWS apart; ok is false for anything else.
func split(token string) (p parts, ok bool) {
	dot := strings.LastIndexByte(token, '.')
	if dot < 0 {
		return p, false
	}
	header, payload, found := strings.Cut(token[:dot], ".")
	if !found || strings.Contains(payload, ".") {
		return p, false
	}
	p.signed = token[:dot]
	rawHeader, err := base64.RawURLEncoding.DecodeString(header)
	if err != nil || json.Unmarshal(rawHeader, &p.header) != nil {
		return p, false
	}
	if p.payload, err = base64.RawURLEncoding.DecodeString(payload); err != nil || !bytes.HasPrefix(p.payload, []byte("{")) {
		return p, false
	}
	p.signature, err = base64.RawURLEncoding.DecodeString(token[dot+1:])
	return p, err == nil
}

// jwk is the key as published (RFC 7517).
func (k *key) jwk() map[string]string {
	out := map[string]string{"use": "sig", "kid": k.id, "alg": k.alg}
	switch p := k.public.(type) {
	case *ecdsa.PublicKey:
		size := (p.Curve.Params().BitSize + 7) / 8
		out["kty"], out["crv"] = "EC", p.Curve.Params().Name
		out["x"] = base64.RawURLEncoding.EncodeToString(p.X.FillBytes(make([]byte, size)))
		out["y"] = base64.RawURLEncoding.EncodeToString(p.Y.FillBytes(make([]byte, size)))
	case *rsa.PublicKey:
		out["kty"] = "RSA"
		out["n"] = base64.RawURLEncoding.EncodeToString(p.N.Bytes())
		out["e"] = base64.RawURLEncoding.EncodeToString(big.NewInt(int64(p.E)).Bytes())
	}
	return out
}
