package pki

import (
	"bytes"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/util/keyutil"

	"github.com/knarr-project/knarr/internal/durable"
)

// SigningKeys signs and verifies service account tokens. Signer (sa.key) signs them; tokens signed
// by any key in Verifiers are accepted. sa.pub may hold several keys, so that a key can be rotated.
type SigningKeys struct {
	Signer    crypto.Signer
	Verifiers []crypto.PublicKey
}

// ReadSigningKey reads a key in PEM that signs tokens.
func ReadSigningKey(path string) (*SigningKeys, error) {
	keyPEM, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	signer, err := ParseSigner(keyPEM)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &SigningKeys{Signer: signer, Verifiers: []crypto.PublicKey{signer.Public()}}, nil
}

// With returns the keys for the flags' files. signerFile, if set, replaces the folder's key: then
// only tokens of its key and of the keys in verifierFiles are accepted. Without it, verifierFiles
// are added to the folder's keys.
func (k *SigningKeys) With(signerFile string, verifierFiles []string) (*SigningKeys, error) {
	out := &SigningKeys{Signer: k.Signer, Verifiers: slices.Clone(k.Verifiers)}
	var signer []any
	if signerFile != "" {
		own, err := ReadSigningKey(signerFile)
		if err != nil {
			return nil, fmt.Errorf("service account key: %w", err)
		}
		out, signer = &SigningKeys{Signer: own.Signer}, []any{own.Signer.Public()}
	}
	for _, path := range verifierFiles {
		public, err := keyutil.PublicKeysFromFile(path)
		if err != nil {
			return nil, fmt.Errorf("service account keys: %w", err)
		}
		out.accept(public)
	}
	out.accept(signer)
	return out, nil
}

// accept adds the keys that are missing.
func (k *SigningKeys) accept(public []any) {
	for _, p := range public {
		if !slices.ContainsFunc(k.Verifiers, func(known crypto.PublicKey) bool { return SamePublicKey(known, p) }) {
			k.Verifiers = append(k.Verifiers, p)
		}
	}
}

// TokenKeys holds the SigningKeys of the folder as they are now. Safe for concurrent use.
//
// On disk, sa.key signs and sa.pub holds all keys whose tokens are accepted. Every state between
// two writes of Adopt can be opened.
type TokenKeys struct {
	dir     string
	current atomic.Pointer[SigningKeys]

	mu      sync.Mutex // held by Adopt
	changed atomic.Pointer[chan struct{}]
}

// Keys returns the present keys. They are never modified.
func (t *TokenKeys) Keys() *SigningKeys { return t.current.Load() }

// Changed returns a channel that is closed at the next change.
func (t *TokenKeys) Changed() <-chan struct{} { return *t.changed.Load() }

// KeyFile and PublicFile return the paths of the files.
func (t *TokenKeys) KeyFile() string    { return filepath.Join(t.dir, "sa.key") }
func (t *TokenKeys) PublicFile() string { return filepath.Join(t.dir, "sa.pub") }

// Bundle returns all accepted public keys in PEM, the signer's first.
func (k *SigningKeys) Bundle() ([]byte, error) {
	out, err := PublicKeyPEM(k.Signer.Public())
	for _, v := range k.Verifiers {
		if err == nil && !SamePublicKey(v, k.Signer.Public()) {
			var one []byte
			one, err = PublicKeyPEM(v)
			out = append(out, one...)
		}
	}
	return out, err
}

// PublicKeyPEM returns a public key in PEM.
func PublicKeyPEM(key crypto.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

// KeyHash returns the hash of a public key in the form of CertificateHash.
func KeyHash(key crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(der)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// NewSigningKey makes a key that signs tokens.
func NewSigningKey() (keyPEM []byte, public crypto.PublicKey, err error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	return keyPEM, key.Public(), nil
}

func openTokenKeys(dir string) (*TokenKeys, error) {
	t := &TokenKeys{dir: dir}
	changed := make(chan struct{})
	t.changed.Store(&changed)
	keyPEM, err := os.ReadFile(t.KeyFile())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, keyPEM, err = newKey(); err != nil {
			return nil, err
		}
		if err := durable.WriteFile(t.KeyFile(), keyPEM); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, fmt.Errorf("read service account key: %w", err)
	}
	keys, err := parseSigningKeys(keyPEM, nil)
	if err != nil {
		return nil, fmt.Errorf("service account key in %s: %w", t.KeyFile(), err)
	}
	pubPEM, err := os.ReadFile(t.PublicFile())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		bundle, err := keys.Bundle()
		if err != nil {
			return nil, fmt.Errorf("service account key in %s: %w", t.KeyFile(), err)
		}
		t.current.Store(keys)
		return t, durable.WriteFile(t.PublicFile(), bundle)
	case err != nil:
		return nil, fmt.Errorf("read service account key: %w", err)
	}
	if keys, err = parseSigningKeys(keyPEM, pubPEM); err != nil {
		return nil, fmt.Errorf("service account keys in %s: %w", t.PublicFile(), err)
	}
	t.current.Store(keys)
	return t, nil
}

func parseSigningKeys(keyPEM, pubPEM []byte) (*SigningKeys, error) {
	signer, err := ParseSigner(keyPEM)
	if err != nil {
		return nil, err
	}
	keys := &SigningKeys{Signer: signer, Verifiers: []crypto.PublicKey{signer.Public()}}
	if pubPEM == nil {
		return keys, nil
	}
	published, err := keyutil.ParsePublicKeysPEM(pubPEM)
	if err != nil {
		return nil, err
	}
	keys.accept(published)
	return keys, nil
}

// Adopt replaces the keys: keyPEM signs, and tokens of all keys in bundle are accepted. After a
// crash at any point it can be repeated.
func (t *TokenKeys) Adopt(bundle, keyPEM []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	next, err := parseSigningKeys(keyPEM, bundle)
	if err != nil {
		return fmt.Errorf("adopt service account keys: %w", err)
	}
	bundle, err = next.Bundle()
	if err != nil {
		return fmt.Errorf("adopt service account keys: %w", err)
	}
	// The new key is accepted before the first token of it.
	for _, file := range []struct {
		path string
		data []byte
	}{{t.PublicFile(), bundle}, {t.KeyFile(), keyPEM}} {
		if have, err := os.ReadFile(file.path); err == nil && bytes.Equal(have, file.data) {
			continue
		}
		step("write " + filepath.Base(file.path))
		if err := durable.WriteFile(file.path, file.data); err != nil {
			return err
		}
	}
	if slices.EqualFunc(t.Keys().Verifiers, next.Verifiers, func(a, b crypto.PublicKey) bool { return SamePublicKey(a, b) }) {
		return nil
	}
	t.current.Store(next)
	changed := make(chan struct{})
	close(*t.changed.Swap(&changed))
	return nil
}

func marshalKey(key crypto.PrivateKey) ([]byte, error) { return keyutil.MarshalPrivateKeyToPEM(key) }

// PublicPEM returns all keys that verify tokens, in the format of sa.pub.
func (k *SigningKeys) PublicPEM() ([]byte, error) {
	var all []byte
	for _, key := range k.Verifiers {
		der, err := x509.MarshalPKIXPublicKey(key)
		if err != nil {
			return nil, fmt.Errorf("service account key: %w", err)
		}
		all = append(all, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})...)
	}
	return all, nil
}
