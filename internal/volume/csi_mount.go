package volume

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/knarr-project/knarr/internal/client"
)

const (
	stageCapability   = csispec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME
	groupCapability   = csispec.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP
	writersCapability = csispec.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER
)

// csiVolume is a CSI volume of one pod during its mount.
type csiVolume struct {
	driver     *csiDriver
	object     *storagev1.CSIDriver // nil if the driver has none; defaults apply then
	pod        *corev1.Pod
	handle     string
	dir        string // POD/volumes/kubernetes.io~csi/NAME
	target     string // where the driver mounts the volume, or puts the device, for the pod
	attributes map[string]string
	readOnly   bool
	persistent *corev1.PersistentVolume // nil for inline volumes
	claim      *corev1.PersistentVolumeClaim
	claimed    *corev1.CSIPersistentVolumeSource
	fsType     string
	block      bool
	label      string // SELinux label that the volume is mounted with, or ""
	published  bool   // it is mounted completely
	data       csiData
}

// csiClaim is a claim of a CSI volume in a pod.
type csiClaim struct {
	pod             *corev1.Pod
	podDir, name    string // name is the volume's in the pod
	persistent      *corev1.PersistentVolume
	claim           *corev1.PersistentVolumeClaim
	readOnly, block bool
}

// mountCSIPersistent mounts a claimed volume in three steps. The cluster attaches it, the driver
// stages it once per node, and publishes it per pod.
func (m *Manager) mountCSIPersistent(ctx context.Context, known *mounted, c csiClaim) (MountPoint, error) {
	source := c.persistent.Spec.CSI
	v := &csiVolume{
		pod: c.pod, handle: source.VolumeHandle, persistent: c.persistent, claim: c.claim, claimed: source, block: c.block, readOnly: c.readOnly || source.ReadOnly, fsType: source.FSType,
		dir:        filepath.Join(c.podDir, volumesDir, csiPluginDir, c.persistent.Name),
		attributes: maps.Clone(source.VolumeAttributes),
		data: csiData{SpecVolID: c.persistent.Name, VolumeHandle: source.VolumeHandle, DriverName: source.Driver, NodeName: m.NodeName,
			LifecycleMode: storagev1.VolumeLifecyclePersistent, Block: c.block},
	}
	v.target = targetOf(c.podDir, v.data)
	if c.block {
		if err := rememberDevice(c.podDir, csiPluginDir, c.persistent.Name, v.target); err != nil {
			return MountPoint{}, err
		}
	}
	return m.mountCSI(ctx, known, v, c.podDir, c.name)
}

// mountCSIInline mounts an ephemeral volume that the pod's spec defines.
func (m *Manager) mountCSIInline(ctx context.Context, known *mounted, pod *corev1.Pod, podDir string, volume *corev1.Volume) (MountPoint, error) {
	source := volume.CSI
	sum := sha256.Sum256([]byte(string(pod.UID) + volume.Name))
	v := &csiVolume{
		pod: pod, handle: fmt.Sprintf("csi-%x", sum), dir: filepath.Join(podDir, volumesDir, csiPluginDir, volume.Name),
		attributes: maps.Clone(source.VolumeAttributes), readOnly: source.ReadOnly != nil && *source.ReadOnly,
	}
	if source.FSType != nil {
		v.fsType = *source.FSType
	}
	v.data = csiData{SpecVolID: volume.Name, VolumeHandle: v.handle, DriverName: source.Driver, NodeName: m.NodeName, LifecycleMode: storagev1.VolumeLifecycleEphemeral}
	v.target = targetOf(podDir, v.data)
	return m.mountCSI(ctx, known, v, podDir, volume.Name)
}

// targetOf is where a driver publishes a volume for the pod.
func targetOf(podDir string, data csiData) string {
	if data.Block {
		return filepath.Join(rootOf(podDir), "plugins", "kubernetes.io", "csi", devicesDir, "publish", data.SpecVolID, filepath.Base(podDir))
	}
	return filepath.Join(podDir, volumesDir, csiPluginDir, data.SpecVolID, "mount")
}

