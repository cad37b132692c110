package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/pods"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func ReplicaSetStrategy() *strategy.Strategy {
	s := strategy.WithStatusAndGeneration(true)
	s.Default = strategy.On(defaultReplicaSet)
	s.ValidateCreate = strategy.Checks(validateReplicaSet)
	s.ValidateUpdate = strategy.ChecksBoth(validateReplicaSetUpdate)
	s.ValidateStatus = strategy.ChecksBoth(validateReplicaSetStatus)
	return strategy.Show(pods.WithTemplateRules(s), replicaSetColumns, replicaSetRow)
}

func defaultReplicaSet(r *appsv1.ReplicaSet) {
	strategy.SetPointer(&r.Spec.Replicas, 1)
	pods.DefaultTemplate(&r.Spec.Template)
}

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

var replicaSetColumns = columns.Define("Name", "Desired:integer@spec.replicas", "Current:integer@status.replicas", "Ready:integer@status.readyReplicas", "Age",
	"+Containers=Names of each container in the template.", "+Images=Images referenced by each container in the template.", "+Selector@spec.selector")

func replicaSetRow(r *appsv1.ReplicaSet, now metav1.Time) []any {
	return []any{
		r.Name, int64(validate.Deref(r.Spec.Replicas)), int64(r.Status.Replicas), int64(r.Status.ReadyReplicas), columns.AgeOf(r, now),
		pods.ContainerNames(&r.Spec.Template.Spec), pods.ContainerImages(&r.Spec.Template.Spec), columns.SelectorText(r.Spec.Selector),
	}
}
