// Package durable writes files atomically: after a power failure, a file has its old or its new
// content. The data is written to a temporary file, synced and renamed, and then the folder is
// synced too. It is for files that cannot be recreated: keys, credentials, snapshots.
package durable

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/failpoint"
)

// WriteFile replaces a file atomically and returns when it is on disk. Only the owner can read the
// file.
func WriteFile(path string, data []byte) error { return write(path, data, Publish) }

// Replace is WriteFile without waiting for the disk.
func Replace(path string, data []byte) error {
	return write(path, data, func(f *os.File, path string) error {
		return errors.Join(os.Rename(f.Name(), path), f.Close())
	})
}

// write puts the data into a temporary file beside path. publish renames and closes that file.
func write(path string, data []byte, publish func(f *os.File, path string) error) error {
	RemoveAbandoned(path)
	f, err := temporary(path)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if _, err = f.Write(data); err == nil {
		failpoint.Here("file-written")
		err = publish(f, path)
	}
	if err != nil {
		// Ignore the errors of undoing what publish has already done.
		return fmt.Errorf("write %s: %w", path, errors.Join(err, ignore(f.Close(), os.ErrClosed), ignore(os.Remove(f.Name()), os.ErrNotExist)))
	}
	return nil
}

// temporary makes a temporary file beside path, with mode 0600. The file is locked while its writer
// lives, so that RemoveAbandoned can tell it from the file of a killed one.
func temporary(path string) (*os.File, error) {
	for {
		f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
		if err != nil {
			return nil, err
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		var stat unix.Stat_t
		if err == nil {
			err = unix.Fstat(int(f.Fd()), &stat)
		}
		if err == nil && stat.Nlink > 0 {
			return f, nil
		}
		_ = f.Close()
		if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(err, ignore(os.Remove(f.Name()), os.ErrNotExist))
		}
		// RemoveAbandoned came between making and locking the file.
	}
}

// RemoveAbandoned removes the temporary files that killed writers of path have left. They may
// contain keys. Each write of path does so first; a caller needs it for a path that may never be
// written again. A failure harms nothing: the next call tries again.
func RemoveAbandoned(path string) {
	found, err := filepath.Glob(escape(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"-")) + "*")
	if err != nil {
		return
	}
	for _, name := range found {
		if !isTemporary(name[len(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"-")):]) {
			continue // of another file, whose name begins with this one's
		}
		f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = os.Remove(name)
		}
		_ = f.Close()
	}
}

// isTemporary reports whether a suffix is a number, as those of os.CreateTemp are.
func isTemporary(suffix string) bool {
	for _, c := range suffix {
		if c < '0' || c > '9' {
			return false
		}
	}
	return suffix != ""
}

// escape makes a path match only itself in filepath.Glob.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// Publish syncs a temporary file in the folder of path, renames it to path and closes it.
func Publish(f *os.File, path string) error {
	err := f.Sync()
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return SyncFolder(filepath.Dir(path))
}

// SyncFolder syncs the names in a folder to disk.
func SyncFolder(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
