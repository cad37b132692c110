// Package durable writes files that are whole or not there, whenever the power goes: a file is written aside, brought to the disk and renamed,
// and the folder that knows its name is brought to the disk too. For what can not be made again: keys, credentials, snapshots. What is
// remade at every start does not need it.
package durable

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// WriteFile replaces a file in one step, readable by its owner alone, and returns when it is on disk.
func WriteFile(path string, data []byte) error { return write(path, data, Publish) }

// Replace is WriteFile that does not wait for the disk.
func Replace(path string, data []byte) error {
	return write(path, data, func(f *os.File, path string) error {
		if err := f.Close(); err != nil {
			return err
		}
		return os.Rename(f.Name(), path)
	})
}

// write puts the data into a file beside path, which publish closes and gives its name.
func write(path string, data []byte, publish func(f *os.File, path string) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if _, err = f.Write(data); err == nil {
		err = publish(f, path)
	}
	if err != nil {
		// What publish has done already is not there to be undone, and no news.
		return fmt.Errorf("write %s: %w", path, errors.Join(err, except(f.Close(), os.ErrClosed), except(os.Remove(f.Name()), os.ErrNotExist)))
	}
	return nil
}

func except(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// Publish closes a file that was written under another name in the folder of path, and gives it that name once its content is on disk.
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

// SyncFolder brings the names in a folder to the disk.
func SyncFolder(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
