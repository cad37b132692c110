package resource

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/validate"
)

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
