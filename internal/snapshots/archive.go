package snapshots

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"time"
)

// An archive is a tar file: manifest.json, then the files that it lists in its order, the database
// last. A reader takes nothing else: no other name, kind or size. See readArchive.
const (
	manifestName = "manifest.json"
	databaseName = "store.db"
)

// Limits of an archive's parts, apart from the database.
const (
	maxManifest = 1 << 20
	maxFiles    = 1000
	maxFile     = 1 << 20
)

// KeyFile is a file that an archive holds besides the store: Name in the archive, Path here.
type KeyFile struct{ Name, Path string }

// Manifest lists an archive's files.
type Manifest struct {
	Version string    `json:"version"` // of the knarr that wrote it
	Taken   time.Time `json:"taken"`
	Content Content   `json:"content"` // of the store
	Files   []Listed  `json:"files"`
}

// Listed is a file of an archive.
type Listed struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// listedForm allows names of one or more plain parts, such as pki/etcd/ca.crt.
var listedForm = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}(/[A-Za-z0-9_][A-Za-z0-9._-]{0,99}){0,7}$`)

// writeArchive writes an archive of the key files and the database.
func writeArchive(w io.Writer, m Manifest, keys []KeyFile, database string) error {
	contents := make([][]byte, len(keys))
	for i, key := range keys {
		data, err := readSmall(key.Path)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(data)
		contents[i] = data
		m.Files = append(m.Files, Listed{key.Name, int64(len(data)), hex.EncodeToString(sum[:])})
	}
	db, err := os.Open(database)
	if err != nil {
		return err
	}
	defer db.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, db)
	if err != nil {
		return err
	}
	m.Files = append(m.Files, Listed{databaseName, size, hex.EncodeToString(sum.Sum(nil))})
	if err := m.validate(); err != nil {
		return err
	}
	about, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	out := tar.NewWriter(w)
	add := func(name string, size int64, from io.Reader) error {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: m.Taken.Truncate(time.Second), Format: tar.FormatPAX}
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		_, err := io.CopyN(out, from, size)
		return err
	}
	if err := add(manifestName, int64(len(about)), bytes.NewReader(about)); err != nil {
		return err
	}
	for i, key := range keys {
		if err := add(key.Name, int64(len(contents[i])), bytes.NewReader(contents[i])); err != nil {
			return err
		}
	}
	if _, err := db.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := add(databaseName, size, db); err != nil {
		return err
	}
	return out.Close()
}

func readSmall(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	return data, err
}

// validate refuses a manifest that this package does not write.
func (m *Manifest) validate() error {
	if len(m.Files) == 0 || len(m.Files) > maxFiles {
		return fmt.Errorf("the manifest lists %d files, allowed are 1 to %d", len(m.Files), maxFiles)
	}
	seen := map[string]bool{manifestName: true}
	for i, f := range m.Files {
		last := i == len(m.Files)-1
		switch {
		case seen[f.Name]:
			return fmt.Errorf("the manifest lists %q twice", f.Name)
		case !listedForm.MatchString(f.Name) || path.Clean(f.Name) != f.Name:
			return fmt.Errorf("the manifest lists %q: a name has up to 8 parts of letters, digits, '.', '_' and '-'", f.Name)
		case last != (f.Name == databaseName):
			return fmt.Errorf("the manifest does not end with %s", databaseName)
		case f.Size < 0 || !last && f.Size > maxFile:
			return fmt.Errorf("the manifest lists %s with %d bytes, allowed are %d", f.Name, f.Size, maxFile)
		}
		for dir := path.Dir(f.Name); dir != "."; dir = path.Dir(dir) {
			if seen[dir] {
				return fmt.Errorf("the manifest lists %q below the file %s", f.Name, dir)
			}
		}
		seen[f.Name] = true
	}
	return nil
}

// readArchive unpacks an archive into a folder and verifies each file's size and hash. It writes
// nothing outside of the folder and follows no links.
func readArchive(r io.Reader, into *os.Root) (*Manifest, error) {
	in := tar.NewReader(r)
	h, err := in.Next()
	if err != nil {
		return nil, damaged(err)
	}
	if h.Name != manifestName || h.Typeflag != tar.TypeReg || h.Size > maxManifest {
		return nil, fmt.Errorf("%w: it does not begin with %s of at most %d bytes", ErrDamaged, manifestName, maxManifest)
	}
	about, err := io.ReadAll(io.LimitReader(in, maxManifest))
	if err != nil {
		return nil, damaged(err)
	}
	m := &Manifest{}
	if err := json.Unmarshal(about, m); err != nil {
		return nil, damaged(err)
	}
	if err := m.validate(); err != nil {
		return nil, damaged(err)
	}
	for _, f := range m.Files {
		h, err := in.Next()
		if err != nil {
			return nil, damaged(err)
		}
		if h.Name != f.Name || h.Typeflag != tar.TypeReg || h.Size != f.Size {
			return nil, fmt.Errorf("%w: %q is where the manifest lists %q with %d bytes", ErrDamaged, h.Name, f.Name, f.Size)
		}
		if err := extract(in, into, f); err != nil {
			return nil, err
		}
	}
	if _, err := in.Next(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: more follows after the listed files", ErrDamaged)
	}
	return m, nil
}

func extract(from io.Reader, into *os.Root, f Listed) error {
	if dir := path.Dir(f.Name); dir != "." {
		if err := into.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	out, err := into.OpenFile(f.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	sum := sha256.New()
	_, err = io.CopyN(io.MultiWriter(out, sum), from, f.Size)
	if closed := out.Close(); err == nil && closed != nil {
		return closed
	}
	if err != nil {
		var onDisk *os.PathError
		if errors.As(err, &onDisk) {
			return err
		}
		return damaged(err)
	}
	if hex.EncodeToString(sum.Sum(nil)) != f.SHA256 {
		return fmt.Errorf("%w: the hash of %s does not match", ErrDamaged, f.Name)
	}
	return nil
}

// damaged makes an error ErrDamaged unless it is.
func damaged(err error) error {
	if errors.Is(err, ErrDamaged) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrDamaged, err)
}
