package token

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/auth/jws"
	"github.com/knarr-project/knarr/internal/auth/pki"
	"github.com/knarr-project/knarr/internal/auth/signer"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/memo"
)

// Config configures a Service.
type Config struct {
	// Issuer is the issuer of new tokens; it defaults to DefaultIssuer. AcceptedIssuers are
	// accepted too.
	Issuer          string
	AcceptedIssuers []string
	// Audiences are the API server's own; they default to all issuers.
	Audiences []string
	// JWKSURI is the URL of the keys for verifiers; it defaults to Issuer + /openid/v1/jwks.
	JWKSURI string
	Keys    *pki.SigningKeys
	// External signs instead of Keys.
	External *signer.Signer
	// Client reads the objects that tokens are bound to, and records the use of legacy tokens. It
	// must be allowed everything.
	Client client.Interface
	// KeepExpiration disables the extension of pods' tokens for the API server to a year (as
	// upstream's --service-account-extend-token-expiration=false).
	KeepExpiration bool
	// MaxExpiration limits the requested lifetime; 0 means no limit.
	MaxExpiration time.Duration
	// Now defaults to time.Now. NewID returns ids of tokens; it defaults to random UUIDs.
	Now   func() time.Time
	NewID func() string
}

// Service issues and authenticates service account tokens. Safe for concurrent use.
type Service struct {
	Config
	signer atomic.Pointer[key]
	keys   atomic.Pointer[keySet]
	// failedRecords holds the Secrets whose use could not be written, with the time of the attempt.
	failedRecords memo.Memo[types.UID, time.Time]
	uses          uses
	cached        cached

	accounts *client.Lazy[*corev1.ServiceAccount]
	secrets  *client.Lazy[*corev1.Secret]
	pods     *client.Lazy[*corev1.Pod]
	nodes    *client.Lazy[*corev1.Node]
}

// New returns a Service that works until ctx ends. It fails for a key of an unknown type.
func New(ctx context.Context, config Config) (*Service, error) {
	s := &Service{
		Config:   config,
		uses:     newUses(),
		cached:   newCached(),
		accounts: client.NewLazy[*corev1.ServiceAccount](ctx, config.Client, nil),
		secrets:  client.NewLazy[*corev1.Secret](ctx, config.Client, nil),
		pods:     client.NewLazy[*corev1.Pod](ctx, config.Client, nil),
		nodes:    client.NewLazy[*corev1.Node](ctx, config.Client, nil),
	}
	if s.Issuer == "" {
		s.Issuer = DefaultIssuer
	}
	if len(s.Audiences) == 0 {
		s.Audiences = append([]string{s.Issuer}, s.AcceptedIssuers...)
	}
	if s.JWKSURI == "" {
		s.JWKSURI = s.Issuer + "/openid/v1/jwks"
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	if s.NewID == nil {
		s.NewID = uuid.NewString
	}
	s.failedRecords.Size = 256
	if s.External != nil {
		return s, nil
	}
	return s, s.Use(config.Keys)
}

// Use replaces the keys of this process. It fails for a key of an unknown type, and changes
// nothing then. It must not be called with an external signer.
func (s *Service) Use(keys *pki.SigningKeys) error {
	set := newKeySet(nil)
	for _, public := range keys.Verifiers {
		k, err := newKey(public)
		if err != nil {
			return err
		}
		set.keys = append(set.keys, k)
	}
	var signer *key
	if keys.Signer != nil {
		var err error
		if signer, err = newKey(keys.Signer.Public()); err != nil {
			return err
		}
		signer.signer = keys.Signer
	}
	// A token of the new key is accepted before the first one is signed.
	s.keys.Store(set)
	s.signer.Store(signer)
	return nil
}

// LegacyToken returns the token that the token controller writes into a Secret of type
// kubernetes.io/service-account-token. It has no expiry and is valid as long as its Secret exists.
func (s *Service) LegacyToken(account *corev1.ServiceAccount, secret *corev1.Secret) (string, error) {
	signer := s.signer.Load()
	if signer == nil {
		return "", errors.New("no key to sign service account tokens with")
	}
	return signer.legacyToken(account, secret)
}

// Stale reports whether a token of LegacyToken is of another key than the one that signs now.
func (s *Service) Stale(token string) bool {
	parts, ok := jws.Split(token)
	signer := s.signer.Load()
	return ok && signer != nil && !(parts.Header.Algorithm == signer.alg && parts.SignedBy(signer.public))
}

// SignLegacy is LegacyToken for a process with the keys but without a Service.
func SignLegacy(keys *pki.SigningKeys, account *corev1.ServiceAccount, secret *corev1.Secret) (string, error) {
	if keys == nil || keys.Signer == nil {
		return "", errors.New("no key to sign service account tokens with")
	}
	k, err := newKey(keys.Signer.Public())
	if err != nil {
		return "", err
	}
	k.signer = keys.Signer
	return k.legacyToken(account, secret)
}

func (k *key) legacyToken(account *corev1.ServiceAccount, secret *corev1.Secret) (string, error) {
	return k.sign(claims{
		Issuer:  legacyIssuer,
		Subject: auth.ServiceAccountName(account.Namespace, account.Name),
		legacy: legacy{
			LegacyNamespace: account.Namespace, LegacySecretName: secret.Name,
			LegacyName: account.Name, LegacyUID: string(account.UID),
		},
	})
}

// ServeConfiguration answers GET /.well-known/openid-configuration.
func (s *Service) ServeConfiguration(w http.ResponseWriter, _ *http.Request) {
	algorithms := map[string]bool{}
	var list []string
	for _, k := range s.keySet().published() {
		if !algorithms[k.alg] {
			algorithms[k.alg] = true
			list = append(list, k.alg)
		}
	}
	s.serveDocument(w, "application/json", map[string]any{
		"issuer":                                s.Issuer,
		"jwks_uri":                              s.JWKSURI,
		"response_types_supported":              []string{"id_token"},
		"subject_types_supported":               []string{"public"},
		"id_token_signing_alg_values_supported": list,
	})
}

// ServeKeys answers GET /openid/v1/jwks.
func (s *Service) ServeKeys(w http.ResponseWriter, _ *http.Request) {
	keys := []jws.Key{}
	for _, k := range s.keySet().published() {
		keys = append(keys, jws.Key{ID: k.id, Algorithm: k.alg, Public: k.public})
	}
	s.serveDocument(w, "application/jwk-set+json", map[string]any{"keys": keys})
}

func (s *Service) serveDocument(w http.ResponseWriter, contentType string, document any) {
	data, err := json.Marshal(document)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", fmt.Sprintf("public, max-age=%d", int(s.keySet().lasts(s.Now()).Seconds())))
	w.Write(data)
}
