package apps

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/pods"
	"github.com/knarr-project/knarr/internal/resource/storage"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func StatefulSetStrategy() *strategy.Strategy {
	s := strategy.WithStatusAndGeneration(true)
	s.Default = strategy.On(defaultStatefulSet)
	s.Warnings = statefulSetWarnings
	s.DropFields(func(obj, old runtime.Object) {
		// MaxUnavailableStatefulSet is off.
		if r := obj.(*appsv1.StatefulSet).Spec.UpdateStrategy.RollingUpdate; r != nil {
			if old == nil || old.(*appsv1.StatefulSet).Spec.UpdateStrategy.RollingUpdate == nil || old.(*appsv1.StatefulSet).Spec.UpdateStrategy.RollingUpdate.MaxUnavailable == nil {
				r.MaxUnavailable = nil
			}
		}
	})
	s.ValidateCreate = strategy.Checks(validateStatefulSet)
	s.ValidateUpdate = strategy.ChecksBoth(validateStatefulSetUpdate)
	s.ValidateStatus = strategy.ChecksBoth(validateStatefulSetStatus)
	s.ValidateName = apivalidation.NameIsDNSLabel
	return strategy.Show(pods.WithTemplateRules(s), statefulSetColumns, statefulSetRow)
}

func defaultStatefulSet(s *appsv1.StatefulSet) {
	spec := &s.Spec
	strategy.SetDefault(&spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	if spec.UpdateStrategy.Type == "" {
		spec.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		strategy.SetPointer(&spec.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
	}
	if spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType && spec.UpdateStrategy.RollingUpdate != nil {
		strategy.SetPointer(&spec.UpdateStrategy.RollingUpdate.Partition, 0)
	}
	strategy.SetPointer(&spec.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	strategy.SetDefault(&spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	strategy.SetDefault(&spec.PersistentVolumeClaimRetentionPolicy.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	strategy.SetPointer(&spec.Replicas, 1)
	strategy.SetPointer(&spec.RevisionHistoryLimit, 10)
	pods.DefaultTemplate(&spec.Template)
	for i := range spec.VolumeClaimTemplates {
		c := &spec.VolumeClaimTemplates[i]
		// Replaces any other kind that the client wrote.
		c.APIVersion, c.Kind = "v1", "PersistentVolumeClaim"
		storage.DefaultClaim(c)
	}
}

func validateStatefulSet(s *appsv1.StatefulSet) field.ErrorList {
	errs := validateStatefulSetSpec(&s.Spec, validate.SpecPath)
	for i := range s.Spec.VolumeClaimTemplates {
		errs = append(errs, storage.ValidateClaimSpec(&s.Spec.VolumeClaimTemplates[i].Spec, validate.SpecPath.Child("volumeClaimTemplates").Index(i).Child("spec"))...)
	}
	if name := s.Spec.ServiceName; name != "" {
		errs = append(errs, validate.Invalids(validate.SpecPath.Child("serviceName"), name, validation.IsDNS1123Label(name))...)
	}
	return errs
}

func validateStatefulSetSpec(spec *appsv1.StatefulSetSpec, path *field.Path) field.ErrorList {
	errs := validateStatefulSetStrategies(spec, path)
	errs = append(errs, validateRetention(spec.PersistentVolumeClaimRetentionPolicy, path.Child("persistentVolumeClaimRetentionPolicy"))...)
	errs = append(errs, validate.OptionalNonNegative(spec.Replicas, path.Child("replicas"))...)
	errs = append(errs, validate.NonNegative(int64(spec.MinReadySeconds), path.Child("minReadySeconds"))...)
	if spec.Ordinals != nil {
		errs = append(errs, validate.NonNegative(int64(spec.Ordinals.Start), path.Child("ordinals", "start"))...)
	}
	errs = append(errs, requiredSelector(spec.Selector, path.Child("selector"), "empty selector is invalid for statefulset")...)
	template := path.Child("template")
	selector, err := metav1.LabelSelectorAsSelector(spec.Selector)
	if err != nil {
		errs = append(errs, field.Invalid(path.Child("selector"), spec.Selector, ""))
	} else {
		errs = append(errs, selectsTemplate(selector, &spec.Template, template)...)
		errs = append(errs, pods.ValidateTemplate(withClaims(&spec.Template, spec.VolumeClaimTemplates), template)...)
	}
	return append(errs, runsForever(&spec.Template, template, "StatefulSet")...)
}

// withClaims returns the template with the volumes of the claims in front. A claim replaces a
// volume of the same name.
func withClaims(t *corev1.PodTemplateSpec, claims []corev1.PersistentVolumeClaim) *corev1.PodTemplateSpec {
	t = t.DeepCopy()
	t.Spec.Hostname = "" // each pod gets its own hostname
	var volumes []corev1.Volume
	names := sets.Set[string]{} // a set, because there may be many claims
	for i := range claims {
		name := claims[i].Name
		if names.Has(name) {
			continue
		}
		names.Insert(name)
		source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
		volumes = append(volumes, corev1.Volume{Name: name, VolumeSource: source})
	}
	for _, v := range t.Spec.Volumes {
		if !names.Has(v.Name) {
			volumes = append(volumes, v)
		}
	}
	t.Spec.Volumes = volumes
	return t
}

func validateStatefulSetStrategies(spec *appsv1.StatefulSetSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch spec.PodManagementPolicy {
	case "":
		errs = append(errs, field.Required(path.Child("podManagementPolicy"), ""))
	case appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement:
	default:
		errs = append(errs, field.Invalid(path.Child("podManagementPolicy"), spec.PodManagementPolicy,
			fmt.Sprintf("must be '%s' or '%s'", appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement)))
	}
	strategy := path.Child("updateStrategy")
	rolling := spec.UpdateStrategy.RollingUpdate
	switch spec.UpdateStrategy.Type {
	case "":
		errs = append(errs, field.Required(strategy, ""))
	case appsv1.OnDeleteStatefulSetStrategyType:
		if rolling != nil {
			errs = append(errs, field.Invalid(strategy.Child("rollingUpdate"), rolling,
				fmt.Sprintf("only allowed for updateStrategy '%s'", appsv1.RollingUpdateStatefulSetStrategyType)))
		}
	case appsv1.RollingUpdateStatefulSetStrategyType:
		if rolling != nil {
			errs = append(errs, validateRollingStatefulSet(rolling, strategy.Child("rollingUpdate"))...)
		}
	default:
		errs = append(errs, field.Invalid(strategy, spec.UpdateStrategy,
			fmt.Sprintf("must be '%s' or '%s'", appsv1.RollingUpdateStatefulSetStrategyType, appsv1.OnDeleteStatefulSetStrategyType)))
	}
	return errs
}

func validateRollingStatefulSet(r *appsv1.RollingUpdateStatefulSetStrategy, path *field.Path) field.ErrorList {
	errs := validate.OptionalNonNegative(r.Partition, path.Child("partition"))
	if r.MaxUnavailable != nil {
		unavailable := path.Child("maxUnavailable")
		errs = append(errs, validate.PositiveIntOrPercent(*r.MaxUnavailable, unavailable)...)
		if amountOf(*r.MaxUnavailable) == 0 {
			errs = append(errs, field.Invalid(unavailable, *r.MaxUnavailable, "cannot be 0"))
		}
		errs = append(errs, validate.AtMostHundredPercent(*r.MaxUnavailable, unavailable)...)
	}
	return errs
}

func validateRetention(p *appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	const keep, remove = appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	return append(validate.NotSupportedUnless(p.WhenDeleted, path.Child("whenDeleted"), keep, remove),
		validate.NotSupportedUnless(p.WhenScaled, path.Child("whenScaled"), keep, remove)...)
}

func validateStatefulSetUpdate(s, old *appsv1.StatefulSet) field.ErrorList {
	errs := validateStatefulSetSpec(&s.Spec, validate.SpecPath)
	// Reset the mutable fields; any difference left is an illegal change.
	spec := s.DeepCopy().Spec
	spec.Replicas = old.Spec.Replicas
	spec.Template = old.Spec.Template
	spec.UpdateStrategy = old.Spec.UpdateStrategy
	spec.MinReadySeconds = old.Spec.MinReadySeconds
	spec.Ordinals = old.Spec.Ordinals
	spec.RevisionHistoryLimit = old.Spec.RevisionHistoryLimit
	spec.PersistentVolumeClaimRetentionPolicy = old.Spec.PersistentVolumeClaimRetentionPolicy
	if !validate.Equal(spec, old.Spec) {
		errs = append(errs, field.Forbidden(validate.SpecPath, "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "+
			"'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"))
	}
	return errs
}

func validateStatefulSetStatus(set, old *appsv1.StatefulSet) field.ErrorList {
	s, path := &set.Status, field.NewPath("status")
	errs := validate.NonNegativeCounts(path, validate.CountOf("replicas", s.Replicas), validate.CountOf("readyReplicas", s.ReadyReplicas), validate.CountOf("currentReplicas", s.CurrentReplicas),
		validate.CountOf("updatedReplicas", s.UpdatedReplicas), validate.CountOf("availableReplicas", s.AvailableReplicas))
	errs = append(errs, validate.NonNegative(s.ObservedGeneration, path.Child("observedGeneration"))...)
	errs = append(errs, validate.OptionalNonNegative(s.CollisionCount, path.Child("collisionCount"))...)
	errs = append(errs, atMost(path, s.Replicas, aboveReplicas, validate.CountOf("readyReplicas", s.ReadyReplicas), validate.CountOf("currentReplicas", s.CurrentReplicas),
		validate.CountOf("updatedReplicas", s.UpdatedReplicas), validate.CountOf("availableReplicas", s.AvailableReplicas))...)
	errs = append(errs, atMost(path, s.ReadyReplicas, "cannot be greater than status.readyReplicas", validate.CountOf("availableReplicas", s.AvailableReplicas))...)
	return append(errs, notDecremented(s.CollisionCount, old.Status.CollisionCount, path.Child("collisionCount"))...)
}

func statefulSetWarnings(obj, old runtime.Object) []string {
	s := obj.(*appsv1.StatefulSet)
	var out []string
	for i := range s.Spec.VolumeClaimTemplates {
		at := validate.SpecPath.Child("volumeClaimTemplates").Index(i)
		if old != nil {
			at = at.Child("Spec")
		}
		out = append(out, storage.WarnClaimSpec(&s.Spec.VolumeClaimTemplates[i].Spec, at)...)
	}
	if limit := s.Spec.RevisionHistoryLimit; limit != nil && *limit < 0 {
		out = append(out, "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended")
	}
	return out
}

var statefulSetColumns = columns.Define("Name", "Ready=Number of the pod with ready state", "Age", "+Containers=Names of each container in the template.", "+Images=Images referenced by each container in the template.")

func statefulSetRow(s *appsv1.StatefulSet, now metav1.Time) []any {
	return []any{
		s.Name, fmt.Sprintf("%d/%d", s.Status.ReadyReplicas, validate.Deref(s.Spec.Replicas)), columns.AgeOf(s, now),
		pods.ContainerNames(&s.Spec.Template.Spec), pods.ContainerImages(&s.Spec.Template.Spec),
	}
}
