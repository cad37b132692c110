package pods

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/validate"
)

// validateExtendedClaim checks the claim for the pod's extended resources (KEP-5004), which the
// scheduler writes.
func validateExtendedClaim(p *corev1.Pod, at *field.Path) field.ErrorList {
	status := p.Status.ExtendedResourceClaimStatus
	if status == nil {
		return nil
	}
	var errs field.ErrorList
	mappings, name := at.Child("requestMappings"), at.Child("requestName")
	if len(status.RequestMappings) == 0 {
		errs = append(errs, field.Required(mappings, "at least one request mapping is required"))
	}
	for i, m := range status.RequestMappings {
		at := mappings.Index(i)
		container := containerOf(&p.Spec, m.ContainerName)
		if container == nil {
			errs = append(errs, field.Invalid(at.Child("containerName"), m.ContainerName, "must match the name of an entry in spec.initContainers.name or spec.containers.name"))
		} else if _, ok := container.Resources.Requests[corev1.ResourceName(m.ResourceName)]; !ok {
			errs = append(errs, field.Invalid(at.Child("resourceName"), m.ResourceName, "must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests"))
		}
		errs = append(errs, validate.Label(m.RequestName, name)...)
		if slices.Contains(status.RequestMappings[:i], m) {
			errs = append(errs, field.Duplicate(at.Child("containerName"), m.ContainerName),
				field.Duplicate(at.Child("resourceName"), m.ResourceName), field.Duplicate(at.Child("requestName"), m.RequestName))
		}
	}
	return append(errs, validate.RequiredSubdomain(status.ResourceClaimName, at.Child("resourceClaimName"))...)
}

func containerOf(spec *corev1.PodSpec, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}
