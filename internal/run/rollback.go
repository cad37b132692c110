package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/durable"
	"github.com/knarr-project/knarr/internal/snapshots"
	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/store/etcd"
	"github.com/knarr-project/knarr/internal/upgrade"
)

// installedProgram is the path of this program. Tests replace it.
var installedProgram = os.Executable

// keepProgram links this program into the data folder, so that a rollback finds it after the
// installed file was replaced. A data folder on another file system keeps none: a copy would cost
// as much as the program's size for each cluster.
func keepProgram(cfg *config.Config, log *slog.Logger) {
	path := upgrade.Kept(cfg.DataDir, snapshots.CurrentWriter())
	if _, err := os.Stat(path); err == nil {
		return
	}
	self, err := os.Executable()
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = os.Link(self, path)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		log.Debug("this program is not kept for a rollback", "error", err)
	}
}

// RollbackPlan tells what a rollback does.
type RollbackPlan struct {
	From, To snapshots.Writer
	// Snapshot is the file that is restored, Taken when it was taken.
	Snapshot string
	Taken    time.Time
	// Lost is the number of revisions since then.
	Lost int64
	// Program is the kept program of To, or "" with the reason Missing.
	Program, Missing string
	// Installed is the file that Program replaces.
	Installed string
	// Kept is where the present store is after the rollback.
	Kept string
	// Others means that the store has or had several servers. It has one after the rollback, and
	// the others join again.
	Others bool
}

// RollbackProgram puts back only the program that the last upgrade of this machine has replaced.
// The objects stay, so it is for one of several servers and for nodes. knarr must not run here. If
// act is false, it only plans.
func RollbackProgram(ctx context.Context, cfg *config.Config, act bool) (*RollbackPlan, error) {
	l, err := lock(cfg.DataDir)
	if err != nil {
		return nil, fmt.Errorf("rollback: %w", explainLock(err, cfg.DataDir))
	}
	defer l.Close()
	before, err := upgrade.ReadBefore(cfg.DataDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("rollback: `knarr upgrade` has replaced no program of %s", cfg.DataDir)
	}
	if err != nil {
		return nil, fmt.Errorf("rollback: %w", err)
	}
	plan := &RollbackPlan{From: snapshots.CurrentWriter(), To: before.Writer, Program: upgrade.Kept(cfg.DataDir, before.Writer), Installed: before.Installed}
	if err := isProgram(ctx, plan.Program, plan.To); err != nil {
		return nil, fmt.Errorf("rollback: %w: put it in place yourself", err)
	}
	if !act {
		return plan, nil
	}
	return plan, upgrade.Replace(plan.Program, plan.Installed)
}

// Rollback puts back the snapshot from before the first start of the version that writes the store,
// and the program of the version before. The server must not run. If act is false, it only plans.
func Rollback(ctx context.Context, cfg *config.Config, act bool, now time.Time, log *slog.Logger) (*RollbackPlan, error) {
	l, err := lock(cfg.DataDir)
	if err != nil {
		return nil, fmt.Errorf("rollback: %w", explainLock(err, cfg.DataDir))
	}
	defer l.Close()
	plan, err := planRollback(ctx, cfg, now, log)
	if err != nil {
		return nil, fmt.Errorf("rollback: %w", err)
	}
	if !act {
		return plan, nil
	}
	restore := etcd.RestoreOptions{Path: plan.Snapshot, DataDir: cfg.Path("etcd"), KeepAs: plan.Kept, Bump: etcd.RevisionBump, Log: log}
	if err := etcd.Restore(restore); err != nil {
		return nil, err
	}
	if err := dropOrder(ctx, cfg, log); err != nil {
		return nil, fmt.Errorf("rollback: forget the upgrade: %w", err)
	}
	note := snapshots.Written{By: plan.To, Since: now.UTC().Truncate(time.Second)}
	if err := note.Write(cfg.DataDir, durable.WriteFile); err != nil {
		return nil, err
	}
	if plan.Program == "" {
		return plan, nil
	}
	return plan, upgrade.Replace(plan.Program, plan.Installed)
}

func planRollback(ctx context.Context, cfg *config.Config, now time.Time, log *slog.Logger) (*RollbackPlan, error) {
	written, err := snapshots.ReadWritten(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	if written == nil || written.Before == nil || written.Snapshot == "" {
		return nil, fmt.Errorf("the store in %s has no snapshot from before an upgrade: `knarr snapshot restore` restores another one", cfg.DataDir)
	}
	folder := snapshots.Folder(cfg.Path("snapshots"))
	path, record, err := snapshots.Fetch(ctx, folder, written.Snapshot, nil)
	if err != nil {
		return nil, err
	}
	if record == nil {
		return nil, fmt.Errorf("%s has no record, so it was never checked: `knarr snapshot restore` restores it nevertheless", path)
	}
	plan := &RollbackPlan{From: written.By, To: *written.Before, Snapshot: path, Taken: record.Taken, Kept: asideName(cfg.Path("etcd"), now.UTC().Format(snapshots.TimeFormat))}
	plan.Others = etcd.HasOthers(cfg.Path("etcd"))
	if revision, err := storeRevision(ctx, cfg, plan.Others, log); err != nil {
		log.Warn("cannot read the present store: what is lost is unknown", "error", err)
		plan.Lost = -1
	} else {
		plan.Lost = revision - record.Revision
	}
	if plan.Installed, err = installedProgram(); err != nil {
		return nil, err
	}
	plan.Program = upgrade.Kept(cfg.DataDir, plan.To)
	if err := isProgram(ctx, plan.Program, plan.To); err != nil {
		plan.Program, plan.Missing = "", err.Error()
	}
	return plan, nil
}

// storeRevision returns the newest revision of the store in the data folder, or of a copy if it is
// a member of several.
func storeRevision(ctx context.Context, cfg *config.Config, others bool, log *slog.Logger) (revision int64, err error) {
	opts := etcd.Options{DataDir: cfg.Path("etcd"), Log: log}
	open := etcd.Open
	if others {
		work, err := snapshots.NewWork(cfg.DataDir)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, work.Close()) }()
		open = func(ctx context.Context, opts etcd.Options) (*etcd.Engine, error) {
			return etcd.OpenSurvivor(ctx, opts, work.Path("survivor"))
		}
	}
	db, err := open(ctx, opts)
	if err != nil {
		return 0, err
	}
	revision, err = db.Revision(ctx)
	return revision, errors.Join(err, db.Close())
}

// dropOrder removes the Order from the restored store: the snapshot was kept during its turn, and
// the upgrade is not to be continued.
func dropOrder(ctx context.Context, cfg *config.Config, log *slog.Logger) error {
	db, err := etcd.Open(ctx, etcd.Options{DataDir: cfg.Path("etcd"), Log: log})
	if err != nil {
		return err
	}
	_, err = db.Commit(ctx, nil, store.Op{Key: upgrade.OrderKey, Delete: true})
	return errors.Join(err, db.Close())
}

// isProgram returns an error if a file is not the program of a version: a linked file changes if
// the installed one is overwritten in place.
func isProgram(ctx context.Context, path string, want snapshots.Writer) error {
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("the program of %s was not kept", want)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "version", "-o", "json").Output()
	var is snapshots.Writer
	if err == nil {
		err = json.NewDecoder(bytes.NewReader(out)).Decode(&is)
	}
	if err != nil || is != want {
		return fmt.Errorf("the file %s is not the program of %s any more", path, want)
	}
	return nil
}
