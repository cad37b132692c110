package volume

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/mount-utils"
	"k8s.io/utils/exec"

	"golang.org/x/sys/unix"
)

// diskFileSystems are the file systems that a local volume may name, the first is the default for
// an empty device. Each is made by the machine's program mkfs.NAME.
var diskFileSystems = []string{"ext4", "ext3", "ext2", "xfs", "btrfs"}

// mountLocalDisk mounts the file system of a block device at dir, and makes one on an empty
// device. Each pod has a mount of its own: for the kernel, several mounts of one device are one
// file system.
func (m *Manager) mountLocalDisk(ctx context.Context, persistent *corev1.PersistentVolume, device, dir string) error {
	source := persistent.Spec.Local
	fsType := ""
	if source.FSType != nil {
		fsType = *source.FSType
	}
	if fsType != "" && !slices.Contains(diskFileSystems, fsType) {
		return fmt.Errorf("spec.local.fsType %q is not supported: use one of %s", fsType, strings.Join(diskFileSystems, ", "))
	}
	var stat unix.Stat_t
	if err := unix.Stat(device, &stat); err != nil {
		return &fs.PathError{Op: "stat", Path: device, Err: err}
	}
	number := fmt.Sprintf("%d:%d", unix.Major(stat.Rdev), unix.Minor(stat.Rdev))
	// Two pods that start at once must not both make a file system.
	return m.operations.do(ctx, "disk/"+number, mountTimeout, func(context.Context) error {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return err
		}
		err := mountDisk(device, number, dir, fsType, persistent.Spec.MountOptions)
		if err != nil {
			_ = os.Remove(dir)
		}
		return err
	})
}

func mountDisk(device, number, dir, fsType string, options []string) error {
	mounter := mount.NewSafeFormatAndMount(mount.New(""), exec.New())
	used, err := deviceMounted(number)
	if err != nil {
		return err
	}
	if used { // a mounted file system must not be checked
		return mounter.Mount(device, dir, fsType, options)
	}
	if fsType == "" {
		if fsType, err = mounter.GetDiskFormat(device); err != nil {
			return fmt.Errorf("find the file system of %s: %w", device, err)
		}
	}
	if fsType == "" {
		fsType = diskFileSystems[0]
	}
	return mounter.FormatAndMount(device, dir, fsType, options)
}

// deviceMounted reports whether the device with this number is mounted anywhere.
func deviceMounted(number string) (bool, error) {
	content, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(content)) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[2] == number {
			return true, nil
		}
	}
	return false, nil
}
