package controlplane

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/durable"
	"github.com/knarr-project/knarr/internal/snapshots"
	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

// startStore starts only the store on a data folder, runs fn and stops it.
func startStore(t *testing.T, dir string, set func(*config.Config), fn func(db store.Store)) error {
	t.Helper()
	cfg := config.Default()
	cfg.DataDir = dir
	if set != nil {
		set(&cfg)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := New(Options{Config: &cfg, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Unsynced: true})
	keys, err := s.StartKeys(ctx) // the store's members need theirs
	if err != nil {
		cancel()
		return err
	}
	wait, err := s.StartStore(ctx)
	if err != nil {
		cancel()
		return errors.Join(err, keys())
	}
	fn(s.db)
	cancel()
	return errors.Join(wait(), keys())
}

func befores(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := snapshots.Folder(filepath.Join(dir, "snapshots")).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !e.Good() {
			t.Errorf("%s is not good: %+v", e.Name, e)
		}
		names = append(names, e.Name)
	}
	return names
}

func TestASnapshotIsKeptBeforeAnotherVersionStarts(t *testing.T) {
	dir, me := t.TempDir(), snapshots.CurrentWriter()
	ignore := func(store.Store) {}
	put := func(key string) func(db store.Store) {
		return func(db store.Store) {
			if _, err := db.Commit(t.Context(), nil, store.Op{Key: key, Value: []byte("1")}); err != nil {
				t.Error(err)
			}
		}
	}
	for range 2 { // a new store, and a start of the same version
		if err := startStore(t, dir, nil, put("/registry/old")); err != nil {
			t.Fatal(err)
		}
		if names := befores(t, dir); len(names) > 0 {
			t.Fatalf("snapshots: %v", names)
		}
	}
	older := snapshots.Writer{Knarr: "v1.0.0", Commit: "0123456789abcdef"}
	if err := (&snapshots.Written{By: older}).Write(dir, durable.WriteFile); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second start keeps no other one
		if err := startStore(t, dir, nil, put("/registry/new")); err != nil {
			t.Fatal(err)
		}
	}
	names := befores(t, dir)
	if len(names) != 1 || names[0] != me.BeforeName()+".db" {
		t.Fatalf("snapshots: %v", names)
	}
	if w, err := snapshots.ReadWritten(dir); err != nil || w.By != me || *w.Before != older || w.Snapshot != names[0] {
		t.Errorf("the note: %+v, %v", w, err)
	}
	into := filepath.Join(t.TempDir(), "etcd")
	if err := etcd.Restore(etcd.RestoreOptions{Path: filepath.Join(dir, "snapshots", names[0]), DataDir: into}); err != nil {
		t.Fatal(err)
	}
	db, err := etcd.Open(t.Context(), etcd.Options{DataDir: into, UnsafeNoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	before, _, errBefore := db.Get(t.Context(), "/registry/old", 0)
	after, _, errAfter := db.Get(t.Context(), "/registry/new", 0)
	if errors.Join(errBefore, errAfter) != nil || before == nil || after != nil {
		t.Errorf("it holds %v and %v, %v %v", before, after, errBefore, errAfter)
	}

	// A snapshot that cannot be kept stops the start, and leaves the note.
	if err := (&snapshots.Written{By: older}).Write(dir, durable.WriteFile); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(dir, "snapshots")
	if err := errors.Join(os.RemoveAll(folder), os.WriteFile(folder, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := startStore(t, dir, nil, ignore); err == nil || !strings.Contains(err.Error(), "--snapshot-before-upgrade=false") {
		t.Errorf("a start without a way back: %v", err)
	}
	if w, err := snapshots.ReadWritten(dir); err != nil || w.By != older {
		t.Errorf("the note: %+v, %v", w, err)
	}
	if err := startStore(t, dir, func(c *config.Config) { c.Snapshots.BeforeUpgrade = false }, ignore); err != nil {
		t.Errorf("with the flag: %v", err)
	}
}

func TestAStoreOfAnUnknownVersionIsKept(t *testing.T) {
	dir := t.TempDir()
	if err := startStore(t, dir, nil, func(store.Store) {}); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, snapshots.VersionFile)); err != nil {
		t.Fatal(err)
	}
	if err := startStore(t, dir, nil, func(store.Store) {}); err != nil {
		t.Fatal(err)
	}
	if names := befores(t, dir); len(names) != 1 {
		t.Errorf("snapshots: %v", names)
	}
}
