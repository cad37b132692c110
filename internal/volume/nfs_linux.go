package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/mount-utils"

	"golang.org/x/sys/unix"
)

const (
	nfsPluginDir = "kubernetes.io~nfs"
	// nfsPatience is how long unmounting waits for a server that does not answer. Then the mount is
	// detached, and data that the server does not have is lost.
	nfsPatience = 10 * time.Second
)

// mountNFS mounts a server's folder for the pod with the machine's mount.nfs.
func (m *Manager) mountNFS(ctx context.Context, pod *corev1.Pod, podDir, name string, source *corev1.NFSVolumeSource, options []string, readOnly bool) (MountPoint, error) {
	dir := filepath.Join(podDir, volumesDir, nfsPluginDir, name)
	point := MountPoint{HostPath: dir, ReadOnly: readOnly}
	mounts, err := mountsBelow(dir)
	if err != nil || len(mounts) > 0 {
		return point, err
	}
	if !nfsHelper() {
		return MountPoint{}, fmt.Errorf("nfs volume %s of server %s: this node lacks the program mount.nfs; install the package nfs-common (Debian, Ubuntu) or nfs-utils (Fedora, RHEL, SUSE)", name, source.Server)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return MountPoint{}, err
	}
	options = append([]string{}, options...)
	if readOnly {
		options = append(options, "ro")
	}
	if err := mount.New("").Mount(nfsSource(source), dir, "nfs", options); err != nil {
		_ = os.Remove(dir)
		return MountPoint{}, fmt.Errorf("nfs volume %s: %w", name, err)
	}
	if ctx.Err() != nil {
		return MountPoint{}, ctx.Err() // the next attempt finds the mount
	}
	return point, rememberClaimDir(podDir, name, dir)
}

// nfsSource is the device name of a server's folder. IPv6 addresses have brackets.
func nfsSource(source *corev1.NFSVolumeSource) string {
	server := strings.Trim(source.Server, "[]")
	if ip := net.ParseIP(server); ip != nil && ip.To4() == nil {
		server = "[" + server + "]"
	}
	return server + ":" + source.Path
}

// nfsHelper reports whether the machine has mount.nfs. The command mount looks in /sbin.
func nfsHelper() bool {
	for _, path := range []string{"mount.nfs", "/sbin/mount.nfs", "/usr/sbin/mount.nfs"} {
		if _, err := exec.LookPath(path); err == nil {
			return true
		}
	}
	return false
}

// unmountNFS unmounts the pod's NFS volumes, so that all data reaches the server.
func unmountNFS(ctx context.Context, podDir string) error {
	mounts, err := mountsBelow(filepath.Join(podDir, volumesDir, nfsPluginDir))
	if err != nil {
		return err
	}
	for _, point := range mounts {
		done := make(chan error, 1)
		go func() { done <- unix.Unmount(point, unix.UMOUNT_NOFOLLOW) }()
		select {
		case err = <-done:
		case <-time.After(nfsPatience):
			err = context.DeadlineExceeded
		case <-ctx.Done():
			return ctx.Err()
		}
		if err != nil {
			err = unix.Unmount(point, unix.MNT_FORCE|unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		}
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return &fs.PathError{Op: "unmount", Path: point, Err: err}
		}
	}
	return nil
}
