package volume

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// openBeneath opens a path with O_PATH. A link that leads out of root is an error; so is an
// absolute link.
func openBeneath(root, path string) (int, error) {
	base, err := unix.Open(root, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: root, Err: err}
	}
	defer unix.Close(base)
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	for range 10 {
		fd, err := unix.Openat2(base, filepath.Clean(path), &how)
		if errors.Is(err, unix.EAGAIN) {
			// A concurrent rename keeps the kernel from proving that the path stayed beneath root.
			continue
		}
		if errors.Is(err, unix.EXDEV) {
			return -1, errors.New("it leads outside of the volume")
		}
		return fd, err
	}
	return -1, unix.EAGAIN
}

// ReadBeneath reads a regular file below root, a folder that containers can write to. These are
// errors: a link that leaves root, a device, a pipe, and a file of more than limit bytes. It opens
// only regular files, because merely opening a device can have effects. A missing file is
// fs.ErrNotExist.
func ReadBeneath(root, path string, limit int64) ([]byte, error) {
	fd, err := openBeneath(root, path)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return nil, err
	}
	if kind := stat.Mode & unix.S_IFMT; kind != unix.S_IFREG {
		return nil, fmt.Errorf("it is %s, not a regular file", kindOf(kind))
	}
	// The kernel opens the file that fd refers to, whatever the path names by now. Without
	// O_NONBLOCK, a lease held by a container's process would block the open.
	file, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(fd), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, errors.Unwrap(err) // hide the path in /proc, which means nothing to users
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("it is larger than %d bytes", limit)
	}
	return data, nil
}

// kindOf describes a file type of stat(2).
func kindOf(mode uint32) string {
	switch mode {
	case unix.S_IFDIR:
		return "a directory"
	case unix.S_IFIFO:
		return "a named pipe"
	case unix.S_IFSOCK:
		return "a socket"
	case unix.S_IFCHR, unix.S_IFBLK:
		return "a device"
	}
	return "a special file"
}
