package storage

import (
	"net"
	"path"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/validate"
)

// ValidateLegacySource checks volume sources that name a storage system; CSI drivers have replaced
// most of them. Pods and persistent volumes share them except for the references to secrets.
func ValidateLegacySource(source any, at *field.Path) field.ErrorList {
	switch s := source.(type) {
	case *corev1.GCEPersistentDiskVolumeSource:
		return append(validate.Required(at, "pdName", s.PDName), validatePartition(s.Partition, at.Child("partition"))...)
	case *corev1.AWSElasticBlockStoreVolumeSource:
		return append(validate.Required(at, "volumeID", s.VolumeID), validatePartition(s.Partition, at.Child("partition"))...)
	case *corev1.NFSVolumeSource:
		errs := append(validate.Required(at, "server", s.Server), validate.Required(at, "path", s.Path)...)
		if !path.IsAbs(s.Path) {
			errs = append(errs, field.Invalid(at.Child("path"), s.Path, validate.ErrAbsolutePath))
		}
		return errs
	case *corev1.ISCSIVolumeSource:
		errs := validateISCSI(s.TargetPortal, s.IQN, s.Lun, at)
		if s.SecretRef == nil && (s.DiscoveryCHAPAuth || s.SessionCHAPAuth) {
			errs = append(errs, field.Required(at.Child("secretRef"), ""))
		}
		return append(errs, validateISCSINames(s.IQN, s.InitiatorName, true, at)...)
	case *corev1.ISCSIPersistentVolumeSource:
		errs := validateISCSI(s.TargetPortal, s.IQN, s.Lun, at)
		if s.SecretRef != nil {
			errs = append(errs, validate.Required(at.Child("secretRef"), "name", s.SecretRef.Name)...)
		} else if s.DiscoveryCHAPAuth || s.SessionCHAPAuth {
			errs = append(errs, field.Required(at.Child("secretRef"), ""))
		}
		return append(errs, validateISCSINames(s.IQN, s.InitiatorName, false, at)...)
	case *corev1.GlusterfsVolumeSource:
		return append(validate.Required(at, "endpoints", s.EndpointsName), validate.Required(at, "path", s.Path)...)
	case *corev1.GlusterfsPersistentVolumeSource:
		errs := append(validate.Required(at, "endpoints", s.EndpointsName), validate.Required(at, "path", s.Path)...)
		if s.EndpointsNamespace != nil && *s.EndpointsNamespace == "" {
			errs = append(errs, field.Invalid(at.Child("endpointsNamespace"), "", "if the endpointnamespace is set, it must be a valid namespace name"))
		} else if s.EndpointsNamespace != nil {
			errs = append(errs, validate.Invalids(at.Child("endpointsNamespace"), *s.EndpointsNamespace, validation.IsDNS1123Label(*s.EndpointsNamespace))...)
		}
		return errs
	case *corev1.RBDVolumeSource:
		return append(requiredList(at, "monitors", s.CephMonitors), validate.Required(at, "image", s.RBDImage)...)
	case *corev1.RBDPersistentVolumeSource:
		return append(requiredList(at, "monitors", s.CephMonitors), validate.Required(at, "image", s.RBDImage)...)
	case *corev1.CephFSVolumeSource:
		return requiredList(at, "monitors", s.Monitors)
	case *corev1.CephFSPersistentVolumeSource:
		return requiredList(at, "monitors", s.Monitors)
	case *corev1.CinderVolumeSource:
		errs := validate.Required(at, "volumeID", s.VolumeID)
		if s.SecretRef != nil {
			errs = append(errs, validate.Required(at.Child("secretRef"), "name", s.SecretRef.Name)...)
		}
		return errs
	case *corev1.CinderPersistentVolumeSource:
		errs := validate.Required(at, "volumeID", s.VolumeID)
		if s.SecretRef != nil {
			errs = append(errs, validate.Required(at.Child("secretRef"), "name", s.SecretRef.Name)...)
			errs = append(errs, validate.Required(at.Child("secretRef"), "namespace", s.SecretRef.Namespace)...)
		}
		return errs
	case *corev1.FlockerVolumeSource:
		return validateFlocker(s, at)
	case *corev1.FCVolumeSource:
		return validateFibreChannel(s, at)
	case *corev1.FlexVolumeSource:
		return validateFlex(s.Driver, s.Options, at)
	case *corev1.FlexPersistentVolumeSource:
		return validateFlex(s.Driver, s.Options, at)
	case *corev1.AzureFileVolumeSource:
		return append(validate.Required(at, "secretName", s.SecretName), validate.Required(at, "shareName", s.ShareName)...)
	case *corev1.AzureFilePersistentVolumeSource:
		errs := append(validate.Required(at, "secretName", s.SecretName), validate.Required(at, "shareName", s.ShareName)...)
		if s.SecretNamespace != nil && *s.SecretNamespace == "" {
			errs = append(errs, field.Required(at.Child("secretNamespace"), ""))
		}
		return errs
	case *corev1.AzureDiskVolumeSource:
		return validateAzureDisk(s, at)
	case *corev1.VsphereVirtualDiskVolumeSource:
		return validate.Required(at, "volumePath", s.VolumePath)
	case *corev1.PhotonPersistentDiskVolumeSource:
		return validate.Required(at, "pdID", s.PdID)
	case *corev1.PortworxVolumeSource:
		return validate.Required(at, "volumeID", s.VolumeID)
	case *corev1.QuobyteVolumeSource:
		return validateQuobyte(s, at)
	case *corev1.ScaleIOVolumeSource:
		return append(append(validate.Required(at, "gateway", s.Gateway), validate.Required(at, "system", s.System)...), validate.Required(at, "volumeName", s.VolumeName)...)
	case *corev1.ScaleIOPersistentVolumeSource:
		return append(append(validate.Required(at, "gateway", s.Gateway), validate.Required(at, "system", s.System)...), validate.Required(at, "volumeName", s.VolumeName)...)
	case *corev1.StorageOSVolumeSource:
		return validateStorageOS(s.VolumeName, s.VolumeNamespace, s.SecretRef != nil && s.SecretRef.Name == "", at)
	case *corev1.StorageOSPersistentVolumeSource:
		errs := validateStorageOS(s.VolumeName, s.VolumeNamespace, s.SecretRef != nil && s.SecretRef.Name == "", at)
		if s.SecretRef != nil {
			errs = append(errs, validate.Required(at.Child("secretRef"), "namespace", s.SecretRef.Namespace)...)
		}
		return errs
	}
	return nil
}

