package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// isMountPoint reports whether path is a mount point, by comparing its device with the parent
// folder's. This is correct for separate file systems (tmpfs, CSI), but not for bind mounts.
func isMountPoint(path string) (bool, error) {
	var own, above unix.Stat_t
	if err := unix.Lstat(path, &own); err != nil {
		return false, &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	if err := unix.Lstat(filepath.Dir(path), &above); err != nil {
		return false, &fs.PathError{Op: "lstat", Path: filepath.Dir(path), Err: err}
	}
	return own.Dev != above.Dev, nil
}

// mountsBelow lists the mount points at and below a folder in mount order.
func mountsBelow(dir string) ([]string, error) {
	content, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var found []string
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		if point := unescape.Replace(fields[4]); point == dir || strings.HasPrefix(point, dir+"/") {
			found = append(found, point)
		}
	}
	return found, nil
}

// unmountBelow detaches all mounts at and below a folder, the innermost first. It returns an error
// if a mount remains.
func unmountBelow(dir string) error {
	for range 3 { // mounts can be stacked
		mounts, err := mountsBelow(dir)
		if err != nil {
			return err
		}
		if len(mounts) == 0 {
			return nil
		}
		for _, mount := range slices.Backward(mounts) {
			err := unix.Unmount(mount, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
			if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("unmount %s: %w", mount, err)
			}
		}
	}
	left, err := mountsBelow(dir)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("still mounted: %s", strings.Join(left, ", "))
	}
	return err
}

// mountTmpfs mounts a tmpfs of at most size bytes; 0 selects the kernel's default, half of the
// memory. If the kernel supports it, the pages do not go to swap. The root folder has its group
// from the start: after a crash, a mounted tmpfs counts as complete. As with upstream it is sticky:
// a user cannot remove another user's files.
func mountTmpfs(dir string, size int64, group *int64) error {
	options := rootOptions(unix.S_ISVTX, group)
	if size > 0 {
		options += ",size=" + strconv.FormatInt(size, 10)
	}
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, options+",noswap")
	if errors.Is(err, unix.EINVAL) {
		err = unix.Mount("tmpfs", dir, "tmpfs", 0, options)
	}
	if err != nil {
		return fmt.Errorf("mount tmpfs at %s: %w", dir, err)
	}
	return nil
}

// rootOptions are the mount options for a volume's root folder, as setRootMode makes it. bits are
// added to the mode.
func rootOptions(bits uint32, group *int64) string {
	if group == nil {
		return fmt.Sprintf("mode=%#o", 0o777|bits)
	}
	return fmt.Sprintf("mode=%#o,gid=%d", 0o777|unix.S_ISGID|bits, *group)
}

// bind bind-mounts source to target, including the mounts below it. The new mount is a slave: it
// sees later mounts of the source, but unmounting it does not unmount the source.
func bind(source, target string) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", source, target, err)
	}
	if err := unix.Mount("", target, "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s to %s: make slave: %w", source, target, err)
	}
	return nil
}

// ShareAt bind-mounts dir at target, as a mount with a propagation group of its own: mounts below
// target do not appear below dir, but they reach containers with mountPropagation.
func ShareAt(dir, target string) error {
	if err := unix.Mount(dir, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", dir, target, err)
	}
	for _, flag := range []uintptr{unix.MS_PRIVATE, unix.MS_SHARED} {
		if err := unix.Mount("", target, "", flag, ""); err != nil {
			return errors.Join(fmt.Errorf("share mounts below %s: %w", target, err), unix.Unmount(target, unix.MNT_DETACH))
		}
	}
	return nil
}

// MountsBelow lists the mount points at and below a folder.
func MountsBelow(dir string) ([]string, error) { return mountsBelow(dir) }

// UnmountBelow detaches all mounts at and below a folder.
func UnmountBelow(dir string) error { return unmountBelow(dir) }
