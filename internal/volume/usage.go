package volume

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/volume/local"
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
	// Abnormal is the volume's condition according to its CSI driver, or nil if that is unknown.
	Abnormal *bool
}

// Measurement measures one volume of a pod.
type Measurement struct {
	Volume string // its name in the pod
	Claim  string // the volume's claim, or ""
	Dir    string

	manager *Manager // asks drivers of CSI volumes
	pod     *corev1.Pod
}

// Measurements lists how to measure the pod's volumes, except hostPath volumes, which do not belong
// to the pod. It is cheap and does not touch the volumes.
func (m *Manager) Measurements(pod *corev1.Pod, podDir string) []Measurement {
	var out []Measurement
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		var dir string
		switch {
		case isProjection(&volume.VolumeSource), volume.EmptyDir != nil:
			dir = filepath.Join(podDir, volumesDir, pluginDir(&volume.VolumeSource), volume.Name)
		case volume.PersistentVolumeClaim != nil, volume.Ephemeral != nil, volume.CSI != nil, volume.NFS != nil:
			dir = claimDir(podDir, volume.Name)
		}
		if dir == "" {
			continue
		}
		claim, _ := claimOf(pod, volume)
		out = append(out, Measurement{Volume: volume.Name, Claim: claim, Dir: dir, manager: m, pod: pod})
	}
	return out
}

// Run measures. On disk it walks all files, and on a file system that hangs it hangs, whatever ctx
// says: run it in a goroutine of its own. With an error that matches ErrPartial, the usage is a
// lower bound.
func (m Measurement) Run(ctx context.Context) (Usage, error) {
	usage, err := m.measure(ctx)
	usage.Name, usage.Claim = m.Volume, m.Claim
	return usage, err
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

// measure asks a CSI volume's driver, or measures itself.
func (m Measurement) measure(ctx context.Context) (Usage, error) {
	if data, found := csiRecordOf(m.Dir); found && m.manager != nil {
		if usage, asked, err := m.manager.measureCSI(ctx, m.pod, m.Dir, data); asked {
			return usage, err
		}
	}
	return measure(ctx, m.Dir)
}

func measure(ctx context.Context, dir string) (Usage, error) {
	var system unix.Statfs_t
	if err := unix.Statfs(dir, &system); err != nil {
		return Usage{}, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	block := uint64(system.Bsize)
	usage := Usage{CapacityBytes: system.Blocks * block, Available: system.Bavail * block, Inodes: system.Files, InodesFree: system.Ffree}
	// With a quota of its own, statfs tells of the folder alone.
	if own, err := isMountPoint(dir); err == nil && own || local.Limited(dir) {
		usage.UsedBytes = (system.Blocks - system.Bfree) * block
		usage.InodesUsed = system.Files - system.Ffree
		return usage, nil
	}
	var err error
	usage.UsedBytes, usage.InodesUsed, err = DiskUsage(ctx, dir)
	return usage, err
}
