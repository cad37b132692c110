package etcd

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/storage/backend"

	"github.com/knarr-project/knarr/internal/durable"
)

// A snapshot file is what `etcdctl snapshot save` writes: the database, then its SHA-256. etcd's
// own tools can read it.

// RevisionBump is the number by which a restore raises the revision: more than a cluster can have
// committed since the snapshot was taken.
const RevisionBump = 1_000_000_000

// ErrDamaged means that the content of a snapshot file does not match its hash.
var ErrDamaged = errors.New("the snapshot is damaged")

// Snapshot writes a copy of the database at one moment to w, as a snapshot file.
func (e *Engine) Snapshot(_ context.Context, w io.Writer) error {
	done, err := e.read()
	if err != nil {
		return fmt.Errorf("take a snapshot: %w", err)
	}
	defer done()
	e.copying.RLock()
	defer e.copying.RUnlock()
	if err := writeSnapshot(e.server.Backend(), w); err != nil {
		return fmt.Errorf("take a snapshot: %w", err)
	}
	return nil
}

func writeSnapshot(be backend.Backend, w io.Writer) error {
	s := be.Snapshot()
	defer s.Close()
	sum := sha256.New()
	if _, err := s.WriteTo(io.MultiWriter(w, sum)); err != nil {
		return err
	}
	_, err := w.Write(sum.Sum(nil))
	return err
}

// SnapshotInfo describes a snapshot file.
type SnapshotInfo struct {
	Revision int64     // the newest in the file
	Keys     int       // number of keys at that revision
	Size     int64     // of the file, bytes
	Time     time.Time // of the file
}

// InspectSnapshot verifies a snapshot file by its hash and describes it. It returns ErrDamaged if
// the hash differs.
func InspectSnapshot(path string) (SnapshotInfo, error) {
	info, err := verifySnapshot(path)
	if err != nil {
		return info, err
	}
	status, err := snapshot.NewV3(zapToSlog(nil)).Status(path)
	if err != nil {
		return info, fmt.Errorf("snapshot %s: %w: %w", path, ErrDamaged, err)
	}
	info.Revision, info.Keys = status.Revision, status.TotalKey
	return info, nil
}

func verifySnapshot(path string) (SnapshotInfo, error) {
	f, err := os.Open(path)
	if err != nil {
		return SnapshotInfo{}, fmt.Errorf("snapshot: %w", err)
	}
	defer f.Close()
	stat, err := f.Stat()
	if err != nil {
		return SnapshotInfo{}, fmt.Errorf("snapshot: %w", err)
	}
	info := SnapshotInfo{Size: stat.Size(), Time: stat.ModTime()}
	sum, want := sha256.New(), make([]byte, sha256.Size)
	if stat.Size() < sha256.Size {
		return info, fmt.Errorf("snapshot %s: %w: it has %d bytes", path, ErrDamaged, stat.Size())
	}
	if _, err := io.CopyN(sum, f, stat.Size()-sha256.Size); err != nil {
		return info, fmt.Errorf("snapshot %s: %w", path, err)
	}
	if _, err := io.ReadFull(f, want); err != nil {
		return info, fmt.Errorf("snapshot %s: %w", path, err)
	}
	if !bytes.Equal(sum.Sum(nil), want) {
		return info, fmt.Errorf("snapshot %s: %w: its hash does not match", path, ErrDamaged)
	}
	return info, nil
}

// RestoreOptions tells what to restore, and where.
type RestoreOptions struct {
	Path    string // of the snapshot file
	DataDir string // created; no process may use it
	// KeepAs is the folder to which an existing store in DataDir is moved. If it is empty, an
	// existing store is an error.
	KeepAs string
	// Bump is added to the snapshot's revision, and all revisions before count as compacted. A
	// watcher from a revision after the snapshot then has to list again, instead of seeing another
	// history under the same numbers. 0 does neither.
	Bump uint64
	// Name and PeerURL are those of the only member, for a folder that etcd itself serves. Both
	// empty make a folder for Open.
	Name, PeerURL string
	Log           *slog.Logger
}

// Restore creates a data folder from a snapshot file, after verifying its hash.
func Restore(opts RestoreOptions) error {
	if _, err := verifySnapshot(opts.Path); err != nil {
		return err
	}
	_, err := os.Stat(opts.DataDir)
	exists := !errors.Is(err, fs.ErrNotExist)
	if exists && opts.KeepAs == "" {
		return fmt.Errorf("restore: there is a store in %s", opts.DataDir)
	}
	// Create it under another name and rename it, so that no failure leaves half of it. After a
	// crash between the two renames DataDir is missing, and both stores have their other names.
	aside := opts.DataDir + ".new"
	if err := restore(opts, aside); err != nil {
		return fmt.Errorf("restore %s: %w", opts.DataDir, errors.Join(err, os.RemoveAll(aside)))
	}
	if exists {
		if err := os.Rename(opts.DataDir, opts.KeepAs); err != nil {
			return fmt.Errorf("restore: %w", err)
		}
	}
	if err := os.Rename(aside, opts.DataDir); err != nil {
		if exists {
			err = errors.Join(err, os.Rename(opts.KeepAs, opts.DataDir))
		}
		return fmt.Errorf("restore: %w", err)
	}
	return durable.SyncFolder(filepath.Dir(opts.DataDir))
}

func restore(opts RestoreOptions, to string) error {
	setWALSegment()
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	name, peer := cmp.Or(opts.Name, memberName), cmp.Or(opts.PeerURL, memberURL)
	return snapshot.NewV3(zapToSlog(opts.Log)).Restore(snapshot.RestoreConfig{
		SnapshotPath: opts.Path, OutputDataDir: to, Name: name, PeerURLs: []string{peer},
		InitialCluster: name + "=" + peer, InitialClusterToken: rand.Text(),
		RevisionBump: opts.Bump, MarkCompacted: opts.Bump > 0,
	})
}
