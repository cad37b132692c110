package resource

import (
	"fmt"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/validate"
)

const (
	maxClassParameters     = 512
	maxClassParametersSize = 256 * (1 << 10)
)

const (
	maxAttachMetadataSize = 256 * (1 << 10)
	maxVolumeErrorSize    = 1024
	toldVolumeErrorSize   = 256 * 1024 // upstream reports this limit, but enforces the other one

	exactlyOneVolume = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
)

const maxCSINodeIDLength = 256

const (
	maxCSIDriverNameLength      = 63
	minTokenDurationSeconds     = 600
	maxTokenDurationSeconds     = 1 << 32
	minAllocatableUpdateSeconds = 10
)

func validateStorageClass(c *storagev1.StorageClass) field.ErrorList {
	errs := validateProvisioner(c.Provisioner, field.NewPath("provisioner"))
	errs = append(errs, validateParameters(c.Parameters, true, field.NewPath("parameters"))...)
	if p := c.ReclaimPolicy; p != nil && *p != "" {
		errs = append(errs, validate.NotSupportedUnless(*p, field.NewPath("reclaimPolicy"), corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain)...)
	}
	if m := c.VolumeBindingMode; m == nil {
		errs = append(errs, field.Required(field.NewPath("volumeBindingMode"), ""))
	} else {
		errs = append(errs, validate.NotSupportedUnless(*m, field.NewPath("volumeBindingMode"), storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer)...)
	}
	return append(errs, validateTopologies(c.AllowedTopologies, field.NewPath("allowedTopologies"))...)
}

func validateStorageClassUpdate(c, old *storagev1.StorageClass) field.ErrorList {
	var errs field.ErrorList
	if len(c.Parameters)+len(old.Parameters) > 0 {
		errs = append(errs, validate.Immutable(c.Parameters, old.Parameters, field.NewPath("parameters"))...)
	}
	errs = append(errs, validate.Immutable(c.Provisioner, old.Provisioner, field.NewPath("provisioner"))...)
	errs = append(errs, validate.Immutable(c.ReclaimPolicy, old.ReclaimPolicy, field.NewPath("reclaimPolicy"))...)
	errs = append(errs, validate.Immutable(c.VolumeBindingMode, old.VolumeBindingMode, field.NewPath("volumeBindingMode"))...)
	return append(errs, validateStorageClass(c)...)
}

func validateProvisioner(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, name)}
	}
	return validate.Qualified(strings.ToLower(name), at)
}

func validateParameters(parameters map[string]string, allowEmpty bool, at *field.Path) field.ErrorList {
	if !allowEmpty && len(parameters) == 0 {
		return field.ErrorList{field.Required(at, "must contain at least one key/value pair")}
	}
	var errs field.ErrorList
	if len(parameters) > maxClassParameters {
		errs = append(errs, field.TooLong(at, "", maxClassParameters))
	}
	size := 0
	for k, v := range parameters {
		if k == "" {
			errs = append(errs, field.Invalid(at, k, "field can not be empty."))
		}
		size += len(k) + len(v)
	}
	if size > maxClassParametersSize {
		errs = append(errs, field.TooLong(at, "", maxClassParametersSize))
	}
	return errs
}

// validateTopologies checks terms (joined by OR) of expressions (joined by AND). Terms must differ.
func validateTopologies(terms []corev1.TopologySelectorTerm, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	// The set already contains the empty term.
	seen := map[string]bool{fmt.Sprint(map[string][]string{}): true}
	for i, term := range terms {
		expressions := at.Index(i).Child("matchLabelExpressions")
		keys := map[string]bool{}
		form := map[string][]string{}
		for j, e := range term.MatchLabelExpressions {
			at := expressions.Index(j)
			values := sets.New[string]()
			if len(e.Values) == 0 {
				errs = append(errs, field.Required(at.Child("values"), ""))
			}
			for k, v := range e.Values {
				if values.Has(v) {
					errs = append(errs, field.Duplicate(at.Child("values").Index(k), v))
				}
				values.Insert(v)
			}
			errs = append(errs, validate.Invalids(at.Child("key"), e.Key, validation.IsQualifiedName(e.Key))...)
			if keys[e.Key] {
				errs = append(errs, field.Duplicate(at.Child("key"), e.Key))
			}
			keys[e.Key] = true
			form[e.Key] = sets.List(values)
		}
		text := fmt.Sprint(form)
		if seen[text] {
			errs = append(errs, field.Duplicate(expressions, ""))
		}
		seen[text] = true
	}
	return errs
}