// mountCSI mounts the volume, or what is missing of it. name is the volume's name in the pod.
func (m *Manager) mountCSI(ctx context.Context, known *mounted, v *csiVolume, podDir, name string) (MountPoint, error) {
	known.mu.Lock()
	here := known.published[name]
	known.mu.Unlock()
	v.published = v.alreadyPublished(here)
	if err := m.readDriver(ctx, v); err != nil {
		return MountPoint{}, err
	}
	switch {
	case !v.published:
		if err := m.mountFresh(ctx, v); err != nil {
			return MountPoint{}, err
		}
	case v.republished():
		if err := m.publishCSI(ctx, v, m.stagedAt(v), nil); err != nil {
			return MountPoint{}, err
		}
	}
	if err := m.expand(ctx, v); err != nil {
		return MountPoint{}, err
	}
	if !v.block {
		if err := rememberClaimDir(podDir, name, v.target); err != nil {
			return MountPoint{}, err
		}
	}
	known.mu.Lock()
	known.published[name], known.republish[name], known.growing[name] = true, v.republished(), v.mayGrow()
	known.mu.Unlock()
	return MountPoint{HostPath: v.target, ReadOnly: v.readOnly, SELinuxRelabel: v.label == "", Block: v.block}, nil
}

// readDriver finds the volume's driver and its CSIDriver object.
func (m *Manager) readDriver(ctx context.Context, v *csiVolume) error {
	object, err := client.Get[*storagev1.CSIDriver](ctx, m.Client, "", v.data.DriverName)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err == nil {
		v.object = object
	}
	v.label = v.seLinuxLabel(seLinuxEnabled())
	driver, err := m.CSI.driver(v.data.DriverName)
	if err != nil {
		if v.published && !v.republished() {
			return nil // the pod can run on while its driver restarts
		}
		return err
	}
	v.driver = driver
	return v.checkLifecycle()
}

// mountFresh attaches, stages and publishes the volume.
func (m *Manager) mountFresh(ctx context.Context, v *csiVolume) error {
	publishContext, err := m.attached(ctx, v)
	if err != nil {
		return err
	}
	// From now on the volume is in use, and Unmount calls the driver.
	if err := m.CSI.records.write(v.dir, v.data); err != nil {
		return err
	}
	if v.data.AttachmentID != "" && m.CSI.Announce != nil {
		if err := m.CSI.Announce(ctx, v.data.volumeName()); err != nil {
			return fmt.Errorf("announce that volume %s is in use: %w", v.handle, err)
		}
		// The cluster may have detached it before it knew.
		if publishContext, err = m.attached(ctx, v); err != nil {
			return err
		}
	}
	staged, err := m.stage(ctx, v, publishContext)
	if err == nil {
		err = m.publishCSI(ctx, v, staged, publishContext)
	}
	if err != nil {
		m.CSI.noteExhausted(v.driver.name, err)
		return err
	}
	if v.block {
		if err := checkBlockDevice(v.target); err != nil {
			return fmt.Errorf("NodePublishVolume: %w", err)
		}
	}
	if err := v.giveToGroup(); err != nil {
		return err
	}
	v.data.Published = true
	return m.CSI.records.write(v.dir, v.data)
}