func requiredList(at *field.Path, name string, list []string) field.ErrorList {
	if len(list) == 0 {
		return field.ErrorList{field.Required(at.Child(name), "")}
	}
	return nil
}

func validatePartition(n int32, at *field.Path) field.ErrorList {
	if n < 0 || n > 255 {
		// 0 means no partition.
		return field.ErrorList{field.Invalid(at, n, validation.InclusiveRangeError(1, 255))}
	}
	return nil
}

var (
	iscsiIQN = regexp.MustCompile(`iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$`)
	iscsiEUI = regexp.MustCompile(`^eui.[[:alnum:]]{16}$`)
	iscsiNAA = regexp.MustCompile(`^naa.[[:alnum:]]{32}$`)
)

// validateISCSINames checks the names of target and initiator. The caller reports a missing target.
func validateISCSINames(iqn string, initiator *string, known bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if iqn != "" {
		errs = append(errs, validateISCSIName(iqn, known, at.Child("iqn"))...)
	}
	if initiator != nil {
		errs = append(errs, validateISCSIName(*initiator, known, at.Child("initiatorname"))...)
	}
	return errs
}

// validateISCSIName checks a name in one of the three forms of RFC 3721. known gives an unknown
// prefix an error of its own.
func validateISCSIName(name string, known bool, at *field.Path) field.ErrorList {
	var form *regexp.Regexp
	switch {
	case strings.HasPrefix(name, "iqn"):
		form = iscsiIQN
	case strings.HasPrefix(name, "eui"):
		form = iscsiEUI
	case strings.HasPrefix(name, "naa"):
		form = iscsiNAA
	case known:
		return field.ErrorList{field.Invalid(at, name, "must be valid format starting with iqn, eui, or naa")}
	}
	if form == nil || !form.MatchString(name) {
		return field.ErrorList{field.Invalid(at, name, "must be valid format")}
	}
	return nil
}

// validateISCSI checks fields that pods and persistent volumes share. Their names and secrets get
// different errors.
func validateISCSI(portal, iqn string, lun int32, at *field.Path) field.ErrorList {
	errs := append(validate.Required(at, "targetPortal", portal), validate.Required(at, "iqn", iqn)...)
	if lun < 0 || lun > 255 {
		errs = append(errs, field.Invalid(at.Child("lun"), lun, validation.InclusiveRangeError(0, 255)))
	}
	return errs
}

