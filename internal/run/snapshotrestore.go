package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/controlplane"
	"github.com/knarr-project/knarr/internal/durable"
	"github.com/knarr-project/knarr/internal/snapshots"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

// Restore tells what to restore.
type Restore struct {
	// Source is a file, a folder, s3://BUCKET/PREFIX or s3://BUCKET/PREFIX/NAME. Default: the
	// folder of snapshots.
	Source string
	// Pick selects the newest good snapshot of a folder or bucket, taken at At or before. A zero At
	// means the newest of all.
	Pick bool
	At   time.Time
	// Bump is added to the snapshot's revision.
	Bump uint64
	// Force puts aside what is in the data folder already.
	Force bool
	Now   time.Time
}

// RestoreResult tells what was restored.
type RestoreResult struct {
	From  string              // the snapshot
	Taken time.Time           // zero if unknown
	Kept  string              // the earlier store's new path, or ""
	Keys  *snapshots.Restored // nil if the snapshot has no keys
}

// RestoreSnapshot restores a snapshot into the data folder, whose server must not run. The result
// is a new cluster of etcd with one member: members of the earlier one cannot talk to it.
func RestoreSnapshot(ctx context.Context, cfg *config.Config, opts Restore, log *slog.Logger) (result RestoreResult, err error) {
	place, name, err := findSnapshot(ctx, cfg, opts)
	if err != nil {
		return result, fmt.Errorf("restore: %w", err)
	}
	result.From = place.At(name)
	l, err := lock(cfg.DataDir)
	if err != nil {
		return result, fmt.Errorf("restore: %w", explainLock(err, cfg.DataDir))
	}
	defer l.Close()
	stamp := opts.Now.UTC().Format(snapshots.TimeFormat)
	into := etcd.RestoreOptions{DataDir: cfg.Path("etcd"), Bump: opts.Bump, Log: log}
	if _, err := os.Stat(into.DataDir); err == nil {
		if !opts.Force {
			return result, fmt.Errorf("restore: there is a store in %s already: --force puts it aside", into.DataDir)
		}
		into.KeepAs = asideName(into.DataDir, stamp)
	}
	work, err := snapshots.NewWork(cfg.DataDir)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, work.Close()) }()
	opened, record, err := openSnapshot(ctx, cfg, place, name, work)
	if err != nil {
		return result, fmt.Errorf("restore: %w", err)
	}
	if record != nil {
		result.Taken = record.Taken
	}
	// An error in the file must come before anything in the data folder changes.
	if _, err := etcd.InspectSnapshot(opened.Database); err != nil {
		return result, fmt.Errorf("restore: %w", err)
	}
	if opened.Manifest != nil {
		result.Taken = opened.Manifest.Taken
		if result.Keys, err = restoreKeys(cfg, opened, stamp, opts.Force); err != nil {
			return result, fmt.Errorf("restore: %w", err)
		}
	}
	into.Path = opened.Database
	if err := etcd.Restore(into); err != nil {
		return result, err
	}
	result.Kept = into.KeepAs
	// The snapshot itself is the way back, so the next start keeps no other one.
	note := snapshots.Written{By: snapshots.CurrentWriter(), Since: opts.Now.UTC().Truncate(time.Second), Snapshot: result.From}
	return result, note.Write(cfg.DataDir, durable.WriteFile)
}

// asideName returns a free name beside a path for what is there now.
func asideName(path, stamp string) string {
	name := path + ".before-" + stamp
	for n, base := 2, name; ; n++ {
		if _, err := os.Lstat(name); err != nil {
			return name
		}
		name = fmt.Sprintf("%s-%d", base, n)
	}
}

func restoreKeys(cfg *config.Config, opened *snapshots.Opened, stamp string, force bool) (*snapshots.Restored, error) {
	keepAs := ""
	if force {
		keepAs = asideName(cfg.Path("pki"), stamp)
	}
	keys, err := opened.PutKeys(cfg.DataDir, keepAs)
	if errors.Is(err, snapshots.ErrOtherKeys) {
		return nil, fmt.Errorf("%w: --force puts them aside", err)
	}
	return &keys, err
}

// SnapshotS3 returns the configured bucket.
func SnapshotS3(cfg *config.Config) snapshots.S3Options { return controlplane.SnapshotS3(cfg) }

// findSnapshot returns the place and the name of the snapshot to restore.
func findSnapshot(ctx context.Context, cfg *config.Config, opts Restore) (snapshots.Place, string, error) {
	source := opts.Source
	if source == "" {
		if source = cfg.SnapshotDir(); source == "" {
			return nil, "", errors.New("--snapshot-dir is none: name a snapshot")
		}
		source += "/"
	}
	place, name, err := snapshots.Find(source, controlplane.SnapshotS3(cfg))
	if err != nil {
		return nil, "", err
	}
	switch {
	case name != "" && opts.Pick:
		return nil, "", fmt.Errorf("--at selects a snapshot of a folder or bucket, and %s is one snapshot", place.At(name))
	case name != "":
		if _, local := place.(snapshots.Folder); local {
			return place, name, isFile(opts.Source)
		}
		return place, name, nil
	case !opts.Pick:
		return nil, "", fmt.Errorf("%s is a folder, not a snapshot: `knarr snapshot ls %s` lists those in it, --at newest or --at TIME selects one", place, place)
	}
	entries, err := place.List(ctx)
	if err != nil {
		return nil, "", err
	}
	e, ok := snapshots.Newest(entries, opts.At)
	switch {
	case ok:
		return place, e.Name, nil
	case opts.At.IsZero() || len(entries) == 0:
		return nil, "", fmt.Errorf("%s has no snapshot that passed its check", place)
	}
	return nil, "", fmt.Errorf("%s has no checked snapshot from %s or before; the oldest is from %s", place, opts.At.Local().Format(time.RFC3339), entries[0].Time().Local().Format(time.RFC3339))
}

// openSnapshot fetches a snapshot and opens it with the configured keys.
func openSnapshot(ctx context.Context, cfg *config.Config, place snapshots.Place, name string, work *snapshots.Work) (*snapshots.Opened, *snapshots.Record, error) {
	var keys *snapshots.Keys
	if cfg.Snapshots.KeyFile != "" {
		var err error
		if keys, err = snapshots.LoadKeys(cfg.Snapshots.KeyFile); err != nil {
			return nil, nil, err
		}
	}
	path, record, err := snapshots.Fetch(ctx, place, name, work)
	if err != nil {
		return nil, nil, err
	}
	opened, err := snapshots.Open(path, work, keys)
	return opened, record, err
}

// CheckSnapshot restores one snapshot into a scratch store below dir and counts its content.
func CheckSnapshot(ctx context.Context, cfg *config.Config, place snapshots.Place, name string, log *slog.Logger) (content snapshots.Content, err error) {
	// The scratch store is large: not on a file system in memory, as the folder for temporary
	// files may be.
	work, err := snapshots.NewWork(workFolder(cfg, place))
	if err != nil {
		return content, err
	}
	defer func() { err = errors.Join(err, work.Close()) }()
	opened, record, err := openSnapshot(ctx, cfg, place, name, work)
	if err != nil {
		return content, err
	}
	return opened.Content(ctx, work, record, log)
}

// isFile returns an error if path is not an existing file.
func isFile(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("there is no file %s", path)
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a folder, not a snapshot: `knarr snapshot ls %s` lists those in it", path, filepath.Clean(path))
	}
	return nil
}