func validateDriverName(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	if len(name) > maxCSIDriverNameLength {
		errs = append(errs, field.TooLong(at, name, maxCSIDriverNameLength))
	}
	return append(errs, validate.Invalids(at, name, validation.IsDNS1123Subdomain(strings.ToLower(name)))...)
}

func validateVolumeAttachment(a *storagev1.VolumeAttachment) field.ErrorList {
	errs := validateDriverName(a.Spec.Attacher, validate.SpecPath.Child("attacher"))
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

func validateCSINode(n *storagev1.CSINode) field.ErrorList {
	drivers := validate.SpecPath.Child("drivers")
	var errs field.ErrorList
	seen := map[string]bool{}
	for i := range n.Spec.Drivers {
		d, at := &n.Spec.Drivers[i], drivers.Index(i)
		errs = append(errs, validateDriverName(d.Name, at.Child("name"))...)
		switch {
		case d.NodeID == "":
			errs = append(errs, field.Required(at.Child("nodeID"), d.NodeID))
		case len(d.NodeID) > maxCSINodeIDLength:
			errs = append(errs, field.Invalid(at.Child("nodeID"), d.NodeID, fmt.Sprintf("must be %d characters or less", maxCSINodeIDLength)))
		}
		if d.Allocatable != nil {
			errs = append(errs, validate.OptionalNonNegative(d.Allocatable.Count, at.Child("allocatable", "count"))...)
		}
		if seen[d.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), d.Name))
		}
		seen[d.Name] = true
		keys := map[string]bool{}
		for _, k := range d.TopologyKeys {
			switch {
			case k == "":
				errs = append(errs, field.Required(at, ""))
			case keys[k]:
				errs = append(errs, field.Duplicate(at, k))
			}
			keys[k] = true
			errs = append(errs, validate.Qualified(k, at)...)
		}
	}
	return errs
}

// validateCSINodeUpdate keeps what a driver reported, except how many volumes it can attach.
func validateCSINodeUpdate(n, old *storagev1.CSINode) field.ErrorList {
	errs := validateCSINode(n)
	before := map[string]storagev1.CSINodeDriver{}
	for _, d := range old.Spec.Drivers {
		before[d.Name] = d
	}
	for _, d := range n.Spec.Drivers {
		was, ok := before[d.Name]
		if !ok {
			continue
		}
		d.Allocatable = was.Allocatable
		if !validate.Equal(d, was) {
			errs = append(errs, field.Invalid(validate.SpecPath.Child("drivers"), d, apivalidation.FieldImmutableErrorMsg))
		}
	}
	return errs
}

