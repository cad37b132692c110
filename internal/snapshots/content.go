package snapshots

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

// ErrDamaged means that a file is not the snapshot that it should be.
var ErrDamaged = etcd.ErrDamaged

// pageKeys is the number of keys that are read at once.
const pageKeys = 200

// ContentOf reads a whole store at a revision; 0 means the newest.
func ContentOf(ctx context.Context, db store.Store, revision int64) (Content, error) {
	c := Content{Revision: revision}
	if revision == 0 {
		var err error
		if c.Revision, err = db.Revision(ctx); err != nil {
			return c, err
		}
	}
	sum, from := sha256.New(), ""
	var number [8]byte
	field := func(n int64) {
		binary.BigEndian.PutUint64(number[:], uint64(n))
		sum.Write(number[:])
	}
	for {
		page, err := db.Range(ctx, "", store.RangeOptions{From: from, Limit: pageKeys, Revision: c.Revision})
		if err != nil {
			return c, err
		}
		for i := range page.KVs {
			kv := &page.KVs[i]
			field(int64(len(kv.Key)))
			sum.Write([]byte(kv.Key))
			field(kv.CreateRevision)
			field(kv.ModRevision)
			field(int64(len(kv.Value)))
			sum.Write(kv.Value)
		}
		c.Keys += int64(len(page.KVs))
		if !page.More || len(page.KVs) == 0 {
			c.Digest = hex.EncodeToString(sum.Sum(nil))
			return c, nil
		}
		from = page.KVs[len(page.KVs)-1].Key + "\x00"
	}
}

// Check restores a plain database file into a scratch store below the folder work, starts that
// store and reads all of it. It returns ErrDamaged if the file is damaged.
func Check(ctx context.Context, file, work string, log *slog.Logger) (Content, error) {
	status, err := etcd.InspectSnapshot(file)
	if err != nil {
		return Content{}, err
	}
	if err := room(work, 2*status.Size+scratchLogs); err != nil {
		return Content{}, fmt.Errorf("check %s: %w", file, err)
	}
	scratch, err := os.MkdirTemp(work, "scratch-")
	if err != nil {
		return Content{}, fmt.Errorf("check %s: %w", file, err)
	}
	c, err := restoredContent(ctx, file, filepath.Join(scratch, "etcd"), log)
	if removed := os.RemoveAll(scratch); err == nil {
		err = removed
	}
	if err != nil {
		return Content{}, fmt.Errorf("check %s: %w", file, err)
	}
	// A store without any write has revision 1, and its file no key that tells it.
	if c.Revision != max(status.Revision, 1) {
		return c, fmt.Errorf("check %s: %w: the restored store has revision %d, the file %d", file, ErrDamaged, c.Revision, status.Revision)
	}
	return c, nil
}

// scratchLogs is the size of the logs that a new store preallocates, with some room.
const scratchLogs = 64 << 20

func restoredContent(ctx context.Context, file, dir string, log *slog.Logger) (Content, error) {
	if err := etcd.Restore(etcd.RestoreOptions{Path: file, DataDir: dir, Log: log}); err != nil {
		return Content{}, err
	}
	db, err := etcd.Open(ctx, etcd.Options{DataDir: dir, UnsafeNoSync: true, Log: log})
	if err != nil {
		return Content{}, err
	}
	c, err := ContentOf(ctx, db, 0)
	return c, errors.Join(err, db.Close())
}

// room returns an error if the file system of a folder has fewer free bytes.
func room(dir string, bytes int64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("free space of %s: %w", dir, err)
	}
	if free := int64(fs.Bavail) * fs.Bsize; free < bytes {
		return fmt.Errorf("%s has %d MiB free, %d MiB are needed", dir, free>>20, bytes>>20+1)
	}
	return nil
}
