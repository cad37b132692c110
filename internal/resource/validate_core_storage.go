package resource

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
	return validateClaimSpec(&c.Spec, field.NewPath("spec"))
}

func validateClaimSpec(s *corev1.PersistentVolumeClaimSpec, at *field.Path) field.ErrorList {
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
	sources := sourcesIn(s.PersistentVolumeSource)
	found := false
	for _, name := range volumeSources {
		if sources[name] == nil {
			continue
		}
		if found && name != "flexVolume" {
			errs = append(errs, secondSource(name, at))
			continue
		}
		found = true
		switch source := sources[name].(type) {
		case *corev1.HostPathVolumeSource:
			errs = append(errs, validateHostPath(source, at.Child(name))...)
		case *corev1.LocalVolumeSource:
			if source.Path == "" {
				errs = append(errs, field.Required(at.Child(name, "path"), ""))
			}
			errs = append(errs, validateNoBacksteps(source.Path, at.Child(name, "path"))...)
			if s.NodeAffinity == nil {
				errs = append(errs, field.Required(at.Child("nodeAffinity"), "Local volume requires node affinity"))
			}
		case *corev1.CSIPersistentVolumeSource:
			errs = append(errs, validatePersistentCSI(source, at.Child(name))...)
		default:
			errs = append(errs, validateLegacySource(source, sourcePath(name, at))...)
		}
	}
	if !found {
		errs = append(errs, field.Required(at, "must specify a volume type"))
	}
	return errs
}

func validatePersistentCSI(s *corev1.CSIPersistentVolumeSource, at *field.Path) field.ErrorList {
	errs := validateDriverName(s.Driver, at.Child("driver"))
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
