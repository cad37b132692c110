package pods

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/resource/storage"
	"github.com/knarr-project/knarr/internal/resource/strategy"
)

const (
	defaultFileMode     int32 = 0o644
	DefaultTokenSeconds int64 = 60 * 60
)

func defaultVolume(v *corev1.Volume) {
	if v.VolumeSource == (corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	storage.DefaultHostPath(v.HostPath)
	storage.DefaultAzureDisk(v.AzureDisk)
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
		strategy.SetDefault(&s.ISCSIInterface, storage.DefaultISCSIInterface)
	}
	if s := v.RBD; s != nil {
		strategy.SetDefault(&s.RBDPool, storage.DefaultRBDPool)
		strategy.SetDefault(&s.RadosUser, storage.DefaultRBDUser)
		strategy.SetDefault(&s.Keyring, storage.DefaultRBDKeyring)
	}
	if s := v.ScaleIO; s != nil {
		strategy.SetDefault(&s.StorageMode, storage.DefaultScaleIOMode)
		strategy.SetDefault(&s.FSType, storage.DefaultScaleIOFSType)
	}
	if s := v.Ephemeral; s != nil && s.VolumeClaimTemplate != nil {
		storage.DefaultClaimSpec(&s.VolumeClaimTemplate.Spec)
	}
	if s := v.Image; s != nil {
		strategy.SetDefault(&s.PullPolicy, defaultPullPolicy(s.Reference))
	}
}

func defaultProjected(p *corev1.ProjectedVolumeSource) {
	strategy.SetPointer(&p.DefaultMode, defaultFileMode)
	for i := range p.Sources {
		if s := p.Sources[i].DownwardAPI; s != nil {
			defaultDownwardItems(s.Items)
		}
		if s := p.Sources[i].ServiceAccountToken; s != nil {
			strategy.SetPointer(&s.ExpirationSeconds, DefaultTokenSeconds)
		}
	}
}

func defaultDownwardItems(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		defaultFieldRef(items[i].FieldRef)
	}
}
