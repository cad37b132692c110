package resource

import (
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/validate"
)

// atMost refuses counts above a limit.
func atMost(path *field.Path, limit int32, message string, counts ...validate.Count) field.ErrorList {
	var errs field.ErrorList
	for _, c := range counts {
		if c.Value > limit {
			errs = append(errs, field.Invalid(path.Child(c.Name), c.Value, message))
		}
	}
	return errs
}

// notDecremented refuses to lower a counter.
func notDecremented(value, old *int32, path *field.Path) field.ErrorList {
	if old == nil {
		return nil
	}
	if validate.Deref(value) < *old || value == nil {
		return field.ErrorList{field.Invalid(path, validate.Deref(value), "cannot be decremented")}
	}
	return nil
}

// requiredSelector checks a workload's selector: present, valid and not empty.
func requiredSelector(s *metav1.LabelSelector, path *field.Path, empty string) field.ErrorList {
	if s == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	errs := validate.Selector(s, path)
	if len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		errs = append(errs, field.Invalid(path, s, empty))
	}
	return errs
}

// selectsTemplate checks that the selector matches the template's labels.
func selectsTemplate(selector labels.Selector, t *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	if !selector.Empty() && !selector.Matches(labels.Set(t.Labels)) {
		return field.ErrorList{field.Invalid(path.Child("metadata", "labels"), t.Labels, validate.Mismatch)}
	}
	return nil
}

// runsForever checks the pod settings of a workload that replaces ended pods.
func runsForever(t *corev1.PodTemplateSpec, path *field.Path, workload string) field.ErrorList {
	errs := validate.NotSupportedUnless(t.Spec.RestartPolicy, path.Child("spec", "restartPolicy"), corev1.RestartPolicyAlways)
	if t.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(path.Child("spec", "activeDeadlineSeconds"), "activeDeadlineSeconds in "+workload+" is not Supported"))
	}
	return errs
}

// replicatedTemplate checks the template of deployments and replica sets.
func replicatedTemplate(s *metav1.LabelSelector, t *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return field.ErrorList{field.Invalid(path.Child("selector"), s, "invalid label selector")}
	}
	path = path.Child("template")
	errs := selectsTemplate(selector, t, path)
	errs = append(errs, validatePodTemplate(t, path)...)
	return append(errs, runsForever(t, path, "ReplicaSet")...)
}

func validateDeployment(d *appsv1.Deployment) field.ErrorList {
	spec, path := &d.Spec, validate.SpecPath
	errs := validate.OptionalNonNegative(spec.Replicas, path.Child("replicas"))
	errs = append(errs, requiredSelector(spec.Selector, path.Child("selector"), "empty selector is invalid for deployment")...)
	errs = append(errs, replicatedTemplate(spec.Selector, &spec.Template, path)...)
	errs = append(errs, validateDeploymentStrategy(&spec.Strategy, path.Child("strategy"))...)
	errs = append(errs, validate.NonNegative(int64(spec.MinReadySeconds), path.Child("minReadySeconds"))...)
	errs = append(errs, validate.OptionalNonNegative(spec.RevisionHistoryLimit, path.Child("revisionHistoryLimit"))...)
	if deadline := spec.ProgressDeadlineSeconds; deadline != nil {
		errs = append(errs, validate.NonNegative(int64(*deadline), path.Child("progressDeadlineSeconds"))...)
		if *deadline <= spec.MinReadySeconds {
			errs = append(errs, field.Invalid(path.Child("progressDeadlineSeconds"), deadline, "must be greater than minReadySeconds"))
		}
	}
	return errs
}

func validateDeploymentUpdate(d, old *appsv1.Deployment) field.ErrorList {
	return append(validateDeployment(d), validate.Immutable(d.Spec.Selector, old.Spec.Selector, validate.SpecPath.Child("selector"))...)
}

func validateDeploymentStrategy(s *appsv1.DeploymentStrategy, path *field.Path) field.ErrorList {
	switch s.Type {
	case appsv1.RecreateDeploymentStrategyType:
		if s.RollingUpdate != nil {
			return field.ErrorList{field.Forbidden(path.Child("rollingUpdate"), "may not be specified when strategy `type` is '"+string(s.Type)+"'")}
		}
	case appsv1.RollingUpdateDeploymentStrategyType:
		if s.RollingUpdate == nil {
			return field.ErrorList{field.Required(path.Child("rollingUpdate"), "this should be defaulted and never be nil")}
		}
		return validateRollingDeployment(s.RollingUpdate, path.Child("rollingUpdate"))
	default:
		return field.ErrorList{field.NotSupported(path, s, []appsv1.DeploymentStrategyType{appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType})}
	}
	return nil
}

