package chaos

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/knarr-project/knarr/test/chaos/lossydisk"
)

// shortDir makes a folder with a short name: the names of t.TempDir are too long for sockets.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "knarr-chaos-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// mountDisk mounts a lossy disk at a new folder.
func mountDisk(t testing.TB, dir string) *lossydisk.Disk {
	t.Helper()
	if err := lossydisk.Supported(); err != nil {
		t.Skip("no FUSE: ", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	d, err := lossydisk.Mount(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// loseAtKills moves a server, which does not run yet, to a lossy disk. Each kill of the server is
// also the end of its machine. It returns what the crashes have lost so far, and their number.
func loseAtKills(t testing.TB, s *server, start uint64) (lost *lossydisk.Losses, crashes *int) {
	t.Helper()
	s.dir = filepath.Join(s.dir, "disk")
	d := mountDisk(t, s.dir)
	lost, crashes = &lossydisk.Losses{}, new(int)
	s.killed = func() {
		l, err := d.Crash(start + uint64(*crashes))
		if err != nil {
			t.Error(err)
		}
		lost.Pages, lost.Names = lost.Pages+l.Pages, lost.Names+l.Names
		*crashes++
	}
	return lost, crashes
}
