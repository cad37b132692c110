package volume

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
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
	attributes map[string]string
	readOnly   bool
	persistent *corev1.PersistentVolume // nil for inline volumes
	claimed    *corev1.CSIPersistentVolumeSource
	fsType     string
	block      bool
	data       csiData
}

// target is the path where the driver mounts the volume for the pod.
func (v *csiVolume) target() string { return filepath.Join(v.dir, "mount") }

// mountCSIPersistent mounts a claimed volume in three steps. The cluster attaches it, the driver
// stages it once per node, and publishes it per pod.
func (m *Manager) mountCSIPersistent(ctx context.Context, known *mounted, volume *corev1.Volume, persistent *corev1.PersistentVolume, readOnly, block bool) (MountPoint, error) {
	pod, podDir, source := known.pod, known.dir, persistent.Spec.CSI
	v := &csiVolume{
		pod: pod, handle: source.VolumeHandle, persistent: persistent, claimed: source, block: block, readOnly: readOnly || source.ReadOnly, fsType: source.FSType,
		dir:        filepath.Join(podDir, volumesDir, csiPluginDir, persistent.Name),
		attributes: maps.Clone(source.VolumeAttributes),
		data:       csiData{SpecVolID: persistent.Name, VolumeHandle: source.VolumeHandle, DriverName: source.Driver, NodeName: m.NodeName, LifecycleMode: storagev1.VolumeLifecyclePersistent},
	}
	if err := m.mountCSI(ctx, v, source.Driver); err != nil {
		return MountPoint{}, err
	}
	known.republish[volume.Name] = v.republished()
	if err := rememberClaimDir(podDir, volume.Name, v.target()); err != nil {
		return MountPoint{}, err
	}
	return MountPoint{HostPath: v.target(), ReadOnly: v.readOnly, SELinuxRelabel: true, Block: block}, nil
}

// mountCSIInline mounts an ephemeral volume that the pod's spec defines.
func (m *Manager) mountCSIInline(ctx context.Context, known *mounted, volume *corev1.Volume) (MountPoint, error) {
	pod, podDir, source := known.pod, known.dir, volume.CSI
	sum := sha256.Sum256([]byte(string(pod.UID) + volume.Name))
	v := &csiVolume{
		pod: pod, handle: fmt.Sprintf("csi-%x", sum), dir: filepath.Join(podDir, volumesDir, csiPluginDir, volume.Name),
		attributes: maps.Clone(source.VolumeAttributes), readOnly: source.ReadOnly != nil && *source.ReadOnly,
	}
	if source.FSType != nil {
		v.fsType = *source.FSType
	}
	v.data = csiData{SpecVolID: volume.Name, VolumeHandle: v.handle, DriverName: source.Driver, NodeName: m.NodeName, LifecycleMode: storagev1.VolumeLifecycleEphemeral}
	if err := m.mountCSI(ctx, v, source.Driver); err != nil {
		return MountPoint{}, err
	}
	known.republish[volume.Name] = v.republished()
	if err := rememberClaimDir(podDir, volume.Name, v.target()); err != nil {
		return MountPoint{}, err
	}
	return MountPoint{HostPath: v.target(), ReadOnly: v.readOnly, SELinuxRelabel: true}, nil
}

