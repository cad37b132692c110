package adopt

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Limits of the files that adopt reads.
const (
	maxFile    = 4 << 20 // bytes of a manifest, a key or a configuration file
	maxMembers = 10_000  // files in etcd's data folder
)

// machine is the file tree of a kubeadm machine. Paths are absolute, as on that machine.
type machine struct{ root *os.Root }

func openMachine(dir string) (*machine, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &machine{root}, nil
}

func (m *machine) close() error { return m.root.Close() }

// host returns the path of a file on this machine.
func (m *machine) host(name string) string {
	return filepath.Join(m.root.Name(), filepath.FromSlash(name))
}

// below returns a path relative to the root.
func below(name string) string {
	if name = strings.TrimPrefix(path.Clean("/"+name), "/"); name == "" {
		return "."
	}
	return name
}

// open opens a regular file. A FIFO or a device is refused without waiting for it.
func (m *machine) open(name string) (*os.File, error) {
	f, err := m.root.OpenFile(below(name), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, m.explain(name, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", m.host(name))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (m *machine) explain(name string, err error) error {
	if cause := errors.Unwrap(err); cause != nil && strings.Contains(cause.Error(), "escapes") {
		return fmt.Errorf("%s leads out of %s by a link: put the file or folder itself in its place", m.host(name), m.root.Name())
	}
	return fmt.Errorf("%s: %w", m.host(name), errors.Unwrap(err))
}

// read returns the content of a small file.
func (m *machine) read(name string) ([]byte, error) {
	f, err := m.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s is larger than %d bytes", m.host(name), maxFile)
	}
	return data, err
}

// exists reports whether there is a file or folder. An unreadable one exists.
func (m *machine) exists(name string) bool {
	_, err := m.root.Lstat(below(name))
	return !errors.Is(err, fs.ErrNotExist)
}
