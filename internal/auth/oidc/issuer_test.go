package oidc

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/knarr-project/knarr/internal/auth/jws"
)

var b64 = base64.RawURLEncoding.EncodeToString

// issuer is an OpenID provider with any number of keys.
type issuer struct {
	*httptest.Server
	mu    sync.Mutex // guards the fields below
	keys  map[string]crypto.Signer
	name  string // its issuer name, if that is not its URL
	away  bool
	asked int // number of requests for its keys
	// keyless makes requests for its keys fail.
	keyless bool
}

func startIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{keys: map[string]crypto.Signer{"ec": ecKey(t), "rsa": rsaKey(t)}}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.away {
			http.Error(w, "away", http.StatusServiceUnavailable)
			return
		}
		name := i.name
		if name == "" {
			name = i.URL
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": name, "jwks_uri": i.URL + "/keys"})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.asked++
		if i.keyless {
			http.Error(w, "not now", http.StatusServiceUnavailable)
			return
		}
		// Keys for other purposes.
		list := []any{map[string]string{"kty": "oct", "k": "AAAA"}, map[string]string{"kty": "RSA", "use": "enc"}}
		for id, key := range i.keys {
			list = append(list, published(id, key.Public()))
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": list})
	})
	mux.HandleFunc("/groups", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer access" {
			http.Error(w, "", http.StatusForbidden)
			return
		}
		_, _ = w.Write([]byte(i.sign(t, "ES256", "ec", fmt.Sprintf(`{"iss":%q,"aud":"a","exp":4000000000,"groups":["far","away"]}`, i.URL))))
	})
	i.Server = httptest.NewTLSServer(mux)
	i.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	t.Cleanup(i.Close)
	return i
}

func ecKey(t *testing.T) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func rsaKey(t *testing.T) crypto.Signer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func published(id string, public crypto.PublicKey) map[string]string {
	switch k := public.(type) {
	case *ecdsa.PublicKey:
		return map[string]string{"kty": "EC", "crv": "P-256", "kid": id, "alg": "ES256", "use": "sig",
			"x": b64(k.X.FillBytes(make([]byte, 32))), "y": b64(k.Y.FillBytes(make([]byte, 32)))}
	case *rsa.PublicKey:
		return map[string]string{"kty": "RSA", "kid": id, "n": b64(k.N.Bytes()), "e": b64(big.NewInt(int64(k.E)).Bytes())}
	}
	return nil
}

func (i *issuer) ca() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.Certificate().Raw}))
}

// sign returns a token with the claims; "unknown" names a key that the issuer does not have.
func (i *issuer) sign(t *testing.T, algorithm, kid, claims string) string {
	t.Helper()
	i.mu.Lock()
	key := i.keys[kid]
	i.mu.Unlock()
	if key == nil {
		key = ecKey(t)
	}
	if token, err := jws.Sign(jws.Header{Algorithm: algorithm, KeyID: kid}, key, []byte(claims)); err == nil {
		return token
	}
	// The algorithm is unknown or does not fit the key.
	header, err := json.Marshal(map[string]string{"alg": algorithm, "kid": kid})
	if err != nil {
		t.Fatal(err)
	}
	signed := b64(header) + "." + b64([]byte(claims))
	digest := sha256.Sum256([]byte(signed))
	signature, err := key.Sign(rand.Reader, digest[:], crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	return signed + "." + b64(signature)
}
