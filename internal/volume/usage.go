package volume

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	"golang.org/x/sys/unix"
)

// Usage is the disk usage of a volume, in the terms of the node's stats summary.
type Usage struct {
	Name          string
	Claim         string // the volume's claim, or ""
	UsedBytes     uint64
	CapacityBytes uint64 // of the volume's file system
	Available     uint64
	Inodes        uint64
	InodesFree    uint64
	InodesUsed    uint64
}

// Usage measures the pod's mounted volumes except hostPath volumes, which do not belong to the pod.
// On disk it walks all files, so callers should cache the result.
func (m *Manager) Usage(pod *corev1.Pod, podDir string) ([]Usage, error) {
	var usages []Usage
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		var dir string
		switch {
		case isProjection(&volume.VolumeSource), volume.EmptyDir != nil:
			dir = filepath.Join(podDir, volumesDir, pluginDir(&volume.VolumeSource), volume.Name)
		case volume.PersistentVolumeClaim != nil, volume.Ephemeral != nil, volume.CSI != nil:
			dir = claimDir(podDir, volume.Name)
		}
		if dir == "" {
			continue
		}
		usage, err := measure(dir)
		if os.IsNotExist(err) {
			continue // not mounted yet
		}
		if err != nil {
			return nil, err
		}
		usage.Name = volume.Name
		usage.Claim, _ = claimOf(pod, volume)
		usages = append(usages, usage)
	}
	return usages, nil
}

// claimDir finds the mount folder of a claim's volume. The folder is named after the persistent
// volume, which the pod does not name; rememberClaimDir has written a link for it.
func claimDir(podDir, volume string) string {
	target, err := os.Readlink(filepath.Join(podDir, volumesDir, ".claims", volume))
	if err != nil {
		return ""
	}
	return target
}

// rememberClaimDir writes the link that claimDir reads.
func rememberClaimDir(podDir, volume, dir string) error {
	links := filepath.Join(podDir, volumesDir, ".claims")
	if err := os.MkdirAll(links, 0o750); err != nil {
		return err
	}
	return replaceLink(filepath.Join(links, volume), dir)
}

func measure(dir string) (Usage, error) {
	var system unix.Statfs_t
	if err := unix.Statfs(dir, &system); err != nil {
		return Usage{}, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	block := uint64(system.Bsize)
	usage := Usage{CapacityBytes: system.Blocks * block, Available: system.Bavail * block, Inodes: system.Files, InodesFree: system.Ffree}
	if own, err := isMountPoint(dir); err == nil && own {
		usage.UsedBytes = (system.Blocks - system.Bfree) * block
		usage.InodesUsed = system.Files - system.Ffree
		return usage, nil
	}
	var err error
	usage.UsedBytes, usage.InodesUsed, err = diskUsage(dir)
	return usage, err
}

// diskUsage sums blocks and counts inodes; hard links count once. Files that vanish meanwhile are
// ignored.
func diskUsage(dir string) (bytes, inodes uint64, err error) {
	seen := map[[2]uint64]bool{}
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			if os.IsNotExist(err) {
				return nil
			}
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return nil
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return nil
		}
		if stat.Nlink > 1 && !info.IsDir() {
			key := [2]uint64{uint64(stat.Dev), stat.Ino}
			if seen[key] {
				return nil
			}
			seen[key] = true
		}
		bytes += uint64(stat.Blocks) * 512
		inodes++
		return nil
	})
	return bytes, inodes, err
}
