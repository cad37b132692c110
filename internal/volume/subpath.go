package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"golang.org/x/sys/unix"
)

// subPathsDir holds the bind mounts of sub paths: podDir/volume-subpaths/VOLUME/CONTAINER/INDEX.
const subPathsDir = "volume-subpaths"

// SubPath prepares a part of a volume for mounting and returns its path. A container can write
// symlinks into its volumes at any time. The kernel therefore resolves the path beneath the volume
// (openat2 with RESOLVE_BENEATH), and SubPath bind-mounts the open descriptor. The path is never
// resolved a second time.
func (m *Manager) SubPath(_ context.Context, podDir string, mount corev1.VolumeMount, container string, index int, from MountPoint, subPath string) (string, error) {
	fd, err := openBeneath(from.HostPath, subPath)
	if errors.Is(err, unix.ENOENT) {
		if err = makeBeneath(from.HostPath, subPath); err == nil {
			fd, err = openBeneath(from.HostPath, subPath)
		}
	}
	if err != nil {
		return "", fmt.Errorf("subPath %q of volume %q: %w", subPath, mount.Name, err)
	}
	defer unix.Close(fd)
	target := filepath.Join(podDir, subPathsDir, mount.Name, container, strconv.Itoa(index))
	if err := bindDescriptor(fd, target); err != nil {
		return "", fmt.Errorf("subPath %q of volume %q: %w", subPath, mount.Name, err)
	}
	return target, nil
}

// makeBeneath makes missing folders. The last one has the mode of the volume's root folder.
func makeBeneath(root, path string) error {
	info, err := os.Stat(root)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", root)
	}
	confined, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer confined.Close()
	if err := confined.MkdirAll(path, info.Mode().Perm()); err != nil {
		return err
	}
	// The umask may have removed bits, and new folders have neither setgid nor the sticky bit.
	return confined.Chmod(path, info.Mode()&(fs.ModePerm|fs.ModeSetgid|fs.ModeSticky))
}

// bindDescriptor bind-mounts an open file or folder. It does nothing if target already shows the
// same one, which happens when a container restarts.
func bindDescriptor(fd int, target string) error {
	var source unix.Stat_t
	if err := unix.Fstat(fd, &source); err != nil {
		return err
	}
	mounts, err := mountsBelow(target)
	if err != nil {
		return err
	}
	if len(mounts) > 0 {
		var shown unix.Stat_t
		if err := unix.Stat(target, &shown); err == nil && shown.Dev == source.Dev && shown.Ino == source.Ino {
			return nil
		}
		if err := unmountBelow(target); err != nil {
			return err
		}
	}
	if err := makeTarget(target, source.Mode&unix.S_IFMT == unix.S_IFDIR); err != nil {
		return err
	}
	return bind("/proc/self/fd/"+strconv.Itoa(fd), target)
}

// makeTarget makes an empty file or folder as mount point, replacing one of the other kind.
func makeTarget(target string, folder bool) error {
	if info, err := os.Lstat(target); err == nil {
		if info.IsDir() == folder {
			return nil
		}
		if err := os.Remove(target); err != nil {
			return err
		}
	}
	if folder {
		return os.MkdirAll(target, 0o750)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return err
	}
	file, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o640)
	if err != nil {
		return err
	}
	return file.Close()
}
