// Package durable writes files atomically: after a power failure, a file has its old or its new
// content. The data is written to a temporary file, synced and renamed, and then the folder is
// synced too. It is for files that cannot be recreated: keys, credentials, snapshots.
package durable

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// WriteFile replaces a file atomically and returns when it is on disk. Only the owner can read the
// file.
func WriteFile(path string, data []byte) error { return write(path, data, Publish) }

// Replace is WriteFile without waiting for the disk.
func Replace(path string, data []byte) error {
	return write(path, data, func(f *os.File, path string) error {
		if err := f.Close(); err != nil {
			return err
		}
		return os.Rename(f.Name(), path)
	})
}

// write puts the data into a temporary file beside path. publish closes that file and renames it.
func write(path string, data []byte, publish func(f *os.File, path string) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if _, err = f.Write(data); err == nil {
		err = publish(f, path)
	}
	if err != nil {
		// Ignore the errors of undoing what publish has already done.
		return fmt.Errorf("write %s: %w", path, errors.Join(err, ignore(f.Close(), os.ErrClosed), ignore(os.Remove(f.Name()), os.ErrNotExist)))
	}
	return nil
}

func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// Publish syncs and closes a temporary file in the folder of path, and renames it to path.
func Publish(f *os.File, path string) error {
	err := f.Sync()
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
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
