package etcd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3"
)

// HasOthers reports whether the store in the folder has or had other members.
func HasOthers(dataDir string) bool { return isClustered(dataDir) }

// OpenSurvivor copies the data folder of a stopped member to scratch, which must not exist, and
// opens the copy without the other members. The copy has every write of the member's log. That
// includes writes that no majority may have had: the member cannot ask the lost others.
func OpenSurvivor(ctx context.Context, opts Options, scratch string) (*Engine, error) {
	fail := func(err error) (*Engine, error) {
		return nil, fmt.Errorf("open a copy of the store in %s: %w", opts.DataDir, err)
	}
	if err := os.CopyFS(scratch, os.DirFS(opts.DataDir)); err != nil {
		return fail(err)
	}
	if err := os.Chmod(scratch, 0o700); err != nil {
		return fail(err)
	}
	if err := commitLog(filepath.Join(scratch, "member", "wal"), opts); err != nil {
		return fail(err)
	}
	opts.DataDir, opts.Peers, opts.survivor = scratch, nil, true
	return Open(ctx, opts)
}

// commitLog marks all entries of a log as committed.
func commitLog(dir string, opts Options) (err error) {
	setWALSegment()
	lg := zapToSlog(opts.Log)
	snapshots, err := wal.ValidSnapshotEntries(lg, dir)
	if err != nil {
		return err
	}
	var from walpb.Snapshot
	if len(snapshots) > 0 {
		from = snapshots[len(snapshots)-1]
	}
	w, err := wal.Open(lg, dir, from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	_, state, entries, err := w.ReadAll()
	if err != nil || len(entries) == 0 || raft.IsEmptyHardState(state) {
		return err
	}
	state.Commit = max(state.Commit, entries[len(entries)-1].Index)
	return w.Save(state, nil)
}
