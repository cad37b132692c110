package storage

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/validate"
)

var validAccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod}

func validateAccessModes(modes []corev1.PersistentVolumeAccessMode, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, mode := range modes {
		errs = append(errs, validate.NotSupportedUnless(mode, at, validAccessModes...)...)
	}
	shared := slices.ContainsFunc(modes, func(m corev1.PersistentVolumeAccessMode) bool {
		return m != corev1.ReadWriteOncePod && slices.Contains(validAccessModes, m)
	})
	if shared && slices.Contains(modes, corev1.ReadWriteOncePod) {
		errs = append(errs, field.Forbidden(at, "may not use ReadWriteOncePod with other access modes"))
	}
	return errs
}

func validateVolumeMode(mode *corev1.PersistentVolumeMode, at *field.Path) field.ErrorList {
	if mode == nil {
		return nil
	}
	return validate.NotSupportedUnless(*mode, at, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)
}

func validateClaim(c *corev1.PersistentVolumeClaim) field.ErrorList {
	return ValidateClaimSpec(&c.Spec, field.NewPath("spec"))
}

func ValidateClaimSpec(s *corev1.PersistentVolumeClaimSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(s.AccessModes) == 0 {
		errs = append(errs, field.Required(at.Child("accessModes"), "at least 1 access mode is required"))
	}
	errs = append(errs, validate.Selector(s.Selector, at.Child("selector"))...)
	errs = append(errs, validateAccessModes(s.AccessModes, at.Child("accessModes"))...)
	storage := at.Child("resources").Key(string(corev1.ResourceStorage))
	if value, ok := s.Resources.Requests[corev1.ResourceStorage]; !ok {
		errs = append(errs, field.Required(storage, ""))
	} else {
		errs = append(errs, validate.PositiveQuantity(value, storage)...)
	}
	if name := s.StorageClassName; name != nil && *name != "" {
		errs = append(errs, validate.Invalids(at.Child("storageClassName"), *name, validation.IsDNS1123Subdomain(*name))...)
	}
	errs = append(errs, validateVolumeMode(s.VolumeMode, at.Child("volumeMode"))...)
	errs = append(errs, validateDataSources(s, at)...)
	if name := s.VolumeAttributesClassName; name != nil && *name != "" {
		errs = append(errs, validate.Invalids(at.Child("volumeAttributesClassName"), *name, validation.IsDNS1123Subdomain(*name))...)
	}
	return errs
}

