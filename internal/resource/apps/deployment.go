// Package apps holds the kinds of the group apps. What their replica counts and selectors have in
// common is in replicas.go.
package apps

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/pods"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func DeploymentStrategy() *strategy.Strategy {
	s := strategy.WithStatusAndGeneration(true)
	s.Default = strategy.On(defaultDeployment)
	s.PrepareUpdate = strategy.OnBoth(func(d, old *appsv1.Deployment) {
		d.Status = *old.Status.DeepCopy()
		// Annotations count as well, because the controller copies them to the replica sets.
		strategy.SetGeneration(d, old, !apiequality.Semantic.DeepEqual(d.Spec, old.Spec) || !apiequality.Semantic.DeepEqual(d.Annotations, old.Annotations))
	})
	s.PrepareStatus = strategy.OnBoth(func(d, old *appsv1.Deployment) {
		spec := old.DeepCopy()
		d.Spec, d.Labels = spec.Spec, spec.Labels
	})
	s.Resets = map[string][]string{"status": {"metadata.labels"}}
	s.ValidateCreate = strategy.Checks(validateDeployment)
	s.ValidateUpdate = strategy.ChecksBoth(validateDeploymentUpdate)
	s.ValidateStatus = strategy.ChecksBoth(validateDeploymentStatus)
	return strategy.Show(pods.WithTemplateRules(s), deploymentColumns, deploymentRow)
}

func defaultDeployment(d *appsv1.Deployment) {
	spec := &d.Spec
	strategy.SetPointer(&spec.Replicas, 1)
	strategy.SetDefault(&spec.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		strategy.SetPointer(&spec.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
		strategy.SetPointer(&spec.Strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		strategy.SetPointer(&spec.Strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
	}
	strategy.SetPointer(&spec.RevisionHistoryLimit, 10)
	strategy.SetPointer(&spec.ProgressDeadlineSeconds, 600)
	pods.DefaultTemplate(&spec.Template)
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

var deploymentColumns = columns.Define("Name", "Ready=Number of the pod with ready state", "Up-to-date@status.updatedReplicas", "Available@status.availableReplicas", "Age",
	"+Containers=Names of each container in the template.", "+Images=Images referenced by each container in the template.", "+Selector@spec.selector")

func deploymentRow(d *appsv1.Deployment, now metav1.Time) []any {
	return []any{
		d.Name, fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, validate.Deref(d.Spec.Replicas)), int64(d.Status.UpdatedReplicas), int64(d.Status.AvailableReplicas), columns.AgeOf(d, now),
		pods.ContainerNames(&d.Spec.Template.Spec), pods.ContainerImages(&d.Spec.Template.Spec), columns.SelectorText(d.Spec.Selector),
	}
}
