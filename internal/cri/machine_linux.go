package cri

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// chooseSnapshotter tries an overlay mount in dir, which can fail. For example, overlayfs does not
// work on top of another overlay.
func chooseSnapshotter(dir string) (name string, reason error) {
	temporary, err := os.MkdirTemp(dir, ".overlay-")
	if err != nil {
		return "native", err
	}
	defer os.RemoveAll(temporary)
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(temporary, name), 0o700); err != nil {
			return "native", err
		}
	}
	at := func(name string) string { return filepath.Join(temporary, name) }
	options := "lowerdir=" + at("lower") + ",upperdir=" + at("upper") + ",workdir=" + at("work")
	if err := unix.Mount("overlay", at("merged"), "overlay", 0, options); err != nil {
		return "native", err
	}
	if err := unix.Unmount(at("merged"), unix.MNT_DETACH); err != nil {
		return "native", err
	}
	return "overlayfs", nil
}

// hasCapability reports whether the process has the effective capability.
func hasCapability(capability uint) bool {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(status)) {
		if hexadecimal, found := strings.CutPrefix(line, "CapEff:"); found {
			mask, err := strconv.ParseUint(strings.TrimSpace(hexadecimal), 16, 64)
			return err == nil && mask&(1<<capability) != 0
		}
	}
	return false
}

// keepInMemory mounts a tmpfs at a new or empty folder that is not in memory yet. The state of
// running containers belongs in memory. It must not survive a reboot, and on disk its many small
// files take 5 to 10 percent of a pod's start. A folder in use stays as it is.
func keepInMemory(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		return err
	}
	var system unix.Statfs_t
	if err := unix.Statfs(dir, &system); err != nil {
		return err
	}
	if system.Type == unix.TMPFS_MAGIC || system.Type == unix.RAMFS_MAGIC {
		return nil
	}
	return unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0711")
}
