package cri

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A mount namespace made beside a running cluster has copies of the cluster's mounts. If a tmpfs
// hides them, they have no path and belong to the other cluster.
func TestAHiddenMountIsKept(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	const inside = "KNARR_TEST_IN_MOUNT_NAMESPACE"
	if os.Getenv(inside) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), inside+"=1")
		// Go makes the namespace's mounts private
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("in a mount namespace: %v\n%s", err, out)
		}
		return
	}
	dir := t.TempDir()
	point := func(names ...string) string { return filepath.Join(append([]string{dir}, names...)...) }
	mountAt := func(path string) {
		t.Helper()
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("tmpfs", path, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
	}
	mountAt(point("data", "pods", "theirs"))
	mountAt(point("data", "pods", "same"))
	mountAt(point("data")) // hides everything below, as on another machine
	mountAt(point("data", "pods", "ours"))
	mountAt(point("data", "pods", "same"))
	if err := UnmountBelow(point("data")); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"ours", "same"} {
		if err := os.Remove(point("data", "pods", name)); err != nil {
			t.Errorf("%s is still mounted: %v", name, err)
		}
	}
	if err := unix.Unmount(point("data"), 0); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"theirs", "same"} {
		if err := os.Remove(point("data", "pods", name)); !errors.Is(err, unix.EBUSY) {
			t.Errorf("the hidden mount %s was removed: %v", name, err)
		}
		_ = unix.Unmount(point("data", "pods", name), unix.MNT_DETACH)
	}
}
