package snapshots

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// openStore opens an engine with some keys, of which one was deleted and one changed.
func openStore(t *testing.T) *etcd.Engine {
	t.Helper()
	db, err := etcd.Open(t.Context(), etcd.Options{DataDir: filepath.Join(t.TempDir(), "etcd"), UnsafeNoSync: true, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	for i := range 500 {
		put(t, db, fmt.Sprintf("/registry/things/%03d", i), strings.Repeat("x", i))
	}
	put(t, db, "/registry/things/007", "changed")
	if _, err := db.Commit(t.Context(), nil, store.Op{Key: "/registry/things/008", Delete: true}); err != nil {
		t.Fatal(err)
	}
	return db
}

func put(t *testing.T, db store.Store, key, value string) {
	t.Helper()
	if _, err := db.Commit(t.Context(), nil, store.Op{Key: key, Value: []byte(value)}); err != nil {
		t.Fatal(err)
	}
}

func request(db *etcd.Engine, name string) Request {
	return Request{
		Name: name, Stream: db.Snapshot, Now: time.Now, Log: quiet(), Server: "one", Version: "v0",
		Content: func(ctx context.Context, at int64) (Content, error) { return ContentOf(ctx, db, at) },
	}
}

func newWork(t *testing.T, parent string) *Work {
	t.Helper()
	w, err := NewWork(parent)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

// keyFiles writes a file with a new identity, and one with its recipient.
func keyFiles(t *testing.T) (identity, recipient string) {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	identity, recipient = filepath.Join(dir, "identity"), filepath.Join(dir, "recipient")
	if err := errors.Join(os.WriteFile(identity, []byte("# made for a test\n"+id.String()+"\n"), 0o600), os.WriteFile(recipient, []byte(id.Recipient().String()+"\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	return identity, recipient
}

func loadKeys(t *testing.T, path string) *Keys {
	t.Helper()
	k, err := LoadKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// pki makes a folder with keys of a cluster.
func pki(t *testing.T, ca string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "pki")
	for name, data := range map[string]string{"ca.crt": ca, "ca.key": "secret", "sa.key": "tokens", "etcd/ca.crt": "peers", "nodes/one/client.pem": "this machine's"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(data), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestASnapshotIsCheckedAndOpensAgain(t *testing.T) {
	db := openStore(t)
	identity, recipient := keyFiles(t)
	keys, err := ClusterKeys(KeySources{Folder: pki(t, "ours")})
	if err != nil {
		t.Fatal(err)
	}
	want, err := ContentOf(t.Context(), db, 0)
	if err != nil || want.Keys != 499 {
		t.Fatalf("%+v, %v", want, err)
	}
	for name, tt := range map[string]struct {
		keys []KeyFile
		seal string
		file string
	}{
		"plain":             {nil, "", "s.db"},
		"an archive":        {keys, "", "s.tar"},
		"sealed":            {nil, recipient, "s.db.age"},
		"a sealed archive":  {keys, recipient, "s.tar.age"},
		"sealed by oneself": {nil, identity, "s.db.age"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			work, folder, req := newWork(t, dir), Folder(dir), request(db, "s")
			req.Keys, req.WithKeys = tt.keys, tt.keys != nil
			if tt.seal != "" {
				req.Seal = loadKeys(t, tt.seal)
			}
			taken, err := Take(t.Context(), work, req)
			if err != nil {
				t.Fatal(err)
			}
			if err := folder.Put(t.Context(), taken); err != nil {
				t.Fatal(err)
			}
			list, err := folder.List(t.Context())
			if err != nil || len(list) != 1 || list[0].Name != tt.file || !list[0].Good() || !list[0].Record.Compared || list[0].Record.Content != want {
				t.Fatalf("listed: %+v, %v", list, err)
			}
			path, record, err := Fetch(t.Context(), folder, tt.file, work)
			if err != nil {
				t.Fatal(err)
			}
			opened, err := Open(path, work, loadKeys(t, identity))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := opened.Content(t.Context(), work, record, quiet()); err != nil || got != want {
				t.Errorf("opened: %+v, %v, want %+v", got, err, want)
			}
			if (opened.Manifest != nil) != (tt.keys != nil) || opened.Sealed != (tt.seal != "") {
				t.Errorf("opened: %+v", opened)
			}
			if _, err := etcd.InspectSnapshot(opened.Database); err != nil {
				t.Errorf("etcd's tools cannot read the database file: %v", err)
			}
			if work.Close(); len(visible(t, dir)) != 2 {
				t.Errorf("left in the folder: %v", visible(t, dir))
			}
		})
	}
}

func visible(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestASnapshotThatDiffersFromTheStoreIsRefused(t *testing.T) {
	db, other := openStore(t), openStore(t)
	put(t, other, "/registry/things/009", "another value at another revision")
	for name, change := range map[string]func(*Request){
		"another store": func(r *Request) {
			r.Content = func(ctx context.Context, _ int64) (Content, error) { return ContentOf(ctx, other, 0) }
		},
		"a flipped bit": func(r *Request) {
			r.Stream = func(ctx context.Context, w io.Writer) error {
				var b bytes.Buffer
				err := db.Snapshot(ctx, &b)
				b.Bytes()[b.Len()/2] ^= 1
				_, _ = w.Write(b.Bytes())
				return err
			}
		},
		"a missing end": func(r *Request) {
			r.Stream = func(ctx context.Context, w io.Writer) error {
				var b bytes.Buffer
				err := db.Snapshot(ctx, &b)
				_, _ = w.Write(b.Bytes()[:b.Len()-1000])
				return err
			}
		},
	} {
		req := request(db, "s")
		change(&req)
		if _, err := Take(t.Context(), newWork(t, t.TempDir()), req); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v, want ErrDamaged", name, err)
		}
	}
	// A store that cannot answer does not make the snapshot bad.
	req := request(db, "s")
	req.Content = func(context.Context, int64) (Content, error) { return Content{}, store.ErrCompacted }
	if taken, err := Take(t.Context(), newWork(t, t.TempDir()), req); err != nil || taken.Record.Compared {
		t.Errorf("a snapshot without a comparison: %+v, %v", taken, err)
	}
}

func TestDamagedFilesAreRefused(t *testing.T) {
	db := openStore(t)
	identity, _ := keyFiles(t)
	ids := loadKeys(t, identity)
	files, err := ClusterKeys(KeySources{Folder: pki(t, "ours")})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"plain", "archive", "sealed"} {
		dir := t.TempDir()
		req, folder := request(db, "s"), Folder(dir)
		switch kind {
		case "archive":
			req.WithKeys, req.Keys = true, files
		case "sealed":
			req.WithKeys, req.Keys, req.Seal = true, files, ids
		}
		taken, err := Take(t.Context(), newWork(t, dir), req)
		if err != nil {
			t.Fatal(err)
		}
		if err := folder.Put(t.Context(), taken); err != nil {
			t.Fatal(err)
		}
		name := taken.Record.Name
		whole, err := os.ReadFile(folder.At(name))
		if err != nil {
			t.Fatal(err)
		}
		flipped := func(at int) []byte {
			data := bytes.Clone(whole)
			data[at] ^= 0x10
			return data
		}
		for what, data := range map[string][]byte{
			"cut in the middle": whole[:len(whole)/2], "without its last byte": whole[:len(whole)-1], "empty": nil,
			"flipped in the middle": flipped(len(whole) / 2), "flipped in the end": flipped(len(whole) - 2000), "flipped early": flipped(600),
		} {
			if err := os.WriteFile(folder.At(name), data, 0o600); err != nil {
				t.Fatal(err)
			}
			work := newWork(t, t.TempDir())
			if _, _, err := Fetch(t.Context(), folder, name, work); !errors.Is(err, ErrDamaged) {
				t.Errorf("%s, %s, with a record: %v, want ErrDamaged", kind, what, err)
			}
			// Without the record, the file itself must tell.
			opened, err := Open(folder.At(name), work, ids)
			if err == nil {
				_, err = opened.Content(t.Context(), work, nil, quiet())
			}
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("%s, %s, without a record: %v, want ErrDamaged", kind, what, err)
			}
		}
	}
}

func TestASealedSnapshotNeedsItsIdentity(t *testing.T) {
	db, dir := openStore(t), t.TempDir()
	_, recipient := keyFiles(t)
	stranger, _ := keyFiles(t)
	work, req := newWork(t, dir), request(db, "s")
	req.Seal = loadKeys(t, recipient)
	taken, err := Take(t.Context(), work, req)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		keys *Keys
		want string
	}{
		"no keys":        {nil, "--snapshot-key-file"},
		"the recipient":  {loadKeys(t, recipient), "only recipients"},
		"another's keys": {loadKeys(t, stranger), "encrypted for others"},
	} {
		if _, err := Open(taken.Path, work, tt.keys); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	bad := filepath.Join(t.TempDir(), "bad")
	secret := "AGE-SECRET-KEY-1NOTAKEY"
	if err := os.WriteFile(bad, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadKeys(bad); err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("a bad key file: %v", err)
	}
}

func TestKeysAreRestoredOnAnotherMachine(t *testing.T) {
	db, work := openStore(t), newWork(t, t.TempDir())
	config := filepath.Join(t.TempDir(), "enc.yaml")
	if err := os.WriteFile(config, []byte("kind: EncryptionConfiguration\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := ClusterKeys(KeySources{Folder: pki(t, "ours"), Encryption: config})
	if err != nil {
		t.Fatal(err)
	}
	req := request(db, "s")
	req.WithKeys, req.Keys = true, files
	taken, err := Take(t.Context(), work, req)
	if err != nil {
		t.Fatal(err)
	}
	opened, err := Open(taken.Path, work, nil)
	if err != nil {
		t.Fatal(err)
	}
	machine := t.TempDir()
	r, err := opened.PutKeys(machine, "")
	if err != nil || r.KeptPKI != "" || r.Same || r.Encryption == "" {
		t.Fatalf("%+v, %v", r, err)
	}
	for name, want := range map[string]string{"pki/ca.key": "secret", "pki/etcd/ca.crt": "peers", "restored/encryption-config.yaml": "kind: EncryptionConfiguration\n"} {
		if data, err := os.ReadFile(filepath.Join(machine, name)); err != nil || string(data) != want {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	if _, err := os.Stat(filepath.Join(machine, "pki/nodes")); !os.IsNotExist(err) {
		t.Errorf("another machine's node keys were restored: %v", err)
	}
	if r, err := opened.PutKeys(machine, ""); err != nil || !r.Same {
		t.Errorf("again: %+v, %v", r, err)
	}
	other := filepath.Dir(pki(t, "another cluster"))
	if _, err := opened.PutKeys(other, ""); !errors.Is(err, ErrOtherKeys) {
		t.Errorf("another cluster's keys: %v", err)
	}
	kept := filepath.Join(other, "pki.kept")
	if r, err := opened.PutKeys(other, kept); err != nil || r.KeptPKI != kept {
		t.Errorf("with a place for the old keys: %+v, %v", r, err)
	}
	if data, err := os.ReadFile(filepath.Join(kept, "ca.crt")); err != nil || string(data) != "another cluster" {
		t.Errorf("kept keys: %q, %v", data, err)
	}
}
