package snapshots

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Work is a folder for files that are not finished. It is locked while its process lives, so that
// the next NewWork removes the folders of killed ones.
type Work struct {
	Dir  string
	lock *os.File
}

const workPrefix = ".work-"

// NewWork makes a folder below parent, and parent itself.
func NewWork(parent string) (*Work, error) {
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return nil, fmt.Errorf("snapshots: %w", err)
	}
	removeAbandoned(parent)
	for {
		dir, err := os.MkdirTemp(parent, workPrefix)
		if err != nil {
			return nil, fmt.Errorf("snapshots: %w", err)
		}
		lock, err := lockFolder(dir)
		if err == nil {
			return &Work{Dir: dir, lock: lock}, nil
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("snapshots: %w", errors.Join(err, os.RemoveAll(dir)))
		}
		// Another process has taken the folder for an abandoned one before it was locked.
	}
}

// Path returns the path of a file in the folder.
func (w *Work) Path(name string) string { return filepath.Join(w.Dir, name) }

// Close removes the folder.
func (w *Work) Close() error { return errors.Join(os.RemoveAll(w.Dir), w.lock.Close()) }

// lockFolder locks an existing folder. The lock ends with the process.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	var stat unix.Stat_t
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		err = unix.Fstat(int(f.Fd()), &stat)
	}
	if err == nil && stat.Nlink == 0 {
		err = fs.ErrNotExist
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// removeAbandoned removes the folders of killed processes. A failure harms nothing: the next call
// tries again.
func removeAbandoned(parent string) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return
	}
	for _, e := range entries {
		if match, _ := filepath.Match(workPrefix+"*", e.Name()); !match || !e.IsDir() {
			continue
		}
		dir := filepath.Join(parent, e.Name())
		if lock, err := lockFolder(dir); err == nil {
			_ = os.RemoveAll(dir)
			_ = lock.Close()
		}
	}
}
