package snapshots

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// packed is a file of a tar made by a test.
type packed struct {
	name, data string
	kind       byte
	link       string
}

func pack(t testing.TB, files ...packed) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Size: int64(len(f.data)), Mode: 0o600, Typeflag: f.kind, Linkname: f.link}
		if f.kind == 0 {
			h.Typeflag = tar.TypeReg
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(f.data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func manifestOf(t testing.TB, files ...packed) packed {
	t.Helper()
	var m Manifest
	for _, f := range files {
		sum := sha256.Sum256([]byte(f.data))
		m.Files = append(m.Files, Listed{f.name, int64(len(f.data)), hex.EncodeToString(sum[:])})
	}
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return packed{name: manifestName, data: string(data)}
}

func listed(t testing.TB, files ...packed) []byte {
	return pack(t, append([]packed{manifestOf(t, files...)}, files...)...)
}

// unpackInto unpacks an archive into a folder inside of another one, which must stay empty.
func unpackInto(t testing.TB, data []byte) error {
	t.Helper()
	outer := t.TempDir()
	inner := filepath.Join(outer, "inner")
	if err := os.Mkdir(inner, 0o700); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(inner)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	_, err = readArchive(bytes.NewReader(data), root)
	entries, _ := os.ReadDir(outer)
	if len(entries) != 1 {
		t.Errorf("written outside of the folder: %v", entries)
	}
	_ = filepath.WalkDir(inner, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !d.Type().IsRegular() {
			t.Errorf("%s is a %s", name, d.Type())
		}
		return err
	})
	return err
}

func TestAnArchiveHoldsOnlyWhatItsManifestLists(t *testing.T) {
	db, key := packed{name: databaseName, data: "db"}, packed{name: "pki/ca.key", data: "k"}
	if err := unpackInto(t, listed(t, key, db)); err != nil {
		t.Fatalf("a good archive: %v", err)
	}
	long := packed{name: "pki/long", data: strings.Repeat("x", maxFile+1)}
	for name, data := range map[string][]byte{
		"a name above":            listed(t, packed{name: "../ca.key", data: "k"}, db),
		"an absolute name":        listed(t, packed{name: "/etc/passwd", data: "k"}, db),
		"a name with a detour":    listed(t, packed{name: "pki/../../x", data: "k"}, db),
		"a hidden name":           listed(t, packed{name: "pki/.x", data: "k"}, db),
		"a name twice":            listed(t, key, key, db),
		"a file as a folder":      listed(t, packed{name: "pki", data: "k"}, key, db),
		"a folder as a file":      listed(t, key, packed{name: "pki", data: "k"}, db),
		"the manifest again":      listed(t, packed{name: manifestName, data: "k"}, db),
		"too large a key":         listed(t, long, db),
		"no database":             listed(t, key),
		"the database first":      listed(t, db, key),
		"a file that is unlisted": pack(t, manifestOf(t, db), db, key),
		"a missing file":          pack(t, manifestOf(t, key, db), db),
		"another hash":            pack(t, manifestOf(t, key, db), packed{name: key.name, data: "K"}, db),
		"another size":            pack(t, manifestOf(t, key, db), packed{name: key.name, data: "kk"}, db),
		"a link":                  pack(t, manifestOf(t, packed{name: "pki/a"}, db), packed{name: "pki/a", kind: tar.TypeSymlink, link: "/etc"}, db),
		"no manifest":             pack(t, key, db),
		"an empty manifest":       pack(t, packed{name: manifestName, data: "{}"}, db),
		"a manifest of nonsense":  pack(t, packed{name: manifestName, data: "["}, db),
		"nothing":                 nil,
	} {
		err := unpackInto(t, data)
		if err == nil {
			t.Errorf("%s is accepted", name)
		} else if name != "a folder as a file" && !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v, want ErrDamaged", name, err)
		}
	}
}

func FuzzArchive(f *testing.F) {
	db, key := packed{name: databaseName, data: "db"}, packed{name: "pki/ca.key", data: "k"}
	f.Add(listed(f, key, db))
	f.Add(listed(f, packed{name: "../ca.key", data: "k"}, db))
	f.Add(pack(f, manifestOf(f, packed{name: "pki/a"}, db), packed{name: "pki/a", kind: tar.TypeSymlink, link: "/etc"}, db))
	f.Add([]byte(sealedStart))
	f.Fuzz(func(t *testing.T, data []byte) {
		_ = unpackInto(t, data)
		file := filepath.Join(t.TempDir(), "s.tar")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		work := newWork(t, t.TempDir())
		_, _ = Open(file, work, nil)
	})
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"name":"s.db","size":1,"sha256":"` + strings.Repeat("0", 64) + `"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decodeRecord(bytes.NewReader(data), "s.db")
		if err == nil && (r.Name != "s.db" || r.Size <= 0) {
			t.Errorf("accepted: %+v", r)
		}
	})
}
