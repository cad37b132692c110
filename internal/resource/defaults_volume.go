package resource

import (
	corev1 "k8s.io/api/core/v1"
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
		setPointer(&s.DefaultMode, defaultFileMode)
	}
	if s := v.ConfigMap; s != nil {
		setPointer(&s.DefaultMode, defaultFileMode)
	}
	if s := v.DownwardAPI; s != nil {
		setPointer(&s.DefaultMode, defaultFileMode)
		defaultDownwardItems(s.Items)
	}
	if s := v.Projected; s != nil {
		defaultProjected(s)
	}
	if s := v.ISCSI; s != nil {
		setDefault(&s.ISCSIInterface, defaultISCSIInterface)
	}
	if s := v.RBD; s != nil {
		setDefault(&s.RBDPool, defaultRBDPool)
		setDefault(&s.RadosUser, defaultRBDUser)
		setDefault(&s.Keyring, defaultRBDKeyring)
	}
	if s := v.ScaleIO; s != nil {
		setDefault(&s.StorageMode, defaultScaleIOMode)
		setDefault(&s.FSType, defaultScaleIOFSType)
	}
	if s := v.Ephemeral; s != nil && s.VolumeClaimTemplate != nil {
		defaultClaimSpec(&s.VolumeClaimTemplate.Spec)
	}
	if s := v.Image; s != nil {
		setDefault(&s.PullPolicy, defaultPullPolicy(s.Reference))
	}
}

func defaultHostPath(s *corev1.HostPathVolumeSource) {
	if s != nil {
		setPointer(&s.Type, corev1.HostPathUnset)
	}
}

func defaultAzureDisk(s *corev1.AzureDiskVolumeSource) {
	if s == nil {
		return
	}
	setPointer(&s.CachingMode, corev1.AzureDataDiskCachingReadWrite)
	setPointer(&s.Kind, corev1.AzureSharedBlobDisk)
	setPointer(&s.FSType, defaultAzureDiskFSType)
	setPointer(&s.ReadOnly, false)
}

func defaultProjected(p *corev1.ProjectedVolumeSource) {
	setPointer(&p.DefaultMode, defaultFileMode)
	for i := range p.Sources {
		if s := p.Sources[i].DownwardAPI; s != nil {
			defaultDownwardItems(s.Items)
		}
		if s := p.Sources[i].ServiceAccountToken; s != nil {
			setPointer(&s.ExpirationSeconds, defaultTokenSeconds)
		}
	}
}

func defaultDownwardItems(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		defaultFieldRef(items[i].FieldRef)
	}
}

func defaultClaim(c *corev1.PersistentVolumeClaim) {
	setDefault(&c.Status.Phase, corev1.ClaimPending)
	defaultClaimSpec(&c.Spec)
	roundResources(c.Status.Capacity)
	roundResources(c.Status.AllocatedResources)
}

func defaultClaimSpec(s *corev1.PersistentVolumeClaimSpec) {
	setPointer(&s.VolumeMode, corev1.PersistentVolumeFilesystem)
	roundResources(s.Resources.Limits)
	roundResources(s.Resources.Requests)
}

func defaultPersistentVolume(v *corev1.PersistentVolume) {
	setDefault(&v.Status.Phase, corev1.VolumePending)
	setDefault(&v.Spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
	setPointer(&v.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	roundResources(v.Spec.Capacity)
	source := &v.Spec.PersistentVolumeSource
	defaultHostPath(source.HostPath)
	defaultAzureDisk(source.AzureDisk)
	if s := source.ISCSI; s != nil {
		setDefault(&s.ISCSIInterface, defaultISCSIInterface)
	}
	if s := source.RBD; s != nil {
		setDefault(&s.RBDPool, defaultRBDPool)
		setDefault(&s.RadosUser, defaultRBDUser)
		setDefault(&s.Keyring, defaultRBDKeyring)
	}
	if s := source.ScaleIO; s != nil {
		setDefault(&s.StorageMode, defaultScaleIOMode)
		setDefault(&s.FSType, defaultScaleIOFSType)
	}
}
