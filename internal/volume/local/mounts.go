package local

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// mount is a line of /proc/self/mountinfo.
type mount struct {
	point, kind, options string // options are the file system's
}

// parseMounts reads the format of /proc/PID/mountinfo (proc_pid_mountinfo(5)) and skips other
// lines.
func parseMounts(content string) []mount {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var mounts []mount
	for line := range strings.Lines(content) {
		before, after, ok := strings.Cut(line, " - ")
		fields, rest := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 6 || len(rest) < 2 {
			continue
		}
		m := mount{point: unescape.Replace(fields[4]), kind: rest[0]}
		if len(rest) > 2 {
			m.options = rest[2]
		}
		mounts = append(mounts, m)
	}
	return mounts
}

func mounts() ([]mount, error) {
	content, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseMounts(string(content)), nil
}

func below(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// mountOf returns the mount that a path is on.
func mountOf(path string) (mount, error) {
	all, err := mounts()
	if err != nil {
		return mount{}, err
	}
	var best mount
	for _, m := range all { // a later mount hides an earlier one
		if (m.point == "/" || below(path, m.point)) && len(m.point) >= len(best.point) {
			best = m
		}
	}
	return best, nil
}

// podMounts is the folder of a pod with its mounts of local volumes.
const podMounts = "kubernetes.io~local-volume"

// inUse reports whether a pod has the volume mounted. Pods' mounts are named after it:
// kubernetes.io~local-volume/NAME, and volumeDevices/NAME/POD for block volumes.
func inUse(name string) (bool, error) {
	all, err := mounts()
	if err != nil {
		return false, err
	}
	for _, m := range all {
		dir, base := filepath.Split(m.point)
		parent, above := filepath.Base(dir), filepath.Base(filepath.Dir(filepath.Clean(dir)))
		if base == name && parent == podMounts || parent == name && above == "volumeDevices" {
			return true, nil
		}
	}
	return false, nil
}

// unmountAll unmounts everything at and below a folder.
func unmountAll(dir string) error {
	all, err := mounts()
	if err != nil {
		return err
	}
	for i := len(all) - 1; i >= 0; i-- {
		if !below(all[i].point, dir) {
			continue
		}
		if err := unix.Unmount(all[i].point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return &os.PathError{Op: "unmount", Path: all[i].point, Err: err}
		}
	}
	return nil
}
