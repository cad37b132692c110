package storage

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func VolumeAttachmentStrategy() *strategy.Strategy {
	s := strategy.WithStatus(false)
	s.Default = strategy.On(defaultVolumeAttachment)
	s.ValidateCreate = strategy.Checks(validateVolumeAttachment)
	s.ValidateUpdate = strategy.ChecksBoth(validateVolumeAttachmentUpdate)
	s.ValidateStatus = strategy.ChecksBoth(validateVolumeAttachmentStatus)
	s.NameRuleOnStatus = true
	s.KeepMetadataInStatus()
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), volumeAttachmentColumns, volumeAttachmentRow)
}

func defaultVolumeAttachment(a *storagev1.VolumeAttachment) {
	if s := a.Spec.Source.InlineVolumeSpec; s != nil {
		v := corev1.PersistentVolume{Spec: *s}
		defaultPersistentVolume(&v)
		*s = v.Spec
	}
}

const (
	maxAttachMetadataSize = 256 * (1 << 10)
	maxVolumeErrorSize    = 1024
	toldVolumeErrorSize   = 256 * 1024 // upstream reports this limit, but enforces the other one

	exactlyOneVolume = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
)

func validateVolumeAttachment(a *storagev1.VolumeAttachment) field.ErrorList {
	errs := ValidateDriverName(a.Spec.Attacher, validate.SpecPath.Child("attacher"))
	source := validate.SpecPath.Child("source")
	inline, name := a.Spec.Source.InlineVolumeSpec, a.Spec.Source.PersistentVolumeName
	switch {
	case inline == nil && name == nil:
		errs = append(errs, field.Required(source, exactlyOneVolume))
	case inline != nil && name != nil:
		errs = append(errs, field.Forbidden(source, exactlyOneVolume))
	case inline != nil:
		errs = append(errs, validateInlineVolume(inline, source.Child("inlineVolumeSpec"))...)
	case *name == "":
		errs = append(errs, field.Required(source.Child("persistentVolumeName"), "must specify non empty persistentVolumeName"))
	}
	if name != nil {
		errs = append(errs, validate.Subdomain(*name, source.Child("persistentVolumeName"))...)
	}
	errs = append(errs, validate.Invalids(validate.SpecPath.Child("nodeName"), a.Spec.NodeName, apivalidation.NameIsDNSSubdomain(a.Spec.NodeName, false))...)
	return append(errs, validateVolumeAttachmentStatus(a, nil)...)
}

// validateInlineVolume checks the volume that an inline volume of a pod was translated to: a CSI
// volume without fields that need a claim.
func validateInlineVolume(s *corev1.PersistentVolumeSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"capacity", len(s.Capacity) > 0}, {"claimRef", s.ClaimRef != nil}, {"storageClassName", s.StorageClassName != ""}, {"nodeAffinity", s.NodeAffinity != nil},
	} {
		if f.given {
			errs = append(errs, field.Forbidden(at.Child(f.name), "may not be specified in the context of inline volumes"))
		}
	}
	if s.CSI == nil {
		errs = append(errs, field.Required(at.Child("csi"), "has to be specified in the context of inline volumes"))
	}
	if p := s.PersistentVolumeReclaimPolicy; p != "" && p != corev1.PersistentVolumeReclaimRetain {
		errs = append(errs, field.Forbidden(at.Child("persistentVolumeReclaimPolicy"), "may only be Retain in the context of inline volumes"))
	}
	if m := s.VolumeMode; m != nil && *m != corev1.PersistentVolumeFilesystem {
		errs = append(errs, field.Forbidden(at.Child("volumeMode"), "may not specify volumeMode other than Filesystem in the context of inline volumes"))
	}
	return append(errs, validateVolumeItself(s, at)...)
}

func validateVolumeAttachmentUpdate(a, old *storagev1.VolumeAttachment) field.ErrorList {
	return append(validateVolumeAttachment(a), validate.Immutable(a.Spec, old.Spec, validate.SpecPath)...)
}

func validateVolumeAttachmentStatus(a, _ *storagev1.VolumeAttachment) field.ErrorList {
	at := field.NewPath("status")
	size := 0
	for k, v := range a.Status.AttachmentMetadata {
		size += len(k) + len(v)
	}
	var errs field.ErrorList
	if size > maxAttachMetadataSize {
		errs = append(errs, field.TooLong(at.Child("attachmentMetadata"), "", maxAttachMetadataSize))
	}
	for _, e := range []struct {
		name string
		err  *storagev1.VolumeError
	}{{"attachError", a.Status.AttachError}, {"detachError", a.Status.DetachError}} {
		if e.err == nil {
			continue
		}
		if len(e.err.Message) > maxVolumeErrorSize {
			errs = append(errs, field.TooLong(at.Child(e.name, "message"), "", toldVolumeErrorSize))
		}
		if code := e.err.ErrorCode; code != nil && *code < 0 {
			errs = append(errs, field.Invalid(at.Child(e.name, "errorCode"), *code, validation.InclusiveRangeError(0, math.MaxInt32)))
		}
	}
	return errs
}

var volumeAttachmentColumns = columns.Define("Name", "Attacher@spec.attacher", "PV@spec.source.persistentVolumeName", "Node@spec.nodeName", "Attached:boolean@status.attached", "Age")

func volumeAttachmentRow(a *storagev1.VolumeAttachment, now metav1.Time) []any {
	return []any{a.Name, a.Spec.Attacher, validate.Deref(a.Spec.Source.PersistentVolumeName), a.Spec.NodeName, a.Status.Attached, columns.AgeOf(a, now)}
}
