package storage

import (
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

const (
	DefaultISCSIInterface  = "default"
	DefaultRBDPool         = "rbd"
	DefaultRBDUser         = "admin"
	DefaultRBDKeyring      = "/etc/ceph/keyring"
	DefaultScaleIOMode     = "ThinProvisioned"
	DefaultScaleIOFSType   = "xfs"
	defaultAzureDiskFSType = "ext4"
)

func DefaultHostPath(s *corev1.HostPathVolumeSource) {
	if s != nil {
		strategy.SetPointer(&s.Type, corev1.HostPathUnset)
	}
}

func DefaultAzureDisk(s *corev1.AzureDiskVolumeSource) {
	if s == nil {
		return
	}
	strategy.SetPointer(&s.CachingMode, corev1.AzureDataDiskCachingReadWrite)
	strategy.SetPointer(&s.Kind, corev1.AzureSharedBlobDisk)
	strategy.SetPointer(&s.FSType, defaultAzureDiskFSType)
	strategy.SetPointer(&s.ReadOnly, false)
}

const (
	errManySources = "may not specify more than 1 volume type"
	errBacksteps   = "must not contain '..'"
)

// toldAs maps field names to upstream's names for them in errors about a second source.
var toldAs = map[string]string{"cephfs": "cephFS", "downwardAPI": "downwarAPI"}

// SecondSource refuses a second source in a volume.
func SecondSource(name string, at *field.Path) *field.Error {
	if told, ok := toldAs[name]; ok {
		name = told
	}
	return field.Forbidden(at.Child(name), errManySources)
}

// SourcesIn returns the sources that a struct of pointers holds, by name.
func SourcesIn(holder any) map[string]any {
	sources := map[string]any{}
	value := reflect.ValueOf(holder)
	for i := range value.NumField() {
		if name, _, _ := strings.Cut(value.Type().Field(i).Tag.Get("json"), ","); !value.Field(i).IsNil() {
			sources[name] = value.Field(i).Interface()
		}
	}
	return sources
}

// SourcePath returns the path under which errors report a source's fields.
func SourcePath(name string, at *field.Path) *field.Path {
	if name == "gcePersistentDisk" {
		name = "persistentDisk"
	}
	return at.Child(name)
}

func ValidateHostPath(s *corev1.HostPathVolumeSource, at *field.Path) field.ErrorList {
	if s.Path == "" {
		return field.ErrorList{field.Required(at.Child("path"), "")}
	}
	errs := ValidateNoBacksteps(s.Path, at.Child("path"))
	if s.Type != nil {
		errs = append(errs, validate.NotSupportedUnless(*s.Type, at.Child("type"), hostPathTypes...)...)
	}
	return errs
}

var hostPathTypes = []corev1.HostPathType{
	corev1.HostPathUnset, corev1.HostPathBlockDev, corev1.HostPathCharDev, corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate,
	corev1.HostPathFile, corev1.HostPathFileOrCreate, corev1.HostPathSocket,
}

func ValidateNoBacksteps(p string, at *field.Path) field.ErrorList {
	if slices.Contains(strings.Split(p, "/"), "..") {
		return field.ErrorList{field.Invalid(at, p, errBacksteps)}
	}
	return nil
}

// OldVolumes are volume sources that have no effect any more, or will lose it.
var OldVolumes = map[string]string{
	"photonPersistentDisk": "photonPersistentDisk: deprecated in v1.11, non-functional in v1.16+", "gitRepo": "gitRepo: deprecated in v1.11, and disabled by default in v1.33+",
	"scaleIO": "scaleIO: deprecated in v1.16, non-functional in v1.22+", "flocker": "flocker: deprecated in v1.22, non-functional in v1.25+",
	"storageos": "storageOS: deprecated in v1.22, non-functional in v1.25+", "quobyte": "quobyte: deprecated in v1.22, non-functional in v1.25+",
	"glusterfs": "glusterfs: deprecated in v1.25, non-functional in v1.26+", "cephfs": "cephfs: deprecated in v1.28, non-functional in v1.31+", "rbd": "rbd: deprecated in v1.28, non-functional in v1.31+",
}
