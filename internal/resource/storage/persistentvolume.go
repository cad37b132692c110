package storage

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func PersistentVolumeStrategy() *strategy.Strategy {
	s := strategy.WithStatus(true)
	s.Default = strategy.On(defaultPersistentVolume)
	s.ValidateCreate = strategy.Checks(validatePersistentVolume)
	s.ValidateUpdate = strategy.ChecksBoth(validatePersistentVolumeUpdate)
	s.ValidateStatus = strategy.ChecksBoth(validatePersistentVolumeStatus)
	s.PrepareCreate = strategy.On(func(v *corev1.PersistentVolume) {
		v.Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumePending}
		if created := v.CreationTimestamp; !created.IsZero() {
			v.Status.LastPhaseTransitionTime = &created
		}
	})
	s.Warnings = persistentVolumeWarnings
	s.PrepareStatus = strategy.OnBoth(func(v, old *corev1.PersistentVolume) {
		v.Spec = *old.Spec.DeepCopy()
		if v.Status.LastPhaseTransitionTime == nil {
			v.Status.LastPhaseTransitionTime = old.Status.LastPhaseTransitionTime.DeepCopy()
		}
	})
	s.Stamp = func(obj, old runtime.Object, now metav1.Time) {
		is, was := &obj.(*corev1.PersistentVolume).Status, &old.(*corev1.PersistentVolume).Status
		if is.Phase != was.Phase && is.LastPhaseTransitionTime.Equal(was.LastPhaseTransitionTime) {
			is.LastPhaseTransitionTime = &now
		}
	}
	s.FieldAliases = map[string]string{"name": "metadata.name"}
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), persistentVolumeColumns, persistentVolumeRow)
}

func defaultPersistentVolume(v *corev1.PersistentVolume) {
	strategy.SetDefault(&v.Status.Phase, corev1.VolumePending)
	strategy.SetDefault(&v.Spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
	strategy.SetPointer(&v.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	strategy.RoundResources(v.Spec.Capacity)
	source := &v.Spec.PersistentVolumeSource
	DefaultHostPath(source.HostPath)
	DefaultAzureDisk(source.AzureDisk)
	if s := source.ISCSI; s != nil {
		strategy.SetDefault(&s.ISCSIInterface, DefaultISCSIInterface)
	}
	if s := source.RBD; s != nil {
		strategy.SetDefault(&s.RBDPool, DefaultRBDPool)
		strategy.SetDefault(&s.RadosUser, DefaultRBDUser)
		strategy.SetDefault(&s.Keyring, DefaultRBDKeyring)
	}
	if s := source.ScaleIO; s != nil {
		strategy.SetDefault(&s.StorageMode, DefaultScaleIOMode)
		strategy.SetDefault(&s.FSType, DefaultScaleIOFSType)
	}
}

func persistentVolumeWarnings(obj, _ runtime.Object) []string {
	v := obj.(*corev1.PersistentVolume)
	out := warnStorageClassAnnotation(v)
	if _, ok := v.Annotations[mountOptionsAnnotation]; ok {
		out = append(out, validate.AnnotationPath(mountOptionsAnnotation)+`: deprecated since v1.31; use "mountOptions" attribute instead`)
	}
	if v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		out = append(out, "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.")
	}
	if a := v.Spec.NodeAffinity; a != nil && a.Required != nil {
		for i, term := range a.Required.NodeSelectorTerms {
			for j, r := range term.MatchExpressions {
				out = append(out, validate.WarnOldLabel(r.Key, validate.SpecPath.Child("nodeAffinity", "required", "nodeSelectorTerms").Index(i).Child("matchExpressions").Index(j).Child("key"))...)
			}
		}
	}
	s := &v.Spec.PersistentVolumeSource
	for _, source := range []struct {
		name string
		set  bool
	}{
		{"cephfs", s.CephFS != nil}, {"photonPersistentDisk", s.PhotonPersistentDisk != nil}, {"rbd", s.RBD != nil},
		{"scaleIO", s.ScaleIO != nil}, {"storageos", s.StorageOS != nil}, {"glusterfs", s.Glusterfs != nil},
	} {
		if source.set {
			out = append(out, validate.SpecPath.String()+"."+OldVolumes[source.name])
		}
	}
	return out
}

var persistentVolumeColumns = columns.Define("Name", "Capacity@spec.capacity", "Access Modes@spec.accessModes", "Reclaim Policy@spec.persistentVolumeReclaimPolicy", "Status@status.phase", "Claim@spec.claimRef",
	"StorageClass=StorageClass of the pv", "VolumeAttributesClass=VolumeAttributesClass of the pv", "Reason@status.reason", "Age", "+VolumeMode@spec.volumeMode")

func persistentVolumeRow(v *corev1.PersistentVolume, now metav1.Time) []any {
	phase := string(v.Status.Phase)
	if v.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	claim := ""
	if ref := v.Spec.ClaimRef; ref != nil {
		claim = ref.Namespace + "/" + ref.Name
	}
	class := v.Annotations[corev1.BetaStorageClassAnnotation]
	if class == "" {
		class = v.Spec.StorageClassName
	}
	size := v.Spec.Capacity[corev1.ResourceStorage]
	return []any{
		v.Name, size.String(), accessModes(v.Spec.AccessModes), string(v.Spec.PersistentVolumeReclaimPolicy), phase, claim, class,
		orUnset(v.Spec.VolumeAttributesClassName), v.Status.Reason, columns.AgeOf(v, now), orUnset((*string)(v.Spec.VolumeMode)),
	}
}

func orUnset(text *string) string {
	if text == nil {
		return columns.Unset
	}
	return *text
}
