package snapshots

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"filippo.io/age"
)

// Keys are the recipients for whom snapshots are sealed, and the identities that open them.
type Keys struct {
	recipients []age.Recipient
	identities []age.Identity
	path       string
}

// maxKeyFile is the largest size of a key file in bytes.
const maxKeyFile = 64 << 10

// LoadKeys reads a file of age's recipients (age1…) or identities (AGE-SECRET-KEY-1…), as
// `age-keygen` writes them. An identity also seals. A file of recipients alone opens nothing.
func LoadKeys(path string) (*Keys, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("snapshot-key-file: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return nil, fmt.Errorf("snapshot-key-file: %w", err)
	}
	if len(data) > maxKeyFile {
		return nil, fmt.Errorf("snapshot-key-file: %s is larger than %d KiB", path, maxKeyFile>>10)
	}
	k := &Keys{path: path}
	if k.identities, err = age.ParseIdentities(bytes.NewReader(data)); err != nil {
		if k.recipients, err = age.ParseRecipients(bytes.NewReader(data)); err != nil {
			// age's errors can quote the line, which may be a key.
			return nil, fmt.Errorf("snapshot-key-file: %s is not usable: lines with age's recipients (age1...) alone, or identities (AGE-SECRET-KEY-1...) alone", path)
		}
		return k, nil
	}
	for _, id := range k.identities {
		switch id := id.(type) {
		case *age.X25519Identity:
			k.recipients = append(k.recipients, id.Recipient())
		case *age.HybridIdentity:
			k.recipients = append(k.recipients, id.Recipient())
		default:
			return nil, fmt.Errorf("snapshot-key-file: %s has an identity of an unknown kind", path)
		}
	}
	return k, nil
}

// Opens reports whether the keys can open sealed snapshots.
func (k *Keys) Opens() bool { return k != nil && len(k.identities) > 0 }

// sealedStart begins each file of age.
const sealedStart = "age-encryption.org/v1\n"

func (k *Keys) seal(w io.Writer) (io.WriteCloser, error) { return age.Encrypt(w, k.recipients...) }

// open returns the content of a sealed file.
func (k *Keys) open(r io.Reader) (io.Reader, error) {
	switch {
	case k == nil:
		return nil, errors.New("it is encrypted: --snapshot-key-file has to name a file with its identity (AGE-SECRET-KEY-1...)")
	case !k.Opens():
		return nil, fmt.Errorf("it is encrypted, and %s has only recipients: the file with the identity (AGE-SECRET-KEY-1...) opens it", k.path)
	}
	plain, err := age.Decrypt(r, k.identities...)
	var none *age.NoIdentityMatchError
	if errors.As(err, &none) {
		return nil, fmt.Errorf("no identity in %s opens it: it was encrypted for others", k.path)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return damagedReader{plain}, nil
}

// damagedReader reports a failed authentication as ErrDamaged.
type damagedReader struct{ io.Reader }

func (d damagedReader) Read(p []byte) (int, error) {
	n, err := d.Reader.Read(p)
	if err != nil && err != io.EOF {
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return n, err
}
