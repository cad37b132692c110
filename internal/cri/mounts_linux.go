package cri

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mount is one line of /proc/self/mountinfo.
type mount struct {
	id    uint64
	point string
}

// UnmountBelow detaches every reachable mount below dir, the innermost first. It leaves mounts that
// another mount hides: a mount namespace made beside a running cluster holds copies of that
// cluster's mounts.
func UnmountBelow(dir string) error {
	mounts, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	var problems []error
	for _, m := range slices.Backward(mounts) {
		if !m.reachable() {
			continue
		}
		if err := unix.Unmount(m.point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			problems = append(problems, fmt.Errorf("unmount %s: %w", m.point, err))
		}
	}
	return errors.Join(problems...)
}

// reachable reports whether the mount point's path leads to this mount. Before Linux 5.8 the kernel
// does not tell, and every existing path counts as reachable.
func (m mount) reachable() bool {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, m.point, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_MNT_ID, &st); err != nil {
		return !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR)
	}
	return st.Mask&unix.STATX_MNT_ID == 0 || st.Mnt_id == m.id
}

// mountsBelow lists the mounts under dir in mount order.
func mountsBelow(dir string) ([]mount, error) {
	content, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var mounts []mount
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		id, err := strconv.ParseUint(fields[0], 10, 64)
		if point := unescape.Replace(fields[4]); err == nil && strings.HasPrefix(point, dir+"/") {
			mounts = append(mounts, mount{id, point})
		}
	}
	return mounts, nil
}
