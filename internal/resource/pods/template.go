package pods

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

// DefaultTemplate sets the defaults of the pod template of a workload or PodTemplate.
func DefaultTemplate(t *corev1.PodTemplateSpec) { defaultPodSpec(&t.Spec) }

// ValidateTemplate checks a workload's template.
func ValidateTemplate(t *corev1.PodTemplateSpec, at *field.Path) field.ErrorList {
	errs := metavalidation.ValidateLabels(t.Labels, at.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(t.Annotations, at.Child("annotations"))...)
	errs = append(errs, validateAppArmorAnnotations(t.Annotations, &t.Spec, at.Child("annotations"))...)
	errs = append(errs, validatePodSpec(&t.Spec, "", at.Child("spec"))...)
	errs = append(errs, validateAppArmorAgrees(t.Annotations, &t.Spec, at.Child("spec"))...)
	if len(t.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(at.Child("spec", "ephemeralContainers"), "ephemeral containers not allowed in pod template"))
	}
	return errs
}

// WarnedAgain reports whether an update repeats the warnings about the template. Some kinds repeat
// them only when their template changes, others with every change of the spec.
func WarnedAgain(obj, old runtime.Object) bool {
	switch obj.(type) {
	case *corev1.PodTemplate, *appsv1.DaemonSet:
		after, _ := templateOf(obj)
		before, _ := templateOf(old)
		return !validate.Equal(after, before)
	}
	return obj.(metav1.Object).GetGeneration() != old.(metav1.Object).GetGeneration()
}

// templateOf returns a workload's pod template and its path.
func templateOf(obj runtime.Object) (*corev1.PodTemplateSpec, *field.Path) {
	at := validate.SpecPath.Child("template")
	switch o := obj.(type) {
	case *corev1.PodTemplate:
		return &o.Template, field.NewPath("template")
	case *corev1.ReplicationController:
		return o.Spec.Template, at
	case *appsv1.Deployment:
		return &o.Spec.Template, at
	case *appsv1.ReplicaSet:
		return &o.Spec.Template, at
	case *appsv1.DaemonSet:
		return &o.Spec.Template, at
	case *appsv1.StatefulSet:
		return &o.Spec.Template, at
	case *batchv1.Job:
		return &o.Spec.Template, at
	case *batchv1.CronJob:
		return &o.Spec.JobTemplate.Spec.Template, validate.SpecPath.Child("jobTemplate", "spec", "template")
	}
	return nil, nil
}

// ContainerNames and ContainerImages fill the wide columns of every kind with a pod template.
func ContainerNames(spec *corev1.PodSpec) string {
	var names []string
	for i := range spec.Containers {
		names = append(names, spec.Containers[i].Name)
	}
	return strings.Join(names, ",")
}

func ContainerImages(spec *corev1.PodSpec) string {
	var images []string
	for i := range spec.Containers {
		images = append(images, spec.Containers[i].Image)
	}
	return strings.Join(images, ",")
}

// WithTemplateRules clears fields of disabled features in a kind's pod spec or pod template, and
// adds the warnings about pods: first the warnings of first, then those of the template, then the
// kind's own.
func WithTemplateRules(s *strategy.Strategy, first ...func(obj, old runtime.Object) []string) *strategy.Strategy {
	onSpecs := func(drop func(spec, old *corev1.PodSpec)) func(obj, old runtime.Object) {
		return func(obj, old runtime.Object) {
			var before *corev1.PodSpec
			if old != nil {
				before = podSpecOf(old)
			}
			drop(podSpecOf(obj), before)
		}
	}
	s.DropFields(onSpecs(dropPodFields))
	s.DropUnless("GenericWorkload", onSpecs(dropSchedulingGroup))
	warned := s.Warnings
	s.Warnings = func(obj, old runtime.Object) []string {
		var out []string
		if old == nil {
			out = nameWarnings(obj)
		}
		for _, warnings := range first {
			out = append(out, warnings(obj, old)...)
		}
		out = append(out, podWarnings(obj, old)...)
		if warned != nil {
			out = append(out, warned(obj, old)...)
		}
		return out
	}
	return keepsClaimMetadata(keepsPodAddresses(s))
}

// nameWarnings warns of names that make bad hostnames: the names of these kinds become pod names,
// and pod names become hostnames.
func nameWarnings(obj runtime.Object) []string {
	where := "in Pod names and hostnames"
	switch obj.(type) {
	case *corev1.Pod:
		where = "in the Pod's hostname"
	case *corev1.ReplicationController, *appsv1.ReplicaSet, *appsv1.Deployment, *batchv1.CronJob, *batchv1.Job:
	default:
		return nil
	}
	name := obj.(metav1.Object).GetName()
	if wrong := validation.IsDNS1123Label(name); name != "" && len(wrong) > 0 {
		return []string{fmt.Sprintf("metadata.name: this is used %s, which can result in surprising behavior; a DNS label is recommended: %v", where, wrong)}
	}
	return nil
}

func podSpecOf(obj runtime.Object) *corev1.PodSpec {
	switch o := obj.(type) {
	case *corev1.Pod:
		return &o.Spec
	case *corev1.PodTemplate:
		return &o.Template.Spec
	case *corev1.ReplicationController:
		if o.Spec.Template == nil {
			return &corev1.PodSpec{}
		}
		return &o.Spec.Template.Spec
	case *appsv1.Deployment:
		return &o.Spec.Template.Spec
	case *appsv1.ReplicaSet:
		return &o.Spec.Template.Spec
	case *appsv1.DaemonSet:
		return &o.Spec.Template.Spec
	case *appsv1.StatefulSet:
		return &o.Spec.Template.Spec
	case *batchv1.Job:
		return &o.Spec.Template.Spec
	case *batchv1.CronJob:
		return &o.Spec.JobTemplate.Spec.Template.Spec
	}
	return &corev1.PodSpec{}
}

// MakesPods reports whether the object is a pod or has a pod template.
func MakesPods(obj runtime.Object) bool {
	_, at := templateOf(obj)
	_, isPod := obj.(*corev1.Pod)
	return isPod || at != nil
}

// Privileged returns an error for each privileged container of a pod or pod template. It serves
// kube-apiserver's --allow-privileged=false.
func Privileged(obj runtime.Object) (errs field.ErrorList) {
	at := validate.SpecPath
	if _, template := templateOf(obj); template != nil {
		at = template.Child("spec")
	}
	check := func(list string, i int, s *corev1.SecurityContext) {
		if s != nil && s.Privileged != nil && *s.Privileged {
			errs = append(errs, field.Forbidden(at.Child(list).Index(i).Child("securityContext", "privileged"), "disallowed by cluster policy"))
		}
	}
	spec := podSpecOf(obj)
	for i := range spec.Containers {
		check("containers", i, spec.Containers[i].SecurityContext)
	}
	for i := range spec.InitContainers {
		check("initContainers", i, spec.InitContainers[i].SecurityContext)
	}
	for i := range spec.EphemeralContainers {
		check("ephemeralContainers", i, spec.EphemeralContainers[i].SecurityContext)
	}
	return errs
}
