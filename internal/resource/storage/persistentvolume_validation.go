package storage

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/validate"
)

var reclaimPolicies = []corev1.PersistentVolumeReclaimPolicy{corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain}

// validateMountAnnotation refuses the annotation for mount options on volume sources newer than it:
// these use the field.
func validateMountAnnotation(v *corev1.PersistentVolume) field.ErrorList {
	s := &v.Spec.PersistentVolumeSource
	switch {
	case s.AWSElasticBlockStore != nil, s.AzureDisk != nil, s.AzureFile != nil, s.CephFS != nil, s.Cinder != nil, s.GCEPersistentDisk != nil, s.Glusterfs != nil,
		s.ISCSI != nil, s.NFS != nil, s.PhotonPersistentDisk != nil, s.Quobyte != nil, s.RBD != nil, s.VsphereVolume != nil:
		return nil
	}
	if _, ok := v.Annotations[mountOptionsAnnotation]; !ok {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("metadata", "annotations", mountOptionsAnnotation), "may not specify mount options for this volume type")}
}

const mountOptionsAnnotation = "volume.beta.kubernetes.io/mount-options"

func validatePersistentVolume(v *corev1.PersistentVolume) field.ErrorList {
	s, at := &v.Spec, field.NewPath("spec")
	errs := append(validateMountAnnotation(v), validateVolumeItself(s, at)...)
	if len(s.Capacity) == 0 {
		errs = append(errs, field.Required(at.Child("capacity"), ""))
	}
	if _, ok := s.Capacity[corev1.ResourceStorage]; !ok || len(s.Capacity) > 1 {
		errs = append(errs, field.NotSupported(at.Child("capacity"), s.Capacity, []corev1.ResourceName{corev1.ResourceStorage}))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Capacity)) {
		key := at.Child("capacity").Key(string(name))
		errs = append(errs, validateCapacity(s.Capacity[name], key)...)
		errs = append(errs, validate.PositiveQuantity(s.Capacity[name], key)...)
	}
	if s.PersistentVolumeReclaimPolicy != "" {
		errs = append(errs, validate.NotSupportedUnless(s.PersistentVolumeReclaimPolicy, at.Child("persistentVolumeReclaimPolicy"), reclaimPolicies...)...)
	}
	if a := s.NodeAffinity; a != nil {
		if a.Required == nil {
			errs = append(errs, field.Required(at.Child("nodeAffinity", "required"), "must specify required node constraints"))
		} else {
			errs = append(errs, validate.NodeSelector(a.Required, at.Child("nodeAffinity", "required"))...)
		}
	}
	if s.StorageClassName != "" {
		errs = append(errs, validate.Invalids(at.Child("storageClassName"), s.StorageClassName, validation.IsDNS1123Subdomain(s.StorageClassName))...)
	}
	errs = append(errs, validateVolumeMode(s.VolumeMode, at.Child("volumeMode"))...)
	if name := s.VolumeAttributesClassName; name != nil {
		if *name == "" {
			errs = append(errs, field.Required(at.Child("volumeAttributesClassName"), "an empty string is disallowed"))
		} else {
			errs = append(errs, validate.Invalids(at.Child("volumeAttributesClassName"), *name, validation.IsDNS1123Subdomain(*name))...)
		}
		if s.CSI == nil {
			errs = append(errs, field.Required(at.Child("csi"), "has to be specified when using volumeAttributesClassName"))
		}
	}
	return errs
}

// validateVolumeItself checks fields that persistent volumes and inline volumes of pods share.
func validateVolumeItself(s *corev1.PersistentVolumeSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(s.AccessModes) == 0 {
		errs = append(errs, field.Required(at.Child("accessModes"), ""))
	}
	errs = append(errs, validateAccessModes(s.AccessModes, at.Child("accessModes"))...)
	errs = append(errs, validatePersistentSource(s, at)...)
	if s.HostPath != nil && cleanPath(s.HostPath.Path) == "/" && s.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		errs = append(errs, field.Forbidden(at.Child("persistentVolumeReclaimPolicy"), "may not be 'recycle' for a hostPath mount of '/'"))
	}
	return errs
}

func cleanPath(p string) string {
	if trimmed := strings.TrimRight(p, "/"); trimmed != "" || p == "" {
		return trimmed
	}
	return "/"
}

// volumeSources are the sources of a volume in the order of the checks: the first one that is set
// counts.
var volumeSources = []string{"hostPath", "gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "flocker", "nfs", "rbd", "quobyte", "cephfs", "iscsi", "cinder", "fc", "flexVolume", "azureFile",
	"vsphereVolume", "photonPersistentDisk", "portworxVolume", "azureDisk", "scaleIO", "local", "storageos", "csi"}

