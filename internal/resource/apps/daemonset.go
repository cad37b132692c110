package apps

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/pods"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func DaemonSetStrategy() *strategy.Strategy {
	s := strategy.WithStatusAndGeneration(true)
	s.Default = strategy.On(defaultDaemonSet)
	s.PrepareCreate = strategy.On(func(d *appsv1.DaemonSet) {
		d.Status = appsv1.DaemonSetStatus{}
		d.Generation = 1
		setTemplateGeneration(d, 1)
	})
	s.PrepareUpdate = strategy.OnBoth(func(d, old *appsv1.DaemonSet) {
		d.Status = *old.Status.DeepCopy()
		generation, _ := strconv.ParseInt(old.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
		if !apiequality.Semantic.DeepEqual(d.Spec.Template, old.Spec.Template) {
			generation++
		}
		setTemplateGeneration(d, generation)
		strategy.SetGeneration(d, old, !apiequality.Semantic.DeepEqual(d.Spec, old.Spec))
	})
	// The template generation is an annotation but belongs to the spec: a status update keeps it.
	s.PrepareStatus = strategy.OnBoth(func(d, old *appsv1.DaemonSet) {
		d.Spec = *old.Spec.DeepCopy()
		generation, _ := strconv.ParseInt(old.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
		setTemplateGeneration(d, generation)
	})
	s.ValidateCreate = strategy.Checks(validateDaemonSet)
	s.ValidateUpdate = strategy.ChecksBoth(validateDaemonSetUpdate)
	s.ValidateStatus = strategy.ChecksBoth(validateDaemonSetStatus)
	return strategy.Show(pods.WithTemplateRules(s), daemonSetColumns, daemonSetRow)
}

func setTemplateGeneration(d *appsv1.DaemonSet, generation int64) {
	text := strconv.FormatInt(generation, 10)
	if d.Annotations[appsv1.DeprecatedTemplateGeneration] == text {
		return
	}
	if d.Annotations == nil {
		d.Annotations = map[string]string{}
	}
	d.Annotations[appsv1.DeprecatedTemplateGeneration] = text
}

func defaultDaemonSet(d *appsv1.DaemonSet) {
	spec := &d.Spec
	strategy.SetDefault(&spec.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	if spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		strategy.SetPointer(&spec.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		strategy.SetPointer(&spec.UpdateStrategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		strategy.SetPointer(&spec.UpdateStrategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
	strategy.SetPointer(&spec.RevisionHistoryLimit, 10)
	pods.DefaultTemplate(&spec.Template)
	if d.Annotations[appsv1.DeprecatedTemplateGeneration] == "" {
		setTemplateGeneration(d, 0) // every writer of the object defaults this field as well
	}
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
	errs = append(errs, pods.ValidateTemplate(&spec.Template, template)...)
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

var daemonSetColumns = columns.Define("Name", "Desired:integer@status.desiredNumberScheduled", "Current:integer@status.currentNumberScheduled", "Ready:integer@status.numberReady",
	"Up-to-date:integer@status.updatedNumberScheduled", "Available:integer@status.numberAvailable", "Node Selector@spec.template.spec.nodeSelector", "Age",
	"+Containers=Names of each container in the template.", "+Images=Images referenced by each container in the template.", "+Selector@spec.selector")

func daemonSetRow(d *appsv1.DaemonSet, now metav1.Time) []any {
	s := &d.Status
	return []any{
		d.Name, int64(s.DesiredNumberScheduled), int64(s.CurrentNumberScheduled), int64(s.NumberReady), int64(s.UpdatedNumberScheduled), int64(s.NumberAvailable),
		labels.FormatLabels(d.Spec.Template.Spec.NodeSelector), columns.AgeOf(d, now),
		pods.ContainerNames(&d.Spec.Template.Spec), pods.ContainerImages(&d.Spec.Template.Spec), columns.SelectorText(d.Spec.Selector),
	}
}