func validateCSIDriver(d *storagev1.CSIDriver) field.ErrorList {
	var errs field.ErrorList
	spec := &d.Spec
	for _, b := range []struct {
		name  string
		value *bool
	}{{"attachRequired", spec.AttachRequired}, {"podInfoOnMount", spec.PodInfoOnMount}, {"storageCapacity", spec.StorageCapacity}} {
		if b.value == nil {
			errs = append(errs, field.Required(validate.SpecPath.Child(b.name), ""))
		}
	}
	if p := spec.FSGroupPolicy; p == nil {
		errs = append(errs, field.Required(validate.SpecPath.Child("fsGroupPolicy"), ""))
	} else {
		errs = append(errs, validate.NotSupportedUnless(*p, validate.SpecPath.Child("fsGroupPolicy"),
			storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)...)
	}
	audiences := map[string]bool{}
	for i, t := range spec.TokenRequests {
		at := validate.SpecPath.Child("tokenRequests").Index(i)
		if audiences[t.Audience] {
			errs = append(errs, field.Duplicate(at.Child("audience"), t.Audience))
			continue
		}
		audiences[t.Audience] = true
		if s := t.ExpirationSeconds; s != nil {
			if *s < minTokenDurationSeconds {
				errs = append(errs, field.Invalid(at.Child("expirationSeconds"), *s, "may not specify a duration less than 10 minutes"))
			}
			if *s > maxTokenDurationSeconds {
				errs = append(errs, field.Invalid(at.Child("expirationSeconds"), *s, "may not specify a duration larger than 2^32 seconds"))
			}
		}
	}
	for _, m := range spec.VolumeLifecycleModes {
		if m != storagev1.VolumeLifecyclePersistent && m != storagev1.VolumeLifecycleEphemeral {
			errs = append(errs, field.NotSupported(validate.SpecPath.Child("volumeLifecycleModes"), m, []string{"Persistent", "Ephemeral"}))
		}
	}
	if spec.SELinuxMount == nil {
		errs = append(errs, field.Required(validate.SpecPath.Child("seLinuxMount"), ""))
	}
	if spec.ServiceAccountTokenInSecrets != nil && len(spec.TokenRequests) == 0 {
		errs = append(errs, field.Invalid(validate.SpecPath.Child("serviceAccountTokenInSecrets"), *spec.ServiceAccountTokenInSecrets, "serviceAccountTokenInSecrets is set but no tokenRequests are specified"))
	}
	if s := spec.NodeAllocatableUpdatePeriodSeconds; s != nil && *s < minAllocatableUpdateSeconds {
		errs = append(errs, field.Invalid(validate.SpecPath.Child("nodeAllocatableUpdatePeriodSeconds"), *s, fmt.Sprintf("must be greater than or equal to %d seconds", minAllocatableUpdateSeconds)))
	}
	return errs
}

func validateCSIDriverUpdate(d, old *storagev1.CSIDriver) field.ErrorList {
	errs := validateCSIDriver(d)
	// Upstream's spelling of the path.
	errs = append(errs, validate.Immutable(d.Spec.AttachRequired, old.Spec.AttachRequired, validate.SpecPath.Child("attachedRequired"))...)
	return append(errs, validate.Immutable(d.Spec.VolumeLifecycleModes, old.Spec.VolumeLifecycleModes, validate.SpecPath.Child("volumeLifecycleModes"))...)
}

func validateCSIStorageCapacity(c *storagev1.CSIStorageCapacity) field.ErrorList {
	errs := validate.Invalids(field.NewPath("storageClassName"), c.StorageClassName, apivalidation.NameIsDNSSubdomain(c.StorageClassName, false))
	if c.NodeTopology != nil {
		errs = append(errs, validate.Selector(c.NodeTopology, field.NewPath("nodeTopology"))...)
	}
	if c.Capacity != nil {
		errs = append(errs, validate.Quantity(*c.Capacity, field.NewPath("capacity"))...)
	}
	return errs
}

func validateCSIStorageCapacityUpdate(c, old *storagev1.CSIStorageCapacity) field.ErrorList {
	errs := validateCSIStorageCapacity(c)
	errs = append(errs, validate.Immutable(c.NodeTopology, old.NodeTopology, field.NewPath("nodeTopology"))...)
	return append(errs, validate.Immutable(c.StorageClassName, old.StorageClassName, field.NewPath("storageClassName"))...)
}

func validateVolumeAttributes(c *storagev1.VolumeAttributesClass) field.ErrorList {
	errs := validateProvisioner(c.DriverName, field.NewPath("driverName"))
	return append(errs, validateParameters(c.Parameters, false, field.NewPath("parameters"))...)
}

func validateVolumeAttributesUpdate(c, old *storagev1.VolumeAttributesClass) field.ErrorList {
	var errs field.ErrorList
	if c.DriverName != old.DriverName {
		errs = append(errs, field.Forbidden(field.NewPath("driverName"), "updates to driverName are forbidden."))
	}
	if !validate.Equal(c.Parameters, old.Parameters) {
		errs = append(errs, field.Forbidden(field.NewPath("parameters"), "updates to parameters are forbidden."))
	}
	return append(errs, validateVolumeAttributes(c)...)
}
