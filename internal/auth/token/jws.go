package token

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/knarr-project/knarr/internal/auth/jws"
)

// key is one signing or verifying key with its JWS names (RFC 7518).
type key struct {
	public crypto.PublicKey
	signer crypto.Signer // nil for a key that only verifies
	id     string        // a hash of the public key, as upstream computes it
	alg    string        // ES256, ES384, ES512 or RS256
	// unpublished keys verify tokens, but other verifiers cannot fetch them.
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

// sign returns a compact JWS of the claims.
func (k *key) sign(claims any) (string, error) {
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	return jws.Sign(jws.Header{Algorithm: k.alg, KeyID: k.id}, k.signer, payload)
}

var errSignature = errors.New("invalid signature")