func validateRollingDeployment(r *appsv1.RollingUpdateDeployment, path *field.Path) field.ErrorList {
	unavailable, surge := validate.Deref(r.MaxUnavailable), validate.Deref(r.MaxSurge)
	errs := validate.PositiveIntOrPercent(unavailable, path.Child("maxUnavailable"))
	errs = append(errs, validate.PositiveIntOrPercent(surge, path.Child("maxSurge"))...)
	if amountOf(unavailable) == 0 && amountOf(surge) == 0 {
		errs = append(errs, field.Invalid(path.Child("maxUnavailable"), r.MaxUnavailable, "may not be 0 when `maxSurge` is 0"))
	}
	return append(errs, validate.AtMostHundredPercent(unavailable, path.Child("maxUnavailable"))...)
}

// amountOf returns a number, or a percentage's number.
func amountOf(v intstr.IntOrString) int {
	if percent, ok := validate.PercentOf(v); ok {
		return percent
	}
	return v.IntValue()
}

func validateDeploymentStatus(d, old *appsv1.Deployment) field.ErrorList {
	s, path := &d.Status, field.NewPath("status")
	errs := validate.NonNegative(s.ObservedGeneration, path.Child("observedGeneration"))
	errs = append(errs, validate.NonNegativeCounts(path, validate.CountOf("replicas", s.Replicas), validate.CountOf("updatedReplicas", s.UpdatedReplicas),
		validate.CountOf("readyReplicas", s.ReadyReplicas), validate.CountOf("availableReplicas", s.AvailableReplicas), validate.CountOf("unavailableReplicas", s.UnavailableReplicas))...)
	errs = append(errs, validate.OptionalNonNegative(s.TerminatingReplicas, path.Child("terminatingReplicas"))...)
	errs = append(errs, validate.OptionalNonNegative(s.CollisionCount, path.Child("collisionCount"))...)
	errs = append(errs, atMost(path, s.Replicas, aboveReplicas,
		validate.CountOf("updatedReplicas", s.UpdatedReplicas), validate.CountOf("readyReplicas", s.ReadyReplicas), validate.CountOf("availableReplicas", s.AvailableReplicas))...)
	errs = append(errs, atMost(path, s.ReadyReplicas, aboveReady, validate.CountOf("availableReplicas", s.AvailableReplicas))...)
	return append(errs, notDecremented(s.CollisionCount, old.Status.CollisionCount, path.Child("collisionCount"))...)
}

const (
	aboveReplicas = "cannot be greater than status.replicas"
	aboveReady    = "cannot be greater than readyReplicas"
)

func validateReplicaSet(r *appsv1.ReplicaSet) field.ErrorList {
	spec, path := &r.Spec, validate.SpecPath
	errs := validate.OptionalNonNegative(spec.Replicas, path.Child("replicas"))
	errs = append(errs, validate.NonNegative(int64(spec.MinReadySeconds), path.Child("minReadySeconds"))...)
	errs = append(errs, requiredSelector(spec.Selector, path.Child("selector"), "empty selector is invalid for deployment")...)
	return append(errs, replicatedTemplate(spec.Selector, &spec.Template, path)...)
}

func validateReplicaSetUpdate(r, old *appsv1.ReplicaSet) field.ErrorList {
	return append(validateReplicaSet(r), validate.Immutable(r.Spec.Selector, old.Spec.Selector, validate.SpecPath.Child("selector"))...)
}

func validateReplicaSetStatus(r, _ *appsv1.ReplicaSet) field.ErrorList {
	s, path := &r.Status, field.NewPath("status")
	errs := validate.NonNegativeCounts(path, validate.CountOf("replicas", s.Replicas), validate.CountOf("fullyLabeledReplicas", s.FullyLabeledReplicas),
		validate.CountOf("readyReplicas", s.ReadyReplicas), validate.CountOf("availableReplicas", s.AvailableReplicas))
	errs = append(errs, validate.OptionalNonNegative(s.TerminatingReplicas, path.Child("terminatingReplicas"))...)
	errs = append(errs, validate.NonNegative(s.ObservedGeneration, path.Child("observedGeneration"))...)
	errs = append(errs, atMost(path, s.Replicas, aboveReplicas,
		validate.CountOf("fullyLabeledReplicas", s.FullyLabeledReplicas), validate.CountOf("readyReplicas", s.ReadyReplicas), validate.CountOf("availableReplicas", s.AvailableReplicas))...)
	return append(errs, atMost(path, s.ReadyReplicas, aboveReady, validate.CountOf("availableReplicas", s.AvailableReplicas))...)
}

func validateDaemonSet(d *appsv1.DaemonSet) field.ErrorList {
	spec, path := &d.Spec, validate.SpecPath
	template := path.Child("template")
	errs := validate.Selector(spec.Selector, path.Child("selector"))
	if selector, err := metav1.LabelSelectorAsSelector(spec.Selector); err == nil && !selector.Matches(labels.Set(spec.Template.Labels)) {
		errs = append(errs, field.Invalid(template.Child("metadata", "labels"), spec.Template.Labels, validate.Mismatch))
	}
	if s := spec.Selector; s != nil && len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		errs = append(errs, field.Invalid(path.Child("selector"), s, "empty selector is invalid for daemonset"))
	}
	errs = append(errs, validatePodTemplate(&spec.Template, template)...)
	errs = append(errs, runsForever(&spec.Template, template, "DaemonSet")...)
	errs = append(errs, validate.NonNegative(int64(spec.MinReadySeconds), path.Child("minReadySeconds"))...)
	errs = append(errs, validateDaemonSetStrategy(&spec.UpdateStrategy, path.Child("updateStrategy"))...)
	return append(errs, validate.OptionalNonNegative(spec.RevisionHistoryLimit, path.Child("revisionHistoryLimit"))...)
}

