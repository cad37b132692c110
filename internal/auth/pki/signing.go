package pki

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

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
	signer, err := parseSigner(keyPEM)
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
		if !slices.ContainsFunc(k.Verifiers, func(known crypto.PublicKey) bool { return samePublicKey(known, p) }) {
			k.Verifiers = append(k.Verifiers, p)
		}
	}
}

func openSigningKeys(dir string) (*SigningKeys, error) {
	keyFile, pubFile := filepath.Join(dir, "sa.key"), filepath.Join(dir, "sa.pub")
	keyPEM, err := os.ReadFile(keyFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, keyPEM, err = newKey(); err != nil {
			return nil, err
		}
		if err := durable.WriteFile(keyFile, keyPEM); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, fmt.Errorf("read service account key: %w", err)
	}
	signer, err := parseSigner(keyPEM)
	if err != nil {
		return nil, fmt.Errorf("service account key in %s: %w", keyFile, err)
	}
	keys := &SigningKeys{Signer: signer, Verifiers: []crypto.PublicKey{signer.Public()}}
	pubPEM, err := os.ReadFile(pubFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		der, err := x509.MarshalPKIXPublicKey(signer.Public())
		if err != nil {
			return nil, fmt.Errorf("service account key in %s: %w", keyFile, err)
		}
		return keys, durable.WriteFile(pubFile, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	case err != nil:
		return nil, fmt.Errorf("read service account key: %w", err)
	}
	published, err := keyutil.ParsePublicKeysPEM(pubPEM)
	if err != nil {
		return nil, fmt.Errorf("service account keys in %s: %w", pubFile, err)
	}
	keys.accept(published)
	return keys, nil
}

func marshalKey(key crypto.PrivateKey) ([]byte, error) { return keyutil.MarshalPrivateKeyToPEM(key) }
