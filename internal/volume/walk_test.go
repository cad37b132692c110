package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// deepTree makes a chain of folders and returns the deepest one, open.
func deepTree(t *testing.T, dir, name string, depth int) int {
	t.Helper()
	fd, err := unix.Open(dir, openFolder, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range depth {
		if err := unix.Mkdirat(fd, name, 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, name, openFolder, 0)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(fd)
		fd = next
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func writeAt(t *testing.T, dir int, name string, size int) {
	t.Helper()
	fd, err := unix.Openat(dir, name, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, make([]byte, size)); err != nil {
		t.Fatal(err)
	}
}

func TestAWalkCountsWhatLiesDeeperThanAnyPath(t *testing.T) {
	for _, tree := range []struct {
		name  string
		depth int
	}{{strings.Repeat("n", 200), 100}, {"d", 3000}} {
		dir := t.TempDir()
		bottom := deepTree(t, dir, tree.name, tree.depth)
		writeAt(t, bottom, "hidden", 2<<20)
		writeAt(t, bottom, "beside", 1)
		bytes, inodes, err := DiskUsage(t.Context(), dir)
		if err != nil || bytes < 2<<20 || inodes != uint64(tree.depth)+3 {
			t.Errorf("%d folders: %d bytes, %d inodes, %v", tree.depth, bytes, inodes, err)
		}
	}
}

func TestAWalkCountsHardLinksOnceAndFollowsNoLinks(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, make([]byte, 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, link := range map[string]func(string) error{
		"hard":   func(to string) error { return os.Link(filepath.Join(dir, "a"), to) },
		"link":   func(to string) error { return os.Symlink(outside, to) },
		"folder": func(to string) error { return os.Symlink(filepath.Dir(outside), to) },
		"loop":   func(to string) error { return os.Symlink(dir, to) },
		"fifo":   func(to string) error { return unix.Mkfifo(to, 0o600) },
	} {
		if err := link(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	bytes, inodes, err := DiskUsage(t.Context(), dir)
	if err != nil || bytes < 1<<20 || bytes >= 2<<20 || inodes != 6 {
		t.Errorf("%d bytes, %d inodes, %v", bytes, inodes, err)
	}
}

func TestAWalkEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	if _, _, err := DiskUsage(ctx, dir); !errors.Is(err, ErrPartial) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, _, err := DiskUsage(t.Context(), filepath.Join(dir, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