func validateDaemonSetUpdate(d, old *appsv1.DaemonSet) field.ErrorList {
	return append(validateDaemonSet(d), validate.Immutable(d.Spec.Selector, old.Spec.Selector, validate.SpecPath.Child("selector"))...)
}

func validateDaemonSetStrategy(s *appsv1.DaemonSetUpdateStrategy, path *field.Path) field.ErrorList {
	switch s.Type {
	case appsv1.OnDeleteDaemonSetStrategyType:
		return nil
	case appsv1.RollingUpdateDaemonSetStrategyType:
		if s.RollingUpdate == nil {
			return field.ErrorList{field.Required(path.Child("rollingUpdate"), "")}
		}
		return validateRollingDaemonSet(s.RollingUpdate, path.Child("rollingUpdate"))
	}
	return field.ErrorList{field.NotSupported(path, s, []appsv1.DaemonSetUpdateStrategyType{appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType})}
}

func validateRollingDaemonSet(r *appsv1.RollingUpdateDaemonSet, path *field.Path) field.ErrorList {
	unavailable, surge := validate.Deref(r.MaxUnavailable), validate.Deref(r.MaxSurge)
	errs := validate.PositiveIntOrPercent(unavailable, path.Child("maxUnavailable"))
	errs = append(errs, validate.PositiveIntOrPercent(surge, path.Child("maxSurge"))...)
	errs = append(errs, validate.AtMostHundredPercent(unavailable, path.Child("maxUnavailable"))...)
	errs = append(errs, validate.AtMostHundredPercent(surge, path.Child("maxSurge"))...)
	switch hasUnavailable, hasSurge := amountOf(unavailable) != 0, amountOf(surge) != 0; {
	case hasUnavailable && hasSurge:
		errs = append(errs, field.Invalid(path.Child("maxSurge"), r.MaxSurge, "may not be set when maxUnavailable is non-zero"))
	case !hasUnavailable && !hasSurge:
		errs = append(errs, field.Required(path.Child("maxUnavailable"), "cannot be 0 when maxSurge is 0"))
	}
	return errs
}

func validateDaemonSetStatus(d, old *appsv1.DaemonSet) field.ErrorList {
	s, path := &d.Status, field.NewPath("status")
	errs := validate.NonNegativeCounts(path, validate.CountOf("currentNumberScheduled", s.CurrentNumberScheduled), validate.CountOf("numberMisscheduled", s.NumberMisscheduled),
		validate.CountOf("desiredNumberScheduled", s.DesiredNumberScheduled), validate.CountOf("numberReady", s.NumberReady))
	errs = append(errs, validate.NonNegative(s.ObservedGeneration, path.Child("observedGeneration"))...)
	errs = append(errs, validate.NonNegativeCounts(path, validate.CountOf("updatedNumberScheduled", s.UpdatedNumberScheduled), validate.CountOf("numberAvailable", s.NumberAvailable),
		validate.CountOf("numberUnavailable", s.NumberUnavailable))...)
	errs = append(errs, validate.OptionalNonNegative(s.CollisionCount, path.Child("collisionCount"))...)
	return append(errs, notDecremented(s.CollisionCount, old.Status.CollisionCount, path.Child("collisionCount"))...)
}

func validateControllerRevision(r *appsv1.ControllerRevision) field.ErrorList {
	var errs field.ErrorList
	var object map[string]any
	switch {
	case r.Data.Raw == nil && r.Data.Object == nil:
		errs = append(errs, field.Required(field.NewPath("data"), "data is mandatory"))
	case r.Data.Raw != nil && json.Unmarshal(r.Data.Raw, &object) != nil:
		errs = append(errs, field.Required(field.NewPath("data"), "data must be a valid JSON object"))
	}
	return append(errs, validate.NonNegative(r.Revision, field.NewPath("revision"))...)
}

func validateControllerRevisionUpdate(r, old *appsv1.ControllerRevision) field.ErrorList {
	errs := validate.NonNegative(r.Revision, field.NewPath("revision"))
	return append(errs, validate.Immutable(r.Data, old.Data, field.NewPath("data"))...)
}

func validateStatefulSet(s *appsv1.StatefulSet) field.ErrorList {
	errs := validateStatefulSetSpec(&s.Spec, validate.SpecPath)
	for i := range s.Spec.VolumeClaimTemplates {
		errs = append(errs, validateClaimSpec(&s.Spec.VolumeClaimTemplates[i].Spec, validate.SpecPath.Child("volumeClaimTemplates").Index(i).Child("spec"))...)
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
		errs = append(errs, validatePodTemplate(withClaims(&spec.Template, spec.VolumeClaimTemplates), template)...)
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
