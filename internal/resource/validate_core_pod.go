package resource

import (
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validatePodTemplate checks a pod template: of a workload, or a PodTemplate. The path is the template's. The rules of pods
// themselves are not here yet; only what every template must have.
func validatePodTemplate(t *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	errs := metavalidation.ValidateLabels(t.Labels, path.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(t.Annotations, path.Child("annotations"))...)
	if len(t.Spec.Containers) == 0 {
		errs = append(errs, field.Required(path.Child("spec", "containers"), ""))
	}
	return errs
}
