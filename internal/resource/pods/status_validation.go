package pods

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/validate"
)

// claimPrefix starts the names of devices from a claim in a container's status (KEP-4680).
const claimPrefix = "claim:"

// validateContainerStatuses checks users and devices in the statuses of containers.
func validateContainerStatuses(p *corev1.Pod, status *field.Path) field.ErrorList {
	var errs field.ErrorList
	ephemeral := make([]corev1.Container, len(p.Spec.EphemeralContainers))
	for i, c := range p.Spec.EphemeralContainers {
		ephemeral[i] = corev1.Container(c.EphemeralContainerCommon)
	}
	for _, list := range []struct {
		name       string
		statuses   []corev1.ContainerStatus
		containers []corev1.Container
	}{
		{"containerStatuses", p.Status.ContainerStatuses, p.Spec.Containers}, {"initContainerStatuses", p.Status.InitContainerStatuses, p.Spec.InitContainers},
		{"ephemeralContainerStatuses", p.Status.EphemeralContainerStatuses, ephemeral},
	} {
		places := containerPlaces(list.containers)
		for i := range list.statuses {
			s, at := &list.statuses[i], status.Child(list.name).Index(i)
			if s.User != nil && s.User.Linux != nil {
				errs = append(errs, validateContainerUser(s.User.Linux, at.Child("user", "linux"))...)
			}
			if j, ok := places[s.Name]; ok {
				errs = append(errs, validateDeviceHealth(s.AllocatedResourcesStatus, &list.containers[j].Resources, at.Child("allocatedResourcesStatus"))...)
			}
		}
	}
	return errs
}

func validateContainerUser(u *corev1.LinuxContainerUser, at *field.Path) field.ErrorList {
	errs := validate.Invalids(at.Child("uid"), u.UID, validation.IsValidUserID(u.UID))
	errs = append(errs, validate.Invalids(at.Child("gid"), u.GID, validation.IsValidGroupID(u.GID))...)
	for i, group := range u.SupplementalGroups {
		errs = append(errs, validate.Invalids(at.Child("supplementalGroups").Index(i), group, validation.IsValidGroupID(group))...)
	}
	return errs
}

// validateDeviceHealth checks that devices belong to requested resources and are reported once.
func validateDeviceHealth(list []corev1.ResourceStatus, asked *corev1.ResourceRequirements, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	claims := sets.Set[string]{}
	if len(list) > 0 {
		for _, c := range asked.Claims {
			claims.Insert(c.Name)
			if c.Request != "" {
				claims.Insert(c.Name + "/" + c.Request)
			}
		}
	}
	for i, r := range list {
		at := at.Index(i)
		if claim, ok := strings.CutPrefix(string(r.Name), claimPrefix); ok {
			if !claims.Has(claim) {
				errs = append(errs, field.Invalid(at.Child("name"), r.Name, "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty"))
			}
		} else if _, ok := asked.Requests[r.Name]; !ok {
			errs = append(errs, field.Invalid(at.Child("name"), r.Name, "must match one of the container's resource requests"))
		}
		seen := sets.Set[corev1.ResourceID]{}
		for j, device := range r.Resources {
			at := at.Child("resources").Index(j)
			if seen.Has(device.ResourceID) {
				errs = append(errs, field.Duplicate(at.Child("resourceID"), device.ResourceID))
			}
			seen.Insert(device.ResourceID)
			errs = append(errs, validate.NotSupportedUnless(device.Health, at.Child("health"), corev1.ResourceHealthStatusHealthy, corev1.ResourceHealthStatusUnhealthy, corev1.ResourceHealthStatusUnknown)...)
		}
	}
	return errs
}
