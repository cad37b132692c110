package etcd

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/knarr-project/knarr/internal/store"
)

// write writes a key unconditionally and returns the revision.
func write(t *testing.T, db store.Store, key, value string) int64 {
	t.Helper()
	r, err := db.Commit(t.Context(), nil, store.Op{Key: key, Value: []byte(value)})
	if err != nil {
		t.Fatal(err)
	}
	return r.Revision
}

func openIn(t *testing.T, dir string) *Engine {
	t.Helper()
	db, err := Open(t.Context(), Options{DataDir: dir, UnsafeNoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// saved returns a snapshot file with /a=1 and /b=2, its revision, and the revision of a later
// write.
func saved(t *testing.T) (path string, revision, later int64) {
	t.Helper()
	db := openIn(t, filepath.Join(t.TempDir(), "etcd"))
	write(t, db, "/a", "1")
	revision = write(t, db, "/b", "2")
	path = filepath.Join(t.TempDir(), "snapshot.db")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Snapshot(t.Context(), f), f.Close()); err != nil {
		t.Fatal(err)
	}
	write(t, db, "/a", "changed since")
	return path, revision, write(t, db, "/c", "made since")
}

func TestARestoredStoreHasTheSnapshotsContent(t *testing.T) {
	path, revision, later := saved(t)
	info, err := InspectSnapshot(path)
	if err != nil || info.Revision != revision || info.Keys != 2 || info.Size == 0 || info.Time.IsZero() {
		t.Fatalf("the snapshot of revision %d: %+v, %v", revision, info, err)
	}
	dir := filepath.Join(t.TempDir(), "etcd")
	if err := Restore(RestoreOptions{Path: path, DataDir: dir, Bump: RevisionBump}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // also after a second start
		db := openIn(t, dir)
		all, err := db.Range(t.Context(), "/", store.RangeOptions{})
		if err != nil || len(all.KVs) != 2 || string(all.KVs[0].Value) != "1" || string(all.KVs[1].Value) != "2" {
			t.Fatalf("restored: %+v, %v", all, err)
		}
		if all.Revision < revision+RevisionBump {
			t.Errorf("the revision is %d, not %d later than the snapshot's", all.Revision, RevisionBump)
		}
		for _, old := range []int64{revision, later} {
			if _, _, err := db.Get(t.Context(), "/a", old); !errors.Is(err, store.ErrCompacted) {
				t.Errorf("reading at the earlier revision %d: %v, wanted ErrCompacted", old, err)
			}
			w, err := db.Watch(t.Context(), "/", old)
			if err == nil {
				_, err = w.Next(t.Context())
				w.Close()
			}
			if !errors.Is(err, store.ErrCompacted) {
				t.Errorf("watching from the earlier revision %d: %v, wanted ErrCompacted", old, err)
			}
		}
		if next := write(t, db, "/b", "2"); next <= all.Revision {
			t.Errorf("a write gets revision %d after %d", next, all.Revision)
		}
		db.Close()
	}
}

func TestARestoreWithoutBumpKeepsTheRevision(t *testing.T) {
	path, revision, _ := saved(t)
	dir := filepath.Join(t.TempDir(), "etcd")
	if err := Restore(RestoreOptions{Path: path, DataDir: dir}); err != nil {
		t.Fatal(err)
	}
	if now, err := openIn(t, dir).Revision(t.Context()); err != nil || now != revision {
		t.Errorf("the revision is %d, %v; wanted %d", now, err, revision)
	}
}

func TestADamagedSnapshotIsRefused(t *testing.T) {
	path, _, _ := saved(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	flipped := append([]byte(nil), whole...)
	flipped[len(flipped)/2] ^= 1
	for name, data := range map[string][]byte{"a bit is another": flipped, "the end is missing": whole[:len(whole)-100], "empty": nil} {
		t.Run(name, func(t *testing.T) {
			file, dir := filepath.Join(t.TempDir(), "s.db"), filepath.Join(t.TempDir(), "etcd")
			if err := os.WriteFile(file, data, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := InspectSnapshot(file); !errors.Is(err, ErrDamaged) {
				t.Errorf("inspect: %v, wanted ErrDamaged", err)
			}
			if err := Restore(RestoreOptions{Path: file, DataDir: dir, Bump: 1}); !errors.Is(err, ErrDamaged) {
				t.Errorf("restore: %v, wanted ErrDamaged", err)
			}
			if left, _ := filepath.Glob(dir + "*"); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestARestoreReplacesAStoreOnlyWithKeepAs(t *testing.T) {
	path, _, _ := saved(t)
	dir := filepath.Join(t.TempDir(), "etcd")
	db := openIn(t, dir)
	write(t, db, "/old", "1")
	db.Close()
	if err := Restore(RestoreOptions{Path: path, DataDir: dir, Bump: 1}); err == nil {
		t.Fatal("a store was overwritten")
	}
	if err := Restore(RestoreOptions{Path: path, DataDir: dir, KeepAs: dir + ".kept", Bump: 1}); err != nil {
		t.Fatal(err)
	}
	for folder, key := range map[string]string{dir: "/a", dir + ".kept": "/old"} {
		if kv, _, err := openIn(t, folder).Get(t.Context(), key, 0); err != nil || kv == nil {
			t.Errorf("%s in %s: %v, %v", key, folder, kv, err)
		}
	}
}

func TestARestoreMakesAClusterThatOldMembersAreRefusedBy(t *testing.T) {
	path, _, _ := saved(t)
	type identity struct{ cluster, member uint64 }
	seen := map[identity]bool{}
	identify := func(db *Engine) {
		i := identity{uint64(db.server.Cluster().ID()), uint64(db.server.MemberID())}
		for other := range seen {
			if other.cluster == i.cluster || other.member == i.member {
				t.Errorf("two clusters share an id: %+v and %+v", i, other)
			}
		}
		seen[i] = true
	}
	identify(openIn(t, filepath.Join(t.TempDir(), "etcd")))
	for range 3 {
		dir := filepath.Join(t.TempDir(), "etcd")
		if err := Restore(RestoreOptions{Path: path, DataDir: dir, Bump: 1}); err != nil {
			t.Fatal(err)
		}
		identify(openIn(t, dir))
	}
}

// failing fails after some bytes.
type failing struct{ left int }

func (f *failing) Write(p []byte) (int, error) {
	if f.left -= len(p); f.left < 0 {
		return 0, io.ErrClosedPipe
	}
	return len(p), nil
}

func TestASnapshotThatCannotBeWrittenIsAnError(t *testing.T) {
	db := openIn(t, filepath.Join(t.TempDir(), "etcd"))
	if err := db.Snapshot(t.Context(), &failing{left: 100}); err == nil {
		t.Error("there is no error")
	}
}