func validateFlocker(s *corev1.FlockerVolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case s.DatasetName == "" && s.DatasetUUID == "":
		errs = append(errs, field.Required(at, "one of datasetName and datasetUUID is required"))
	case s.DatasetName != "" && s.DatasetUUID != "":
		errs = append(errs, field.Invalid(at, "resource", "datasetName and datasetUUID can not be specified simultaneously"))
	}
	if strings.Contains(s.DatasetName, "/") {
		errs = append(errs, field.Invalid(at.Child("datasetName"), s.DatasetName, "must not contain '/'"))
	}
	return errs
}

func validateFibreChannel(s *corev1.FCVolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case len(s.TargetWWNs) == 0 && len(s.WWIDs) == 0:
		errs = append(errs, field.Required(at.Child("targetWWNs"), "must specify either targetWWNs or wwids, but not both"))
	case len(s.TargetWWNs) > 0 && len(s.WWIDs) > 0:
		errs = append(errs, field.Invalid(at.Child("targetWWNs"), s.TargetWWNs, "targetWWNs and wwids can not be specified simultaneously"))
	}
	switch {
	case len(s.TargetWWNs) == 0:
	case s.Lun == nil:
		errs = append(errs, field.Required(at.Child("lun"), "lun is required if targetWWNs is specified"))
	case *s.Lun < 0 || *s.Lun > 255:
		errs = append(errs, field.Invalid(at.Child("lun"), *s.Lun, validation.InclusiveRangeError(0, 255)))
	}
	return errs
}

func validateFlex(driver string, options map[string]string, at *field.Path) field.ErrorList {
	errs := validate.Required(at, "driver", driver)
	for key := range options {
		namespace, _, _ := strings.Cut(key, "/")
		if !strings.Contains(key, "/") {
			continue
		}
		normalized := "." + strings.ToLower(namespace)
		if strings.HasSuffix(normalized, ".kubernetes.io") || strings.HasSuffix(normalized, ".k8s.io") {
			errs = append(errs, field.Invalid(at.Child("options").Key(key), key, "kubernetes.io and k8s.io namespaces are reserved"))
		}
	}
	return errs
}

func validateAzureDisk(s *corev1.AzureDiskVolumeSource, at *field.Path) field.ErrorList {
	errs := append(validate.Required(at, "diskName", s.DiskName), validate.Required(at, "diskURI", s.DataDiskURI)...)
	if s.CachingMode != nil {
		errs = append(errs, validate.NotSupportedUnless(*s.CachingMode, at.Child("cachingMode"), corev1.AzureDataDiskCachingNone, corev1.AzureDataDiskCachingReadOnly, corev1.AzureDataDiskCachingReadWrite)...)
	}
	kind := validate.Deref(s.Kind)
	if s.Kind != nil {
		errs = append(errs, validate.NotSupportedUnless(kind, at.Child("kind"), corev1.AzureDedicatedBlobDisk, corev1.AzureManagedDisk, corev1.AzureSharedBlobDisk)...)
	}
	begins, example := "https://", "{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
	if kind == corev1.AzureManagedDisk {
		begins, example = "/subscriptions/", "{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
	}
	if !strings.HasPrefix(s.DataDiskURI, begins) {
		errs = append(errs, field.NotSupported(at.Child("diskURI"), s.DataDiskURI, []string{begins + example}))
	}
	return errs
}

const maxQuobyteTenant = 64

func validateQuobyte(s *corev1.QuobyteVolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case s.Registry == "":
		errs = append(errs, field.Required(at.Child("registry"), "must be a host:port pair or multiple pairs separated by commas"))
	case len(s.Tenant) > maxQuobyteTenant:
		errs = append(errs, field.Required(at.Child("tenant"), "must be a UUID and may not exceed a length of 64 characters"))
	default:
		for pair := range strings.SplitSeq(s.Registry, ",") {
			if _, _, err := net.SplitHostPort(pair); err != nil {
				errs = append(errs, field.Invalid(at.Child("registry"), s.Registry, "must be a host:port pair or multiple pairs separated by commas"))
			}
		}
	}
	return append(errs, validate.Required(at, "volume", s.Volume)...)
}

func validateStorageOS(name, namespace string, secretUnnamed bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if name == "" {
		errs = append(errs, field.Required(at.Child("volumeName"), ""))
	} else {
		errs = append(errs, validate.Label(name, at.Child("volumeName"))...)
	}
	if namespace != "" {
		errs = append(errs, validate.Label(namespace, at.Child("volumeNamespace"))...)
	}
	if secretUnnamed {
		errs = append(errs, field.Required(at.Child("secretRef").Child("name"), ""))
	}
	return errs
}