func validatePersistentSource(s *corev1.PersistentVolumeSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	sources := SourcesIn(s.PersistentVolumeSource)
	found := false
	for _, name := range volumeSources {
		if sources[name] == nil {
			continue
		}
		if found && name != "flexVolume" {
			errs = append(errs, SecondSource(name, at))
			continue
		}
		found = true
		switch source := sources[name].(type) {
		case *corev1.HostPathVolumeSource:
			errs = append(errs, ValidateHostPath(source, at.Child(name))...)
		case *corev1.LocalVolumeSource:
			if source.Path == "" {
				errs = append(errs, field.Required(at.Child(name, "path"), ""))
			}
			errs = append(errs, ValidateNoBacksteps(source.Path, at.Child(name, "path"))...)
			if s.NodeAffinity == nil {
				errs = append(errs, field.Required(at.Child("nodeAffinity"), "Local volume requires node affinity"))
			}
		case *corev1.CSIPersistentVolumeSource:
			errs = append(errs, validatePersistentCSI(source, at.Child(name))...)
		default:
			errs = append(errs, ValidateLegacySource(source, SourcePath(name, at))...)
		}
	}
	if !found {
		errs = append(errs, field.Required(at, "must specify a volume type"))
	}
	return errs
}

func validatePersistentCSI(s *corev1.CSIPersistentVolumeSource, at *field.Path) field.ErrorList {
	errs := ValidateDriverName(s.Driver, at.Child("driver"))
	errs = append(errs, validate.Required(at, "volumeHandle", s.VolumeHandle)...)
	for _, r := range []struct {
		name string
		ref  *corev1.SecretReference
	}{
		{"controllerPublishSecretRef", s.ControllerPublishSecretRef}, {"controllerExpandSecretRef", s.ControllerExpandSecretRef},
		{"nodePublishSecretRef", s.NodePublishSecretRef}, {"nodeExpandSecretRef", s.NodeExpandSecretRef},
	} { // nodeStageSecretRef is not checked
		if r.ref == nil {
			continue
		}
		if r.ref.Name == "" {
			errs = append(errs, field.Required(at.Child(r.name, "name"), ""))
		} else {
			errs = append(errs, validate.Subdomain(r.ref.Name, at.Child(r.name, "name"))...)
		}
		if r.ref.Namespace == "" {
			errs = append(errs, field.Required(at.Child(r.name, "namespace"), ""))
		} else {
			errs = append(errs, validate.Label(r.ref.Namespace, at.Child(r.name, "namespace"))...)
		}
	}
	return errs
}

func validatePersistentVolumeUpdate(v, old *corev1.PersistentVolume) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validatePersistentVolume(v)
	was, is := old.Spec.PersistentVolumeSource, v.Spec.PersistentVolumeSource
	if was.CSI != nil && is.CSI != nil {
		// The field for the expansion secret is newer than many volumes, so it may be added.
		csi := *is.CSI
		if was.CSI.ControllerExpandSecretRef == nil {
			csi.ControllerExpandSecretRef = nil
		}
		is.CSI = &csi
	}
	if !validate.Equal(is, was) {
		errs = append(errs, field.Forbidden(spec.Child("persistentvolumesource"), "spec.persistentvolumesource is immutable after creation\n"+validate.Difference(was, is)))
	}
	errs = append(errs, validate.Immutable(v.Spec.VolumeMode, old.Spec.VolumeMode, field.NewPath("volumeMode"))...)
	if old.Spec.NodeAffinity != nil && !validate.Equal(v.Spec.NodeAffinity, old.Spec.NodeAffinity) {
		errs = append(errs, validateVolumeAffinityUpdate(v.Spec.NodeAffinity, old.Spec.NodeAffinity, field.NewPath("nodeAffinity"))...)
	}
	if a, b := old.Spec.VolumeAttributesClassName, v.Spec.VolumeAttributesClassName; a != nil && b == nil {
		errs = append(errs, field.Forbidden(spec.Child("volumeAttributesClassName"), "update from non-nil value to nil is forbidden"))
	}
	return errs
}

// betaTopology maps beta labels to the stable ones that may replace them in a volume's node
// affinity.
var betaTopology = map[string]string{
	corev1.LabelFailureDomainBetaZone:   corev1.LabelTopologyZone,
	corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
	"beta.kubernetes.io/os":             corev1.LabelOSStable,
	"beta.kubernetes.io/arch":           corev1.LabelArchStable,
	corev1.LabelInstanceType:            corev1.LabelInstanceTypeStable,
}

func validateVolumeAffinityUpdate(a, old *corev1.VolumeNodeAffinity, at *field.Path) field.ErrorList {
	renamed := old.DeepCopy()
	if a != nil && a.Required != nil && renamed.Required != nil {
		for i := range renamed.Required.NodeSelectorTerms {
			if i >= len(a.Required.NodeSelectorTerms) {
				break
			}
			now := a.Required.NodeSelectorTerms[i].MatchExpressions
			for j := range renamed.Required.NodeSelectorTerms[i].MatchExpressions {
				e := &renamed.Required.NodeSelectorTerms[i].MatchExpressions[j]
				// An empty new key counts as equal, because it has an error of its own.
				if stable := betaTopology[e.Key]; j < len(now) && now[j].Key == stable {
					e.Key = stable
				}
			}
		}
	}
	if !validate.Equal(a, renamed) {
		return field.ErrorList{field.Invalid(at, a, "field is immutable, except for updating from beta label to GA")}
	}
	return nil
}

func validatePersistentVolumeStatus(v, _ *corev1.PersistentVolume) field.ErrorList {
	if v.ResourceVersion == "" {
		return field.ErrorList{field.Required(field.NewPath("resourceVersion"), "")}
	}
	return nil
}
