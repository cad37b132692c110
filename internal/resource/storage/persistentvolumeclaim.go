package storage

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func ClaimStrategy() *strategy.Strategy {
	s := strategy.WithStatus(true)
	s.Default = strategy.On(DefaultClaim)
	s.ValidateCreate = strategy.Checks(validateClaim)
	s.ValidateUpdate = strategy.ChecksBoth(validateClaimUpdate)
	s.ValidateStatus = strategy.ChecksBoth(validateClaimStatus)
	s.Warnings = claimWarnings
	s.PrepareCreate = strategy.On(func(c *corev1.PersistentVolumeClaim) {
		c.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
		dropDataSources(&c.Spec)
		pairDataSources(&c.Spec)
	})
	s.PrepareUpdate = strategy.OnBoth(func(c, old *corev1.PersistentVolumeClaim) {
		c.Status = *old.Status.DeepCopy()
		// Otherwise validation reports an illegal change.
		if old.Spec.DataSource == nil && old.Spec.DataSourceRef == nil {
			dropDataSources(&c.Spec)
		}
		pairDataSources(&c.Spec)
	})
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), claimColumns, claimRow)
}

// dropDataSources clears data sources that are not allowed. dataSource may name claims and
// snapshots only. A reference to another namespace needs a feature that is off (KEP-1495,
// KEP-3294).
func dropDataSources(s *corev1.PersistentVolumeClaimSpec) {
	if d := s.DataSource; d != nil && (validate.Deref(d.APIGroup) != "" || d.Kind != "PersistentVolumeClaim") && (validate.Deref(d.APIGroup) != "snapshot.storage.k8s.io" || d.Kind != "VolumeSnapshot") {
		s.DataSource = nil
	}
	if r := s.DataSourceRef; r != nil && validate.Deref(r.Namespace) != "" {
		s.DataSourceRef = nil
	}
}

// pairDataSources gives dataSource and dataSourceRef the same value. A reference to another
// namespace stays in dataSourceRef alone, because dataSource cannot express it.
func pairDataSources(s *corev1.PersistentVolumeClaimSpec) {
	switch {
	case s.DataSource != nil && s.DataSourceRef == nil:
		s.DataSourceRef = &corev1.TypedObjectReference{APIGroup: s.DataSource.APIGroup, Kind: s.DataSource.Kind, Name: s.DataSource.Name}
	case s.DataSource == nil && s.DataSourceRef != nil && (s.DataSourceRef.Namespace == nil || *s.DataSourceRef.Namespace == ""):
		s.DataSource = &corev1.TypedLocalObjectReference{APIGroup: s.DataSourceRef.APIGroup, Kind: s.DataSourceRef.Kind, Name: s.DataSourceRef.Name}
	}
}

func DefaultClaim(c *corev1.PersistentVolumeClaim) {
	strategy.SetDefault(&c.Status.Phase, corev1.ClaimPending)
	DefaultClaimSpec(&c.Spec)
	strategy.RoundResources(c.Status.Capacity)
	strategy.RoundResources(c.Status.AllocatedResources)
}

func DefaultClaimSpec(s *corev1.PersistentVolumeClaimSpec) {
	strategy.SetPointer(&s.VolumeMode, corev1.PersistentVolumeFilesystem)
	strategy.RoundResources(s.Resources.Limits)
	strategy.RoundResources(s.Resources.Requests)
}

func warnStorageClassAnnotation(obj metav1.Object) []string {
	if _, ok := obj.GetAnnotations()[corev1.BetaStorageClassAnnotation]; !ok {
		return nil
	}
	return []string{validate.AnnotationPath(corev1.BetaStorageClassAnnotation) + `: deprecated since v1.8; use "storageClassName" attribute instead`}
}

func claimWarnings(obj, _ runtime.Object) []string {
	c := obj.(*corev1.PersistentVolumeClaim)
	return append(warnStorageClassAnnotation(c), WarnClaimSpec(&c.Spec, validate.SpecPath)...)
}

func WarnClaimSpec(s *corev1.PersistentVolumeClaimSpec, at *field.Path) []string {
	at = at.Child("resources")
	return append(validate.WarnFractions(corev1.ResourceStorage, s.Resources.Requests, at.Child("requests")), validate.WarnFractions(corev1.ResourceStorage, s.Resources.Limits, at.Child("limits"))...)
}

var claimColumns = columns.Define("Name", "Status@status.phase", "Volume@spec.volumeName", "Capacity@status.capacity", "Access Modes@status.accessModes",
	"StorageClass=StorageClass of the pvc", "VolumeAttributesClass=VolumeAttributesClass of the pvc", "Age", "+VolumeMode@spec.volumeMode")

func claimRow(c *corev1.PersistentVolumeClaim, now metav1.Time) []any {
	phase := string(c.Status.Phase)
	if c.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	size, modes := "", ""
	if c.Spec.VolumeName != "" {
		q := c.Status.Capacity[corev1.ResourceStorage]
		size, modes = q.String(), accessModes(c.Status.AccessModes)
	}
	class := c.Annotations[corev1.BetaStorageClassAnnotation]
	if class == "" {
		class = validate.Deref(c.Spec.StorageClassName)
	}
	return []any{
		c.Name, phase, c.Spec.VolumeName, size, modes, class, orUnset(c.Spec.VolumeAttributesClassName), columns.AgeOf(c, now), orUnset((*string)(c.Spec.VolumeMode)),
	}
}

var accessModeNames = map[corev1.PersistentVolumeAccessMode]string{
	corev1.ReadWriteOnce: "RWO", corev1.ReadOnlyMany: "ROX", corev1.ReadWriteMany: "RWX", corev1.ReadWriteOncePod: "RWOP",
}

// accessModes returns the abbreviations in a fixed order, each mode once.
func accessModes(modes []corev1.PersistentVolumeAccessMode) string {
	var names []string
	for _, mode := range []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOncePod} {
		for _, m := range modes {
			if m == mode {
				names = append(names, accessModeNames[m])
				break
			}
		}
	}
	return strings.Join(names, ",")
}
