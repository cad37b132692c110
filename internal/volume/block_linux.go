package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"golang.org/x/sys/unix"
)

const (
	// devicesDir holds a link for each block volume of the pod: podDir/volumeDevices/PLUGIN/NAME.
	// The link leads to the device's bind mount in the plugin's folder.
	devicesDir     = "volumeDevices"
	localPluginDir = "kubernetes.io~local-volume"
)

// rootOf returns the node agent's folder, whose pods folder holds podDir.
func rootOf(podDir string) string { return filepath.Dir(filepath.Dir(podDir)) }

// localDevice is the mount point of a local block volume for one pod.
func localDevice(podDir, name string) string {
	return filepath.Join(rootOf(podDir), "plugins", "kubernetes.io", "local-volume", devicesDir, name, filepath.Base(podDir))
}

// mapLocalDevice gives the pod a block device of the node. The device is bind-mounted below the
// plugin's folder: its node stays the same if the machine renames the device meanwhile.
func mapLocalDevice(podDir, path, name string) (string, error) {
	if err := checkBlockDevice(path); err != nil {
		return "", fmt.Errorf("local volume %s: %w", name, err)
	}
	target := localDevice(podDir, name)
	// Write the link first: Unmount finds the mount by it.
	if err := rememberDevice(podDir, localPluginDir, name, target); err != nil {
		return "", err
	}
	if err := bindFile(path, target); err != nil {
		return "", fmt.Errorf("local volume %s: %w", name, err)
	}
	return target, nil
}

// checkBlockDevice returns an error for a path that is not a block device.
func checkBlockDevice(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeDevice {
		return fmt.Errorf("%s is not a block device, but the volume has volumeMode Block", path)
	}
	return nil
}

// bindFile bind-mounts a file, or keeps a bind mount of the same device.
func bindFile(path, target string) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var source, shown unix.Stat_t
	if err := unix.Fstat(fd, &source); err != nil {
		return &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if err := unix.Stat(target, &shown); err == nil && shown.Mode&unix.S_IFMT == unix.S_IFBLK && shown.Rdev == source.Rdev {
		return nil
	}
	return bindDescriptor(fd, target)
}

// rememberDevice writes the pod's link to a block volume.
func rememberDevice(podDir, plugin, name, target string) error {
	dir := filepath.Join(podDir, devicesDir, plugin)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	return replaceLink(filepath.Join(dir, name), target)
}

// replaceLink makes link point at target.
func replaceLink(link, target string) error {
	if current, err := os.Readlink(link); err == nil && current == target {
		return nil
	}
	_ = os.Remove(link)
	return os.Symlink(target, link)
}

// unmapLocalDevices removes the pod's local block volumes from the plugin's folder.
func unmapLocalDevices(podDir string) error {
	names, err := os.ReadDir(filepath.Join(podDir, devicesDir, localPluginDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, entry := range names {
		if err := removeDevice(localDevice(podDir, entry.Name())); err != nil {
			return fmt.Errorf("volume %s: %w", entry.Name(), err)
		}
	}
	return nil
}

// removeDevice unmounts a device and removes its file, and the folder if it is empty then.
func removeDevice(target string) error {
	if err := unmountBelow(target); err != nil {
		return err
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_ = os.Remove(filepath.Dir(target)) // other pods' devices may be there
	return nil
}

// checkMode returns an error if a container uses the volume in the other volumeMode.
func checkMode(pod *corev1.Pod, name string, block bool) error {
	mounted, mapped := usesOf(pod, name)
	switch {
	case block && mounted:
		return fmt.Errorf("volume %s has volumeMode Block, but is specified in volumeMounts", name)
	case !block && mapped:
		return fmt.Errorf("volume %s has volumeMode Filesystem, but is specified in volumeDevices", name)
	}
	return nil
}

// usesOf reports whether containers use the volume as a folder and as a device.
func usesOf(pod *corev1.Pod, name string) (mounted, mapped bool) {
	look := func(mounts []corev1.VolumeMount, devices []corev1.VolumeDevice) {
		for i := range mounts {
			mounted = mounted || mounts[i].Name == name
		}
		for i := range devices {
			mapped = mapped || devices[i].Name == name
		}
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			look(containers[i].VolumeMounts, containers[i].VolumeDevices)
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		look(pod.Spec.EphemeralContainers[i].VolumeMounts, pod.Spec.EphemeralContainers[i].VolumeDevices)
	}
	return mounted, mapped
}
