package token

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"log/slog"
	"slices"
	"time"

	"github.com/knarr-project/knarr/internal/auth/jws"
	"github.com/knarr-project/knarr/internal/auth/signer"
	"github.com/knarr-project/knarr/internal/memo"
)

// keySet holds the keys that verify tokens at one time, and remembers the tokens that they have
// verified. A new set of keys starts without verified tokens.
type keySet struct {
	keys     []*key
	from     *signer.Keys // nil for keys of this process
	verified *memo.Memo[[sha256.Size]byte, *claims]
}

func newKeySet(from *signer.Keys) *keySet {
	return &keySet{from: from, verified: &memo.Memo[[sha256.Size]byte, *claims]{Size: 4096}}
}

// keySet returns the current keys. An external signer may replace its keys at any time.
func (s *Service) keySet() *keySet {
	set := s.keys.Load()
	if s.External == nil {
		return set
	}
	present := s.External.Keys()
	if set != nil && set.from == present {
		return set
	}
	if set != nil && set.from.Same(present) { // fetched again without a change
		set = &keySet{keys: set.keys, from: present, verified: set.verified}
		s.keys.Store(set)
		return set
	}
	set = newKeySet(present)
	for _, known := range present.All {
		k, err := newKey(known.Public)
		if err != nil {
			slog.Warn("ignoring a key of the external signer", "component", "auth", "kid", known.ID, "error", err)
			continue
		}
		k.id, k.unpublished = known.ID, known.Unpublished
		set.keys = append(set.keys, k)
	}
	s.keys.Store(set)
	return set
}

// published returns the keys that other verifiers may fetch.
func (set *keySet) published() []*key {
	return slices.DeleteFunc(slices.Clone(set.keys), func(k *key) bool { return k.unpublished })
}

// lasts returns how long a verifier may cache the published keys.
func (set *keySet) lasts(now time.Time) time.Duration {
	if set.from == nil {
		return time.Hour
	}
	return set.from.Left(now)
}

// verify reports whether one of the keys signed the token, and whether the set has the key that the
// token names.
func (set *keySet) verify(p *jws.Parts) (signed, known bool) {
	for _, k := range set.keys {
		// Old tokens carry no key ID. The key decides the algorithm, never the token.
		if p.Header.KeyID != "" && p.Header.KeyID != k.id {
			continue
		}
		known = true
		if p.Header.Algorithm == k.alg && p.SignedBy(k.public) {
			return true, true
		}
	}
	return false, known
}

// verifySignature returns the keys that verify the token's signature, or errSignature. When the
// token names an unknown key, it fetches the keys of an external signer again: the key may be new.
func (s *Service) verifySignature(ctx context.Context, p *jws.Parts) (*keySet, error) {
	set := s.keySet()
	signed, known := set.verify(p)
	if !known && s.External != nil {
		if err := s.External.Fetch(ctx); err != nil {
			return nil, err
		}
		set = s.keySet()
		signed, _ = set.verify(p)
	}
	if !signed {
		return nil, errSignature
	}
	return set, nil
}

// sign makes a token.
func (s *Service) sign(ctx context.Context, c *claims) (string, error) {
	if s.External == nil {
		return s.signer.Load().sign(c)
	}
	payload, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	return s.External.Sign(ctx, payload)
}
