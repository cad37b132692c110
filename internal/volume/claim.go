package volume

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/ephemeral"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/volume/local"
)

// claimOf returns the name of the volume's claim, or "" for volumes without one.
func claimOf(pod *corev1.Pod, volume *corev1.Volume) (name string, readOnly bool) {
	switch {
	case volume.PersistentVolumeClaim != nil:
		return volume.PersistentVolumeClaim.ClaimName, volume.PersistentVolumeClaim.ReadOnly
	case volume.Ephemeral != nil:
		return ephemeral.VolumeClaimName(pod, volume), false
	}
	return "", false
}

// claimed returns the persistent volume that is bound to the volume's claim.
func (m *Manager) claimed(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume) (*corev1.PersistentVolume, *corev1.PersistentVolumeClaim, error) {
	name, _ := claimOf(pod, volume)
	claim, err := client.Get[*corev1.PersistentVolumeClaim](ctx, m.Client, pod.Namespace, name)
	if err != nil {
		return nil, nil, fmt.Errorf("error processing PVC %s/%s: %w", pod.Namespace, name, err)
	}
	if volume.Ephemeral != nil {
		if err := ephemeral.VolumeIsForPod(pod, claim); err != nil {
			return nil, nil, err
		}
	}
	if claim.DeletionTimestamp != nil && !hasFinalizer(claim, "kubernetes.io/pvc-protection") {
		return nil, nil, fmt.Errorf("error processing PVC %s/%s: PVC is being deleted", pod.Namespace, name)
	}
	if claim.Status.Phase != corev1.ClaimBound || claim.Spec.VolumeName == "" {
		return nil, nil, fmt.Errorf("error processing PVC %s/%s: PVC is not bound", pod.Namespace, name)
	}
	persistent, err := client.Get[*corev1.PersistentVolume](ctx, m.Client, "", claim.Spec.VolumeName)
	if err != nil {
		return nil, nil, fmt.Errorf("error processing PVC %s/%s: %w", pod.Namespace, name, err)
	}
	if ref := persistent.Spec.ClaimRef; ref == nil || ref.UID != claim.UID {
		return nil, nil, fmt.Errorf("error processing PVC %s/%s: PV %s is bound to another claim", pod.Namespace, name, persistent.Name)
	}
	return persistent, claim, nil
}

func hasFinalizer(claim *corev1.PersistentVolumeClaim, name string) bool {
	for _, finalizer := range claim.Finalizers {
		if finalizer == name {
			return true
		}
	}
	return false
}

// mountClaim mounts a persistent volume.
func (m *Manager) mountClaim(ctx context.Context, known *mounted, pod *corev1.Pod, podDir string, volume *corev1.Volume) (MountPoint, error) {
	persistent, claim, err := m.claimed(ctx, pod, volume)
	if err != nil {
		return MountPoint{}, err
	}
	_, readOnly := claimOf(pod, volume)
	block := claim.Spec.VolumeMode != nil && *claim.Spec.VolumeMode == corev1.PersistentVolumeBlock
	source := &persistent.Spec.PersistentVolumeSource
	if err := checkMode(pod, volume.Name, block); err != nil {
		return MountPoint{}, err
	}
	switch {
	case source.HostPath != nil && block:
		return MountPoint{}, fmt.Errorf("PV %s: hostPath volumes have no volumeMode Block; use a local volume with the device's path", persistent.Name)
	case source.HostPath != nil:
		if err := hostPath(source.HostPath); err != nil {
			return MountPoint{}, err
		}
		return MountPoint{HostPath: source.HostPath.Path, ReadOnly: readOnly}, nil
	case source.Local != nil:
		return m.mountLocalVolume(ctx, pod, podDir, volume.Name, persistent, readOnly, block)
	case source.CSI != nil:
		return m.mountCSIPersistent(ctx, known, csiClaim{pod: pod, podDir: podDir, name: volume.Name, persistent: persistent, claim: claim, readOnly: readOnly, block: block})
	case source.NFS != nil && block:
		return MountPoint{}, fmt.Errorf("PV %s: nfs volumes have no volumeMode Block", persistent.Name)
	case source.NFS != nil:
		return m.mountNFS(ctx, pod, podDir, persistent.Name, source.NFS, persistent.Spec.MountOptions, readOnly || source.NFS.ReadOnly)
	}
	return MountPoint{}, fmt.Errorf("PV %s: this node mounts local, hostPath, nfs and CSI volumes; for others (iSCSI, cloud disks) install their CSI driver", persistent.Name)
}

// mountLocalVolume mounts a local volume. The node's provisioner attaches its own volumes first.
func (m *Manager) mountLocalVolume(ctx context.Context, pod *corev1.Pod, podDir, name string, persistent *corev1.PersistentVolume, readOnly, block bool) (MountPoint, error) {
	path := persistent.Spec.Local.Path
	if local.Ours(persistent) && m.Local != nil {
		var err error
		if path, err = m.Local(ctx, persistent); err != nil {
			return MountPoint{}, err
		}
	}
	if block {
		device, err := mapLocalDevice(podDir, path, persistent.Name)
		return MountPoint{HostPath: device, ReadOnly: readOnly, Block: true}, err
	}
	dir := filepath.Join(podDir, volumesDir, localPluginDir, persistent.Name)
	mounts, err := mountsBelow(dir)
	if err == nil && len(mounts) == 0 {
		if err = m.mountLocalSource(ctx, persistent, path, dir); err == nil {
			err = giveClaim(dir, pod, readOnly)
		}
	}
	if err != nil {
		return MountPoint{}, fmt.Errorf("local volume: %w", err)
	}
	if err := rememberClaimDir(podDir, name, dir); err != nil {
		return MountPoint{}, err
	}
	return MountPoint{HostPath: dir, ReadOnly: readOnly, SELinuxRelabel: true}, nil
}

// mountLocalSource mounts a folder of the node, or the file system of a block device.
func (m *Manager) mountLocalSource(ctx context.Context, persistent *corev1.PersistentVolume, path, dir string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.Mode().Type() == fs.ModeDevice:
		return m.mountLocalDisk(ctx, persistent, path, dir)
	case !info.IsDir():
		return fmt.Errorf("%s is neither a folder nor a block device", path)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	return bind(path, dir)
}