func validateDataSources(s *corev1.PersistentVolumeClaimSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	one := func(group *string, kind, name string, at *field.Path) {
		errs = append(errs, validate.Required(at, "name", name)...)
		errs = append(errs, validate.Required(at, "kind", kind)...)
		api := ""
		if group != nil {
			api = *group
		}
		if api == "" && kind != "PersistentVolumeClaim" {
			errs = append(errs, field.Invalid(at, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup"))
		}
		if api != "" {
			errs = append(errs, validate.Invalids(at.Child("apiGroup"), api, validation.IsDNS1123Subdomain(api))...)
		}
	}
	d, r := s.DataSource, s.DataSourceRef
	if d != nil {
		one(d.APIGroup, d.Kind, d.Name, at.Child("dataSource"))
	}
	if r == nil {
		return errs
	}
	one(r.APIGroup, r.Kind, r.Name, at.Child("dataSourceRef"))
	foreign := r.Namespace != nil && *r.Namespace != ""
	if foreign {
		errs = append(errs, validate.Invalids(at.Child("dataSourceRef", "namespace"), *r.Namespace, apivalidation.ValidateNamespaceName(*r.Namespace, false))...)
		if d != nil {
			errs = append(errs, field.Invalid(at, at.Child("dataSource"), "may not be specified when dataSourceRef.namespace is specified"))
		}
	} else if d != nil && (!validate.EqualPointers(d.APIGroup, r.APIGroup) || d.Kind != r.Kind || d.Name != r.Name) {
		errs = append(errs, field.Invalid(at, at.Child("dataSource"), "must match dataSourceRef"))
	}
	return errs
}

// validateClaimUpdate keeps a claim's spec, except that the claim may be bound, grow, and change
// its attributes class.
func validateClaimUpdate(c, old *corev1.PersistentVolumeClaim) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validateClaim(c)
	changed, was := c.Spec.DeepCopy(), old.Spec.DeepCopy()
	bound := old.Status.Phase == corev1.ClaimBound
	if was.VolumeName == "" && changed.VolumeName != "" {
		changed.VolumeName = ""
	}
	// The field may replace the old annotation, and a claim without a class may get the default
	// class later.
	if class, annotated := old.Annotations[corev1.BetaStorageClassAnnotation]; was.StorageClassName == nil && (!annotated || class == validate.Deref(changed.StorageClassName)) {
		changed.StorageClassName = nil
	}
	if size, sized := was.Resources.Requests[corev1.ResourceStorage]; bound && sized && changed.Resources.Requests != nil {
		changed.Resources.Requests[corev1.ResourceStorage] = size
	}
	if bound {
		changed.VolumeAttributesClassName = was.VolumeAttributesClassName
	}
	if !validate.Equal(changed, was) {
		errs = append(errs, field.Forbidden(spec, "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n"+validate.Difference(was, changed)))
	}
	before, after := old.Spec.Resources.Requests[corev1.ResourceStorage], c.Spec.Resources.Requests[corev1.ResourceStorage]
	capacity := old.Status.Capacity[corev1.ResourceStorage]
	if after.Cmp(before) < 0 && after.Cmp(capacity) <= 0 {
		errs = append(errs, field.Forbidden(spec.Child("resources", "requests", "storage"), "field can not be less than status.capacity"))
	}
	if v := old.Spec.VolumeAttributesClassName; v != nil && *v != "" && (c.Spec.VolumeAttributesClassName == nil || *c.Spec.VolumeAttributesClassName == "") && old.Status.CurrentVolumeAttributesClassName != nil {
		errs = append(errs, field.Forbidden(spec.Child("volumeAttributesClassName"), "update from non-nil value to nil is forbidden"))
	}
	return append(errs, validate.Immutable(c.Spec.VolumeMode, old.Spec.VolumeMode, field.NewPath("volumeMode"))...)
}

func validateClaimStatus(c, _ *corev1.PersistentVolumeClaim) field.ErrorList {
	status := field.NewPath("status")
	var errs field.ErrorList
	if c.ResourceVersion == "" {
		errs = append(errs, field.Required(field.NewPath("resourceVersion"), ""))
	}
	if len(c.Spec.AccessModes) == 0 {
		errs = append(errs, field.Required(field.NewPath("Spec", "accessModes"), ""))
	}
	errs = append(errs, validateCapacities(c.Status.Capacity, status.Child("capacity"))...)
	allocated := status.Child("allocatedResources")
	for _, r := range slices.Sorted(maps.Keys(c.Status.AllocatedResources)) {
		if invalid := validateClaimResource(r, allocated); len(invalid) > 0 {
			errs = append(errs, invalid...)
		} else {
			errs = append(errs, validateCapacity(c.Status.AllocatedResources[r], allocated.Key(string(r)))...)
		}
	}
	statuses := status.Child("allocatedResourceStatuses")
	for _, r := range slices.Sorted(maps.Keys(c.Status.AllocatedResourceStatuses)) {
		errs = append(errs, validateClaimResource(r, statuses)...)
		if !slices.Contains(resizeStatuses, c.Status.AllocatedResourceStatuses[r]) {
			errs = append(errs, field.NotSupported(statuses, r, resizeStatuses))
		}
	}
	return errs
}

var resizeStatuses = []corev1.ClaimResourceStatus{corev1.PersistentVolumeClaimControllerResizeInProgress, corev1.PersistentVolumeClaimControllerResizeInfeasible,
	corev1.PersistentVolumeClaimNodeResizeInProgress, corev1.PersistentVolumeClaimNodeResizeInfeasible, corev1.PersistentVolumeClaimNodeResizePending}

// validateClaimResource accepts storage and resources with a foreign domain.
func validateClaimResource(name corev1.ResourceName, at *field.Path) field.ErrorList {
	if errs := validate.Qualified(string(name), at); len(errs) > 0 {
		return errs
	}
	if domain, _, found := strings.Cut(string(name), "/"); name != corev1.ResourceStorage && (!found || domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io")) {
		return field.ErrorList{field.NotSupported(at, name, []corev1.ResourceName{corev1.ResourceStorage})}
	}
	return nil
}

func validateCapacities(list corev1.ResourceList, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, r := range slices.Sorted(maps.Keys(list)) {
		errs = append(errs, validateCapacity(list[r], at.Key(string(r)))...)
	}
	return errs
}

// validateCapacity checks a volume's capacity; fractions are allowed for every resource.
func validateCapacity(value resource.Quantity, at *field.Path) field.ErrorList {
	if value.Sign() < 0 {
		return field.ErrorList{field.Invalid(at, value.Value(), "must be a valid resource quantity")}
	}
	return nil
}