func (m *Manager) mountCSI(ctx context.Context, v *csiVolume, driverName string) error {
	ctx, cancel := context.WithTimeout(ctx, csiTimeout)
	defer cancel()
	var err error
	if v.driver, err = m.CSI.driver(driverName); err != nil {
		return err
	}
	v.object, err = client.Get[*storagev1.CSIDriver](ctx, m.Client, "", driverName)
	if apierrors.IsNotFound(err) {
		v.object, err = nil, nil
	}
	if err != nil {
		return err
	}
	if err := v.checkLifecycle(); err != nil {
		return err
	}
	if published, err := v.alreadyPublished(); err != nil || published {
		return err
	}
	publishContext, err := m.attached(ctx, v)
	if err != nil {
		return err
	}
	staged, err := m.stage(ctx, v, publishContext)
	if err != nil {
		return err
	}
	if err := m.publishCSI(ctx, v, staged, publishContext); err != nil {
		return err
	}
	return v.giveToGroup()
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

// alreadyPublished reports whether the volume is mounted and the driver does not need another call.
func (v *csiVolume) alreadyPublished() (bool, error) {
	mounts, err := mountsBelow(v.target())
	if err != nil || len(mounts) == 0 {
		return false, err
	}
	return !v.republished(), nil
}

// republished reports whether the driver requires repeated calls while the volume is mounted.
func (v *csiVolume) republished() bool {
	return v.object != nil && v.object.Spec.RequiresRepublish != nil && *v.object.Spec.RequiresRepublish
}

// attached returns the attachment's metadata. It does not wait: until the cluster's controller has
// attached the volume it returns an error, and the pod is retried.
func (m *Manager) attached(ctx context.Context, v *csiVolume) (map[string]string, error) {
	if v.persistent == nil || v.object != nil && v.object.Spec.AttachRequired != nil && !*v.object.Spec.AttachRequired {
		return nil, nil
	}
	sum := sha256.Sum256([]byte(v.handle + v.driver.name + m.NodeName))
	name := fmt.Sprintf("csi-%x", sum)
	attachment, err := client.Get[*storagev1.VolumeAttachment](ctx, m.Client, "", name)
	if err != nil {
		return nil, fmt.Errorf("volume %s is not attached to this node yet: %w", v.handle, err)
	}
	if !attachment.Status.Attached {
		problem := ""
		if attachment.Status.AttachError != nil {
			problem = ": " + attachment.Status.AttachError.Message
		}
		return nil, fmt.Errorf("volume %s is not attached to this node yet%s", v.handle, problem)
	}
	v.data.AttachmentID = name
	return attachment.Status.AttachmentMetadata, nil
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
		mount.MountFlags = v.persistent.Spec.MountOptions
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

// stage stages the volume on the node, once for all its pods, if the driver supports staging.
func (m *Manager) stage(ctx context.Context, v *csiVolume, publishContext map[string]string) (string, error) {
	if v.persistent == nil || !v.driver.capabilities[stageCapability] {
		return "", nil
	}
	secrets, err := m.csiSecrets(ctx, v.claimed.NodeStageSecretRef)
	if err != nil {
		return "", err
	}
	m.CSI.staging.Lock()
	defer m.CSI.staging.Unlock()
	dir := m.CSI.stagingDir(v.driver.name, v.handle)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", err
	}
	// Write the pod's record first: from now on the pod counts as a user of the staged volume.
	if err := writeCSIData(v.dir, v.data); err != nil {
		return "", err
	}
	_, err = v.driver.node.NodeStageVolume(ctx, &csispec.NodeStageVolumeRequest{
		VolumeId: v.handle, PublishContext: publishContext, StagingTargetPath: dir, VolumeCapability: v.capability(), Secrets: secrets, VolumeContext: v.attributes,
	})
	if err != nil {
		return "", fmt.Errorf("MountVolume.MountDevice failed for volume %q: NodeStageVolume: %w", v.persistent.Name, err)
	}
	return dir, nil
}

// publishCSI mounts the volume for the pod.
func (m *Manager) publishCSI(ctx context.Context, v *csiVolume, staged string, publishContext map[string]string) error {
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
	attributes, err := m.csiAttributes(ctx, v)
	if err != nil {
		return err
	}
	if err := writeCSIData(v.dir, v.data); err != nil {
		return err
	}
	_, err = v.driver.node.NodePublishVolume(ctx, &csispec.NodePublishVolumeRequest{
		VolumeId: v.handle, PublishContext: publishContext, StagingTargetPath: staged, TargetPath: v.target(),
		VolumeCapability: v.capability(), Readonly: v.readOnly, Secrets: secrets, VolumeContext: attributes,
	})
	if err != nil {
		return fmt.Errorf("NodePublishVolume: %w", err)
	}
	return nil
}

func (v *csiVolume) inlineSecret() *corev1.LocalObjectReference {
	for i := range v.pod.Spec.Volumes {
		if volume := &v.pod.Spec.Volumes[i]; volume.Name == v.data.SpecVolID && volume.CSI != nil {
			return volume.CSI.NodePublishSecretRef
		}
	}
	return nil
}

// csiAttributes adds what the CSIDriver object requests: pod information and tokens of the pod's
// service account.
func (m *Manager) csiAttributes(ctx context.Context, v *csiVolume) (map[string]string, error) {
	attributes := map[string]string{}
	maps.Copy(attributes, v.attributes)
	if v.persistent == nil {
		attributes["csi.storage.k8s.io/ephemeral"] = "true"
	}
	if v.object == nil {
		return attributes, nil
	}
	if wanted := v.object.Spec.PodInfoOnMount; wanted != nil && *wanted {
		account := v.pod.Spec.ServiceAccountName
		if account == "" {
			account = "default"
		}
		maps.Copy(attributes, map[string]string{
			"csi.storage.k8s.io/pod.name": v.pod.Name, "csi.storage.k8s.io/pod.namespace": v.pod.Namespace, "csi.storage.k8s.io/pod.uid": string(v.pod.UID),
			"csi.storage.k8s.io/serviceAccount.name": account, "csi.storage.k8s.io/ephemeral": fmt.Sprint(v.persistent == nil),
		})
	}
	if len(v.object.Spec.TokenRequests) == 0 {
		return attributes, nil
	}
	type issued struct {
		Token string `json:"token"`
	}
	tokens := map[string]issued{}
	for _, request := range v.object.Spec.TokenRequests {
		var audiences []string
		if request.Audience != "" {
			audiences = []string{request.Audience}
		}
		seconds := int64(3600)
		if request.ExpirationSeconds != nil {
			seconds = *request.ExpirationSeconds
		}
		value, err := m.tokens.get(ctx, v.pod, audiences, seconds)
		if err != nil {
			return nil, err
		}
		tokens[request.Audience] = issued{Token: value}
	}
	encoded, err := json.Marshal(tokens)
	if err != nil {
		return nil, err
	}
	attributes["csi.storage.k8s.io/serviceAccount.tokens"] = string(encoded)
	return attributes, nil
}

func (m *Manager) csiSecrets(ctx context.Context, reference *corev1.SecretReference) (map[string]string, error) {
	if reference == nil {
		return nil, nil
	}
	secret, err := client.Get[*corev1.Secret](ctx, m.Client, reference.Namespace, reference.Name)
	if err != nil {
		return nil, fmt.Errorf("CSI secret %s/%s: %w", reference.Namespace, reference.Name, err)
	}
	values := map[string]string{}
	for key, value := range secret.Data {
		values[key] = string(value)
	}
	return values, nil
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
		if v.fsType == "" || v.persistent == nil || !slices.Contains(v.persistent.Spec.AccessModes, corev1.ReadWriteOnce) {
			return nil
		}
	}
	if err := giveClaim(v.target(), v.pod, false); err != nil {
		return errors.Join(errors.New("applyFSGroup failed"), err)
	}
	return nil
}
