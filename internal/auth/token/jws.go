package token

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"

	"github.com/knarr-project/knarr/internal/auth/jws"
)

// key is one signing or verifying key with its JWS names (RFC 7518).
type key struct {
	public crypto.PublicKey
	signer crypto.Signer // nil for a key that only verifies
	id     string        // the hash of the public key, as upstream names keys
	alg    string        // ES256, ES384, ES512 or RS256
	// unpublished keys verify tokens here only.
	unpublished bool
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
			k.alg = "ES256"
		case elliptic.P384():
			k.alg = "ES384"
		case elliptic.P521():
			k.alg = "ES512"
		default:
			return nil, fmt.Errorf("service account key: curve %s is not P-256, P-384 or P-521", p.Curve.Params().Name)
		}
	case *rsa.PublicKey:
		k.alg = "RS256"
	default:
		return nil, fmt.Errorf("service account key: a %T is neither ECDSA nor RSA", public)
	}
	return k, nil
}

// sign makes a compact JWS of the claims.
func (k *key) sign(claims any) (string, error) {
	header, err := json.Marshal(jws.Header{Algorithm: k.alg, KeyID: k.id})
	if err != nil {
		return "", err
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	signed := base64.RawURLEncoding.EncodeToString(header) + "." + base64.RawURLEncoding.EncodeToString(payload)
	digest, hash := jws.Hash(k.alg, signed)
	var signature []byte
	switch signer := k.signer.(type) {
	case *ecdsa.PrivateKey:
		r, s, err := ecdsa.Sign(rand.Reader, signer, digest)
		if err != nil {
			return "", err
		}
		size := jws.CoordinateSize(signer.Curve)
		signature = make([]byte, 2*size)
		r.FillBytes(signature[:size])
		s.FillBytes(signature[size:])
	default:
		if signature, err = k.signer.Sign(rand.Reader, digest, hash); err != nil {
			return "", err
		}
	}
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}

func (k *key) verify(signed string, signature []byte) bool {
	return jws.Verify(k.alg, k.public, signed, signature)
}

var errSignature = errors.New("invalid signature")

// jwk is the key as published (RFC 7517).
func (k *key) jwk() map[string]string {
	out := map[string]string{"use": "sig", "kid": k.id, "alg": k.alg}
	switch p := k.public.(type) {
	case *ecdsa.PublicKey:
		size := jws.CoordinateSize(p.Curve)
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
