// Package logs writes and reads the log files of a data folder: knarr's own log, if it runs in the
// background, and containerd's.
package logs

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// MaxSize is the maximum size in bytes of a log file. One older file is kept beside it, so the log
// takes twice that.
const MaxSize = 10 << 20

// File is a log file to which this process appends. When it is full, it is renamed to NAME.1 and a
// new one is started. It is safe for concurrent use.
type File struct {
	path string
	max  int64
	// stderr redirects the process's standard error to each new file, so that the file also gets
	// the output of a panic.
	stderr bool

	mu   sync.Mutex // guards the rest
	file *os.File
	size int64
}

// Open opens path for appending, with at most max bytes per file.
func Open(path string, max int64, stderr bool) (*File, error) {
	f := &File{path: path, max: max, stderr: stderr}
	if err := f.open(); err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	return f, nil
}

func (f *File) open() error {
	file, err := os.OpenFile(f.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil && f.stderr {
		err = unix.Dup3(int(file.Fd()), 2, 0)
	}
	if err != nil {
		_ = file.Close()
		return err
	}
	if f.file != nil {
		_ = f.file.Close()
	}
	f.file, f.size = file, info.Size()
	return nil
}

// Write appends p. If a new file cannot be started, the old one grows: a log that is too long is
// better than none.
func (f *File) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.size > 0 && f.size+int64(len(p)) > f.max {
		if os.Rename(f.path, f.path+".1") == nil {
			_ = f.open()
		}
	}
	n, err := f.file.Write(p)
	f.size += int64(n)
	return n, err
}

// Close closes the file; standard error keeps it open.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.file.Close()
}