// checkLifecycle returns an error for an inline volume whose driver does not support inline
// volumes.
func (v *csiVolume) checkLifecycle() error {
	mode := v.data.LifecycleMode
	if v.object == nil {
		if mode == storagev1.VolumeLifecycleEphemeral {
			return fmt.Errorf("volume mode \"Ephemeral\" not supported by driver %s (no CSIDriver object)", v.driver.name)
		}
		return nil
	}
	modes := v.object.Spec.VolumeLifecycleModes
	if len(modes) == 0 {
		modes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
	if !slices.Contains(modes, mode) {
		return fmt.Errorf("volume mode %q not supported by driver %s (only supports %q)", mode, v.driver.name, modes)
	}
	return nil
}

// alreadyPublished reports whether the volume is mounted completely. If this process has not
// published it, the mount table decides: the machine may have started anew. Otherwise the driver's
// answer counts, since a driver may provide a folder without a mount.
func (v *csiVolume) alreadyPublished(here bool) bool {
	data, err := readCSIData(filepath.Join(v.dir, csiDataFile))
	if err != nil || !data.Published || data.VolumeHandle != v.handle || data.DriverName != v.data.DriverName {
		return false
	}
	switch {
	case here:
	case v.block:
		if checkBlockDevice(v.target) != nil {
			return false
		}
	default:
		if mounts, err := mountsBelow(v.target); err != nil || len(mounts) == 0 {
			return false
		}
	}
	v.data = data
	return true
}

// republished reports whether the driver requires repeated calls while the volume is mounted.
func (v *csiVolume) republished() bool {
	return v.object != nil && v.object.Spec.RequiresRepublish != nil && *v.object.Spec.RequiresRepublish
}

// capability is the volume capability that the driver must provide.
func (v *csiVolume) capability() *csispec.VolumeCapability {
	mode := csispec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	if v.persistent != nil {
		mode = csiAccessMode(v.persistent.Spec.AccessModes, v.driver.capabilities[writersCapability])
	}
	capability := &csispec.VolumeCapability{AccessMode: &csispec.VolumeCapability_AccessMode{Mode: mode}}
	if v.block {
		capability.AccessType = &csispec.VolumeCapability_Block{Block: &csispec.VolumeCapability_BlockVolume{}}
		return capability
	}
	mount := &csispec.VolumeCapability_MountVolume{FsType: v.fsType}
	if v.persistent != nil {
		mount.MountFlags = slices.Clone(v.persistent.Spec.MountOptions)
	}
	if v.label != "" {
		mount.MountFlags = append(mount.MountFlags, fmt.Sprintf("context=%q", v.label))
	}
	if group := fsGroup(v.pod); group != nil && v.driver.capabilities[groupCapability] {
		mount.VolumeMountGroup = fmt.Sprint(*group)
	}
	capability.AccessType = &csispec.VolumeCapability_Mount{Mount: mount}
	return capability
}

func csiAccessMode(modes []corev1.PersistentVolumeAccessMode, severalWriters bool) csispec.VolumeCapability_AccessMode_Mode {
	has := func(mode corev1.PersistentVolumeAccessMode) bool { return slices.Contains(modes, mode) }
	switch {
	case has(corev1.ReadWriteMany):
		return csispec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	case has(corev1.ReadOnlyMany) && !has(corev1.ReadWriteOnce):
		return csispec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	case has(corev1.ReadWriteOncePod) && severalWriters:
		return csispec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	case has(corev1.ReadWriteOnce) && severalWriters:
		return csispec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
	}
	return csispec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
}

// stagedAt is the folder where the volume is staged, or "" if the driver does not stage it.
func (m *Manager) stagedAt(v *csiVolume) string {
	if v.persistent == nil || v.driver == nil || !v.driver.capabilities[stageCapability] {
		return ""
	}
	return m.CSI.stagingDir(v.data)
}

// stage stages the volume on the node, once for all its pods, if the driver supports staging.
func (m *Manager) stage(ctx context.Context, v *csiVolume, publishContext map[string]string) (string, error) {
	dir := m.stagedAt(v)
	if dir == "" {
		return "", nil
	}
	secrets, err := m.csiSecrets(ctx, v.claimed.NodeStageSecretRef)
	if err != nil {
		return "", err
	}
	err = m.CSI.staging.do(ctx, v.data.volumeName(), csiTimeout, func(ctx context.Context) error {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return err
		}
		record := m.CSI.stagingRecord(v.data)
		if err := m.CSI.records.stage(record, v.data); err != nil {
			return err
		}
		_, err := v.driver.node.NodeStageVolume(ctx, &csispec.NodeStageVolumeRequest{
			VolumeId: v.handle, PublishContext: publishContext, StagingTargetPath: dir, VolumeCapability: v.capability(), Secrets: secrets, VolumeContext: v.attributes,
		})
		if own := filepath.Join(v.dir, csiDataFile); finalError(err) && !m.CSI.records.usedByOthers(own, v.data) {
			_ = os.Remove(dir)
			return errors.Join(err, m.CSI.records.remove(record)) // there is nothing to unstage
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("MountVolume.MountDevice failed for volume %q: NodeStageVolume: %w", v.persistent.Name, err)
	}
	return dir, nil
}

// finalError reports whether the driver has ended the operation. After other errors it may still
// work on it.
func finalError(err error) bool {
	switch status.Code(err) {
	case codes.OK, codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return false
	}
	_, answered := status.FromError(err)
	return answered
}

// publishCSI mounts the volume for the pod.
func (m *Manager) publishCSI(ctx context.Context, v *csiVolume, staged string, publishContext map[string]string) error {
	if v.driver == nil {
		return nil
	}
	var reference *corev1.SecretReference
	if v.claimed != nil {
		reference = v.claimed.NodePublishSecretRef
	} else if inline := v.inlineSecret(); inline != nil {
		reference = &corev1.SecretReference{Namespace: v.pod.Namespace, Name: inline.Name}
	}
	secrets, err := m.csiSecrets(ctx, reference)
	if err != nil {
		return err
	}
	attributes, tokens, err := m.csiAttributes(ctx, v)
	if err != nil {
		return err
	}
	if tokens != "" && v.object.Spec.ServiceAccountTokenInSecrets != nil && *v.object.Spec.ServiceAccountTokenInSecrets {
		if secrets == nil {
			secrets = map[string]string{}
		}
		secrets[tokensKey] = tokens
	} else if tokens != "" {
		attributes[tokensKey] = tokens
	}
	if publishContext == nil && v.data.AttachmentID != "" { // published again
		attachment, err := client.Get[*storagev1.VolumeAttachment](ctx, m.Client, "", v.data.AttachmentID)
		if err != nil {
			return err
		}
		publishContext = attachment.Status.AttachmentMetadata
	}
	if err := os.MkdirAll(filepath.Dir(v.target), 0o750); err != nil {
		return err
	}
	_, err = v.driver.node.NodePublishVolume(ctx, &csispec.NodePublishVolumeRequest{
		VolumeId: v.handle, PublishContext: publishContext, StagingTargetPath: staged, TargetPath: v.target,
		VolumeCapability: v.capability(), Readonly: v.readOnly, Secrets: secrets, VolumeContext: attributes,
	})
	if err != nil {
		return fmt.Errorf("NodePublishVolume: %w", err)
	}
	return nil
}

// giveToGroup applies the pod's fsGroup according to the driver's fsGroupPolicy (KEP-1682).
func (v *csiVolume) giveToGroup() error {
	if v.block || fsGroup(v.pod) == nil || v.readOnly || v.driver.capabilities[groupCapability] {
		return nil
	}
	policy := storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	if v.object != nil && v.object.Spec.FSGroupPolicy != nil {
		policy = *v.object.Spec.FSGroupPolicy
	}
	switch policy {
	case storagev1.NoneFSGroupPolicy:
		return nil
	case storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy:
		if v.fsType == "" || v.persistent == nil || !forOneNode(v.persistent.Spec.AccessModes) {
			return nil
		}
	}
	if err := giveClaim(v.target, v.pod, false); err != nil {
		return errors.Join(errors.New("applyFSGroup failed"), err)
	}
	return nil
}

func forOneNode(modes []corev1.PersistentVolumeAccessMode) bool {
	return slices.Contains(modes, corev1.ReadWriteOnce) || slices.Contains(modes, corev1.ReadWriteOncePod)
}
