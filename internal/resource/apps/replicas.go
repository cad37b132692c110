package apps

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/pods"
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
	errs = append(errs, pods.ValidateTemplate(t, path)...)
	return append(errs, runsForever(t, path, "ReplicaSet")...)
}

// amountOf returns a number, or a percentage's number.
func amountOf(v intstr.IntOrString) int {
	if percent, ok := validate.PercentOf(v); ok {
		return percent
	}
	return v.IntValue()
}

const (
	aboveReplicas = "cannot be greater than status.replicas"
	aboveReady    = "cannot be greater than readyReplicas"
)
