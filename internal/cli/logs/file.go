// Package logs writes and reads the log files of a data folder: knarr's own, where it runs in the
// background, and containerd's.
package logs

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// MaxSize is how large a log file of knarr gets, in bytes. One older file is kept beside it, so the
// log takes twice that.
const MaxSize = 10 << 20

// File is a log that this process appends to. When it is full, it is renamed to NAME.1 and begun
// anew. Safe for concurrent use.
type File struct {
	path string
	max  int64
	// stderr makes each new file the process's standard error too, so that the last words of a
	// panic are in it.
	stderr bool

	mu   sync.Mutex // guards the rest
	file *os.File
	size int64
}

// Open appends to path, up to max bytes a file.
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

// Write appends p. A file that cannot be begun anew grows on: a log that is too long is better than
// none.
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

// Close closes the file; standard error keeps it.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.file.Close()
}
