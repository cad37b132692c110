package etcd

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/store"
)

const (
	// DiskReserve is the free space of the data folder's file system, in bytes, below which the
	// engine refuses every write. etcd cannot go on after a write that the disk refuses, and it
	// allocates segments of its log ahead.
	DiskReserve = 64 << 20

	// roomAhead is the space that is allocated on disk beyond the database's end, so that another
	// program that fills the disk cannot take what accepted writes need.
	roomAhead = 8 << 20

	// A reading of the free space is used again for this time, and until as many bytes have been
	// written.
	freeFor  = 20 * time.Millisecond
	freeUpTo = 1 << 20
)

// disk watches the space of the file system that holds the database. The caller serializes its
// methods.
type disk struct {
	dir, path string // the data folder, and the database file

	free      int64 // bytes, at the last reading; negative if unknown
	read      time.Time
	since     int64 // bytes written since then
	allocated int64 // bytes of the database file that have a place on disk
}

// check returns an error if the disk has no space for a write. end is the end of the database with
// all accepted writes; size is the size of the write.
func (d *disk) check(end, size int64) error {
	d.since += size
	if now := time.Now(); d.read.IsZero() || d.since > freeUpTo || now.Sub(d.read) > freeFor {
		d.free, d.read, d.since = FreeBytes(d.dir), now, 0
	}
	if d.free >= 0 && d.free < DiskReserve {
		return fullDisk(d.dir, d.free)
	}
	if end+roomAhead <= d.allocated {
		return nil
	}
	err := allocate(d.path, end+2*roomAhead)
	switch {
	case err == nil, errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EINVAL):
		// Without support by the file system the reserve has to do.
		d.allocated = end + 2*roomAhead
		d.read = time.Time{}
		return nil
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fullDisk(d.dir, d.free)
	}
	return fmt.Errorf("allocate space for the store: %w", err)
}

// allocate gives the first bytes of a file their places on disk, without changing its size.
func allocate(path string, bytes int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, bytes)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func fullDisk(dir string, free int64) error {
	return &store.NoSpaceError{Reason: fmt.Sprintf("the disk of the store is full: %s has %s free and the store keeps a reserve of %s; free some space there",
		describeFolder(dir), megabytes(free), megabytes(DiskReserve))}
}

// FreeBytes returns the free space for unprivileged users on a folder's file system, negative if
// it is unknown.
func FreeBytes(dir string) int64 {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil || fs.Blocks == 0 {
		return -1
	}
	return int64(fs.Bavail) * int64(fs.Bsize)
}

func megabytes(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

// Device tells where a folder is stored.
type Device struct {
	Name       string // such as /dev/nvme0n1p2
	MountPoint string
	FileSystem string // such as ext4
}

func (d Device) String() string {
	if d.Name == "" {
		return "an unknown device"
	}
	return fmt.Sprintf("%s (%s, mounted on %s)", d.Name, d.FileSystem, d.MountPoint)
}

// DeviceOf finds a folder's device in /proc/self/mountinfo.
func DeviceOf(dir string) Device {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return Device{}
	}
	content, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Device{}
	}
	number := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	return findDevice(string(content), number, dir)
}

// findDevice reads the format of proc_pid_mountinfo(5). It prefers the mount of the device with the
// longest path above dir.
func findDevice(mountinfo, number, dir string) (best Device) {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var bestAbove bool
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(line, " - ")
		fields, rest := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 6 || len(rest) < 2 || fields[2] != number {
			continue
		}
		d := Device{Name: unescape.Replace(rest[1]), MountPoint: unescape.Replace(fields[4]), FileSystem: rest[0]}
		above := d.MountPoint == "/" || d.MountPoint == dir || strings.HasPrefix(dir, d.MountPoint+"/")
		if best.Name == "" || above && (!bestAbove || len(d.MountPoint) >= len(best.MountPoint)) {
			best, bestAbove = d, above
		}
	}
	return best
}

func describeFolder(dir string) string { return dir + " on " + DeviceOf(dir).String() }
