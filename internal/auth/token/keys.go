package token

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"log/slog"
	"slices"
	"time"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/auth/jws"
	"github.com/knarr-project/knarr/internal/auth/signer"
)

// keySet are the keys that count at a time, and the tokens whose signature one of them has made: with the keys, these are forgotten.
type keySet struct {
	keys     []*key
	from     *signer.Keys // nil for keys of this process
	verified *auth.Memo[[sha256.Size]byte, *claims]
}

func newKeySet(from *signer.Keys) *keySet {
	return &keySet{from: from, verified: &auth.Memo[[sha256.Size]byte, *claims]{Size: 4096}}
}

// keySet is the present one. Where others sign, they may have other keys at any time.
func (s *Service) keySet() *keySet {
	set := s.keys.Load()
	if s.External == nil {
		return set
	}
	present := s.External.Keys()
	if set != nil && set.from == present {
		return set
	}
	if set != nil && set.from.Same(present) { // told once more
		set = &keySet{keys: set.keys, from: present, verified: set.verified}
		s.keys.Store(set)
		return set
	}
	set = newKeySet(present)
	for _, known := range present.All {
		k, err := newKey(known.Public)
		if err != nil {
			slog.Warn("a key of the external signer is of no use", "component", "auth", "kid", known.ID, "error", err)
			continue
		}
		k.id, k.unpublished = known.ID, known.Unpublished
		set.keys = append(set.keys, k)
	}
	s.keys.Store(set)
	return set
}

// published are those that verifiers elsewhere are told of.
func (set *keySet) published() []*key {
	return slices.DeleteFunc(slices.Clone(set.keys), func(k *key) bool { return k.unpublished })
}

// lasts is how long what is said of the keys may be believed.
func (set *keySet) lasts(now time.Time) time.Duration {
	if set.from == nil {
		return time.Hour
	}
	return set.from.Left(now)
}

// verify tells whether one of the keys has signed, and whether the key that is named is one of them.
func (set *keySet) verify(p *jws.Parts) (signed, known bool) {
	for _, k := range set.keys {
		// Old tokens carry no key id. The algorithm is the key's own: a token does not get to choose it.
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

// verifySignature finds out whether one of the keys has signed. One that is not known may be a new one of an external signer.
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
		return s.signer.sign(c)
	}
	payload, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	return s.External.Sign(ctx, payload)
}
