package pki

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/knarr-project/knarr/internal/durable"
)

// Seal encrypts keys that the cluster's servers pass to each other through the store. All servers
// have the same secret, in the file seal.key. It is independent of the keys that it seals, so a
// leaked CA does not reveal its successor.
type Seal struct{ secret []byte }

const sealSize = 32

// SealFile is the name of the file below the folder.
const SealFile = "seal.key"

func openSeal(dir string) (*Seal, error) {
	path := filepath.Join(dir, SealFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		secret := make([]byte, sealSize)
		if _, err := rand.Read(secret); err != nil {
			return nil, err
		}
		return &Seal{secret}, durable.WriteFile(path, []byte(hex.EncodeToString(secret)+"\n"))
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	secret, err := hex.DecodeString(strings.TrimSpace(string(data)))
	if err != nil || len(secret) != sealSize {
		return nil, fmt.Errorf("%s is not usable: wanted %d bytes in hexadecimal digits; copy the file from another server", path, sealSize)
	}
	return &Seal{secret}, nil
}

// ID names the secret without revealing it.
func (s *Seal) ID() string {
	sum := sha256.Sum256(append([]byte("knarr seal id\x00"), s.secret...))
	return hex.EncodeToString(sum[:8])
}

// aead returns the cipher for one purpose.
func (s *Seal) aead(purpose string) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, s.secret, nil, "knarr seal "+purpose, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// Close encrypts data for a purpose, such as the name of a CA.
func (s *Seal) Close(purpose string, data []byte) ([]byte, error) {
	aead, err := s.aead(purpose)
	if err != nil {
		return nil, err
	}
	return aead.Seal(nil, nil, data, nil), nil
}

// Open decrypts the result of Close with the same purpose.
func (s *Seal) Open(purpose string, sealed []byte) ([]byte, error) {
	aead, err := s.aead(purpose)
	if err != nil {
		return nil, err
	}
	data, err := aead.Open(nil, nil, sealed, nil)
	if err != nil {
		return nil, fmt.Errorf("%s was sealed with another %s than this server's: copy %s of a server that works into DIR/pki and start this one again", purpose, SealFile, SealFile)
	}
	return data, nil
}
