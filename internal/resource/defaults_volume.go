package resource

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/resource/strategy"
)

const (
	defaultFileMode     int32 = 0o644
	defaultTokenSeconds int64 = 60 * 60
)

const (
	defaultISCSIInterface  = "default"
	defaultRBDPool         = "rbd"
	defaultRBDUser         = "admin"
	defaultRBDKeyring      = "/etc/ceph/keyring"
	defaultScaleIOMode     = "ThinProvisioned"
	defaultScaleIOFSType   = "xfs"
	defaultAzureDiskFSType = "ext4"
)

func defaultVolume(v *corev1.Volume) {
	if v.VolumeSource == (corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	defaultHostPath(v.HostPath)
	defaultAzureDisk(v.AzureDisk)
	if s := v.Secret; s != nil {
		strategy.SetPointer(&s.DefaultMode, defaultFileMode)
	}
	if s := v.ConfigMap; s != nil {
		strategy.SetPointer(&s.DefaultMode, defaultFileMode)
	}
	if s := v.DownwardAPI; s != nil {
		strategy.SetPointer(&s.DefaultMode, defaultFileMode)
		defaultDownwardItems(s.Items)
	}
	if s := v.Projected; s != nil {
		defaultProjected(s)
	}
	if s := v.ISCSI; s != nil {
		strategy.SetDefault(&s.ISCSIInterface, defaultISCSIInterface)
	}
	if s := v.RBD; s != nil {
		strategy.SetDefault(&s.RBDPool, defaultRBDPool)
		strategy.SetDefault(&s.RadosUser, defaultRBDUser)
		strategy.SetDefault(&s.Keyring, defaultRBDKeyring)
	}
	if s := v.ScaleIO; s != nil {
		strategy.SetDefault(&s.StorageMode, defaultScaleIOMode)
		strategy.SetDefault(&s.FSType, defaultScaleIOFSType)
	}
	if s := v.Ephemeral; s != nil && s.VolumeClaimTemplate != nil {
		defaultClaimSpec(&s.VolumeClaimTemplate.Spec)
	}
	if s := v.Image; s != nil {
		strategy.SetDefault(&s.PullPolicy, defaultPullPolicy(s.Reference))
	}
}

func defaultHostPath(s *corev1.HostPathVolumeSource) {
	if s != nil {
		strategy.SetPointer(&s.Type, corev1.HostPathUnset)
	}
}

func defaultAzureDisk(s *corev1.AzureDiskVolumeSource) {
	if s == nil {
		return
	}
	strategy.SetPointer(&s.CachingMode, corev1.AzureDataDiskCachingReadWrite)
	strategy.SetPointer(&s.Kind, corev1.AzureSharedBlobDisk)
	strategy.SetPointer(&s.FSType, defaultAzureDiskFSType)
	strategy.SetPointer(&s.ReadOnly, false)
}

func defaultProjected(p *corev1.ProjectedVolumeSource) {
	strategy.SetPointer(&p.DefaultMode, defaultFileMode)
	for i := range p.Sources {
		if s := p.Sources[i].DownwardAPI; s != nil {
			defaultDownwardItems(s.Items)
		}
		if s := p.Sources[i].ServiceAccountToken; s != nil {
			strategy.SetPointer(&s.ExpirationSeconds, defaultTokenSeconds)
		}
	}
}

func defaultDownwardItems(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		defaultFieldRef(items[i].FieldRef)
	}
}

func defaultClaim(c *corev1.PersistentVolumeClaim) {
	strategy.SetDefault(&c.Status.Phase, corev1.ClaimPending)
	defaultClaimSpec(&c.Spec)
	strategy.RoundResources(c.Status.Capacity)
	strategy.RoundResources(c.Status.AllocatedResources)
}

func defaultClaimSpec(s *corev1.PersistentVolumeClaimSpec) {
	strategy.SetPointer(&s.VolumeMode, corev1.PersistentVolumeFilesystem)
	strategy.RoundResources(s.Resources.Limits)
	strategy.RoundResources(s.Resources.Requests)
}

func defaultPersistentVolume(v *corev1.PersistentVolume) {
	strategy.SetDefault(&v.Status.Phase, corev1.VolumePending)
	strategy.SetDefault(&v.Spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
	strategy.SetPointer(&v.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	strategy.RoundResources(v.Spec.Capacity)
	source := &v.Spec.PersistentVolumeSource
	defaultHostPath(source.HostPath)
	defaultAzureDisk(source.AzureDisk)
	if s := source.ISCSI; s != nil {
		strategy.SetDefault(&s.ISCSIInterface, defaultISCSIInterface)
	}
	if s := source.RBD; s != nil {
		strategy.SetDefault(&s.RBDPool, defaultRBDPool)
		strategy.SetDefault(&s.RadosUser, defaultRBDUser)
		strategy.SetDefault(&s.Keyring, defaultRBDKeyring)
	}
	if s := source.ScaleIO; s != nil {
		strategy.SetDefault(&s.StorageMode, defaultScaleIOMode)
		strategy.SetDefault(&s.FSType, defaultScaleIOFSType)
	}
}
