package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/durable"
	"github.com/knarr-project/knarr/internal/snapshots"
	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/store/etcd"
	"github.com/knarr-project/knarr/internal/upgrade"
)

func TestRollbackPutsBackObjectsAndProgram(t *testing.T) {
	p := lifeParams(t)
	cfg, dir := p.Config, p.Config.DataDir
	program := filepath.Join(t.TempDir(), "knarr")
	installedProgram = func() (string, error) { return program, nil }
	t.Cleanup(func() { installedProgram = os.Executable })
	older, newer := snapshots.Writer{Knarr: "v1.0.0", Commit: "0123456789abcdef"}, snapshots.CurrentWriter()
	put := func(key string) int64 {
		db := openEngine(t, dir)
		defer db.Close()
		r, err := db.Commit(t.Context(), nil, store.Op{Key: key, Value: []byte("1")})
		if err != nil {
			t.Fatal(err)
		}
		return r.Revision
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	put("/registry/old")
	put(upgrade.OrderKey)
	if _, err := Rollback(t.Context(), cfg, true, time.Now(), p.Log); err == nil || !strings.Contains(err.Error(), "no snapshot from before an upgrade") {
		t.Fatalf("a rollback without an upgrade: %v", err)
	}
	keepUpgrade(t, dir, older, newer)
	for range 3 {
		put("/registry/new")
	}
	script := fmt.Sprintf("#!/bin/sh\necho '{\"knarr\": %q, \"commit\": %q}'\n", older.Knarr, older.Commit)
	kept := upgrade.Kept(cfg.DataDir, older)
	if err := errors.Join(os.MkdirAll(filepath.Dir(kept), 0o700), os.WriteFile(kept, []byte(script), 0o700), os.WriteFile(program, []byte("the newer one"), 0o700)); err != nil {
		t.Fatal(err)
	}
	plan, err := Rollback(t.Context(), cfg, false, time.Now(), p.Log)
	if err != nil || plan.Lost != 3 || plan.Program != kept || plan.To != older {
		t.Fatalf("the plan: %+v, %v", plan, err)
	}
	if data, err := os.ReadFile(program); err != nil || string(data) != "the newer one" {
		t.Errorf("the plan has changed the program: %q, %v", data, err)
	}
	if plan, err = Rollback(t.Context(), cfg, true, time.Now(), p.Log); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(program); err != nil || string(data) != script {
		t.Errorf("the program is %q, %v", data, err)
	}
	db := openEngine(t, dir)
	defer db.Close()
	before, _, errBefore := db.Get(t.Context(), "/registry/old", 0)
	after, _, errAfter := db.Get(t.Context(), "/registry/new", 0)
	if errors.Join(errBefore, errAfter) != nil || before == nil || after != nil {
		t.Errorf("the store holds %v and %v, %v %v", before, after, errBefore, errAfter)
	}
	if order, _, err := db.Get(t.Context(), upgrade.OrderKey, 0); err != nil || order != nil {
		t.Errorf("the upgrade would be continued: %v, %v", order, err)
	}
	if w, err := snapshots.ReadWritten(dir); err != nil || w.By != older {
		t.Errorf("the note: %+v, %v", w, err)
	}
	if _, err := os.Stat(plan.Kept); err != nil {
		t.Errorf("the newer store: %v", err)
	}
}

func TestAProgramOfAnotherVersionIsNotPutBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "knarr")
	if err := isProgram(t.Context(), path, snapshots.Writer{Knarr: "v1"}); err == nil || !strings.Contains(err.Error(), "not kept") {
		t.Errorf("no program: %v", err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho '{\"knarr\": \"v2\"}'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := isProgram(t.Context(), path, snapshots.Writer{Knarr: "v1"}); err == nil || !strings.Contains(err.Error(), "any more") {
		t.Errorf("another program: %v", err)
	}
}

func openEngine(t *testing.T, dataDir string) *etcd.Engine {
	t.Helper()
	db, err := etcd.Open(t.Context(), etcd.Options{DataDir: filepath.Join(dataDir, "etcd"), UnsafeNoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// keepUpgrade does what the server does before the first start of a newer version.
func keepUpgrade(t *testing.T, dir string, older, newer snapshots.Writer) {
	t.Helper()
	db := openEngine(t, dir)
	defer db.Close()
	folder := snapshots.Folder(filepath.Join(dir, "snapshots"))
	work, err := snapshots.NewWork(folder.String())
	if err != nil {
		t.Fatal(err)
	}
	defer work.Close()
	taken, err := snapshots.Take(t.Context(), work, snapshots.Request{
		Name: newer.BeforeName(), Stream: db.Snapshot, Now: time.Now,
		Content: func(ctx context.Context, at int64) (snapshots.Content, error) {
			return snapshots.ContentOf(ctx, db, at)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	w := snapshots.Written{By: newer, Before: &older, Snapshot: taken.Record.Name}
	if err := errors.Join(folder.Put(t.Context(), taken), w.Write(dir, durable.WriteFile)); err != nil {
		t.Fatal(err)
	}
}
