package core

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/pods"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func ReplicationControllerStrategy() *strategy.Strategy {
	s := strategy.WithStatusAndGeneration(true)
	s.Default = strategy.On(defaultReplicationController)
	s.ValidateName = strategy.DeclaredSubdomain
	s.ValidateCreate = strategy.Checks(validateReplicationController)
	s.ValidateUpdate = strategy.ChecksBoth(validateReplicationControllerUpdate)
	s.ValidateStatus = strategy.ChecksBoth(validateReplicationControllerStatus)
	s.DefaultPropagation = metav1.DeletePropagationOrphan
	s.FieldNames = []string{"status.replicas"}
	s.FieldAliases = map[string]string{"name": "metadata.name"}
	s.Fields = func(obj runtime.Object) fields.Set {
		return fields.Set{"status.replicas": strconv.Itoa(int(obj.(*corev1.ReplicationController).Status.Replicas))}
	}
	return strategy.Show(pods.WithTemplateRules(s), replicationControllerColumns, replicationControllerRow)
}

func defaultReplicationController(rc *corev1.ReplicationController) {
	if t := rc.Spec.Template; t != nil {
		if len(rc.Spec.Selector) == 0 {
			rc.Spec.Selector = t.Labels
		}
		if len(rc.Labels) == 0 {
			rc.Labels = t.Labels
		}
		pods.DefaultTemplate(t)
	}
	strategy.SetPointer(&rc.Spec.Replicas, 1)
}

func validateReplicationController(r *corev1.ReplicationController) field.ErrorList {
	errs := validateNonNegativeReplicas(r.Spec.MinReadySeconds, r.Spec.Replicas)
	if len(r.Spec.Selector) == 0 {
		errs = append(errs, field.Required(validate.SpecPath.Child("selector"), ""))
	}
	at := validate.SpecPath.Child("template")
	t := r.Spec.Template
	if t == nil {
		return append(errs, field.Required(at, ""))
	}
	if selector := labels.SelectorFromSet(r.Spec.Selector); !selector.Empty() && !selector.Matches(labels.Set(t.Labels)) {
		errs = append(errs, field.Invalid(at.Child("metadata", "labels"), t.Labels, validate.Mismatch))
	}
	errs = append(errs, pods.ValidateTemplate(t, at)...)
	if t.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(at.Child("spec", "restartPolicy"), t.Spec.RestartPolicy, []corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if t.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(at.Child("spec", "activeDeadlineSeconds"), "activeDeadlineSeconds in ReplicationController is not Supported"))
	}
	return errs
}

func validateNonNegativeReplicas(minReady int32, replicas *int32) field.ErrorList {
	errs := validate.NonNegative(int64(minReady), validate.SpecPath.Child("minReadySeconds"))
	if replicas == nil {
		return append(errs, field.Required(validate.SpecPath.Child("replicas"), ""))
	}
	return append(errs, validate.NonNegative(int64(*replicas), validate.SpecPath.Child("replicas"))...)
}

func validateReplicationControllerUpdate(r, _ *corev1.ReplicationController) field.ErrorList {
	return validateReplicationController(r)
}

func validateReplicationControllerStatus(r, _ *corev1.ReplicationController) field.ErrorList {
	s, at := r.Status, field.NewPath("status")
	var errs field.ErrorList
	for _, c := range []struct {
		name  string
		value int64
	}{
		{"replicas", int64(s.Replicas)}, {"fullyLabeledReplicas", int64(s.FullyLabeledReplicas)}, {"readyReplicas", int64(s.ReadyReplicas)},
		{"availableReplicas", int64(s.AvailableReplicas)}, {"observedGeneration", s.ObservedGeneration},
	} {
		errs = append(errs, validate.NonNegative(c.value, at.Child(c.name))...)
	}
	for _, c := range []struct {
		name  string
		value int32
	}{{"fullyLabeledReplicas", s.FullyLabeledReplicas}, {"readyReplicas", s.ReadyReplicas}, {"availableReplicas", s.AvailableReplicas}} {
		if c.value > s.Replicas {
			errs = append(errs, field.Invalid(at.Child(c.name), c.value, "cannot be greater than status.replicas"))
		}
	}
	if s.AvailableReplicas > s.ReadyReplicas {
		errs = append(errs, field.Invalid(at.Child("availableReplicas"), s.AvailableReplicas, "cannot be greater than readyReplicas"))
	}
	return errs
}

var replicationControllerColumns = columns.Define("Name", "Desired:integer@spec.replicas", "Current:integer@status.replicas", "Ready:integer@status.readyReplicas", "Age",
	"+Containers=Names of each container in the template.", "+Images=Images referenced by each container in the template.", "+Selector@spec.selector")

func replicationControllerRow(r *corev1.ReplicationController, now metav1.Time) []any {
	names, images := "", ""
	if t := r.Spec.Template; t != nil {
		names, images = pods.ContainerNames(&t.Spec), pods.ContainerImages(&t.Spec)
	}
	return []any{
		r.Name, int64(validate.Deref(r.Spec.Replicas)), int64(r.Status.Replicas), int64(r.Status.ReadyReplicas), columns.AgeOf(r, now), names, images, labels.FormatLabels(r.Spec.Selector),
	}
}
