package pods

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/knarr-project/knarr/internal/resource/validate"
)

func validateHugePages(name corev1.ResourceName, value resource.Quantity, at *field.Path) field.ErrorList {
	size, err := resource.ParseQuantity(strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix))
	if err != nil || size.Sign() <= 0 {
		return field.ErrorList{field.Invalid(at, name, "must be the name of a huge page size")}
	}
	if value.Value()%size.Value() != 0 {
		return field.ErrorList{field.Invalid(at, value.String(), fmt.Sprintf("%s is not positive integer multiple of %s", value.String(), size.String()))}
	}
	return nil
}

func (p podParts) validateContainerResources(r *corev1.ResourceRequirements, at *field.Path) field.ErrorList {
	return append(validateRequirements(r, validate.ContainerResourceName, at), p.validateUsedClaims(r, at)...)
}

// validateUsedClaims checks that the claims a container uses are claims of the pod.
func (p podParts) validateUsedClaims(r *corev1.ResourceRequirements, at *field.Path) field.ErrorList {
	names := sets.Set[string]{}
	for _, c := range p.spec.ResourceClaims {
		names.Insert(c.Name)
	}
	var errs field.ErrorList
	seen := sets.Set[string]{}
	for i, claim := range r.Claims {
		at := at.Child("claims").Index(i)
		if claim.Name == "" {
			errs = append(errs, field.Required(at, ""))
			continue
		}
		if !names.Has(claim.Name) {
			notFound := field.NotFound(at, claim.Name)
			notFound.Detail = "must be one of the names in pod.spec.resourceClaims"
			if len(names) == 0 {
				notFound.Detail += " which is empty"
			}
			errs = append(errs, notFound)
		}
		key := claim.Name
		if claim.Request != "" {
			errs = append(errs, validate.Label(claim.Request, at.Child("request"))...)
			key += "/" + claim.Request
		}
		if seen.Has(key) || seen.Has(claim.Name) {
			errs = append(errs, field.Duplicate(at, key))
		}
		seen.Insert(key)
	}
	return errs
}

// validateRequirements checks limits, requests and the relation between them.
func validateRequirements(r *corev1.ResourceRequirements, validName func(corev1.ResourceName, *field.Path) field.ErrorList, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	limits, requests := at.Child("limits"), at.Child("requests")
	cpuOrMemory, hugePages := false, false
	note := func(name corev1.ResourceName) {
		cpuOrMemory = cpuOrMemory || name == corev1.ResourceCPU || name == corev1.ResourceMemory
		hugePages = hugePages || validate.IsHugePages(name)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
		value, at := r.Limits[name], limits.Key(string(name))
		errs = append(errs, validName(name, at)...)
		errs = append(errs, validate.ResourceValue(name, value, at)...)
		if validate.IsHugePages(name) {
			errs = append(errs, validateHugePages(name, value, at)...)
		}
		note(name)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		value, at := r.Requests[name], requests.Key(string(name))
		errs = append(errs, validName(name, at)...)
		errs = append(errs, validate.ResourceValue(name, value, at)...)
		limit, limited := r.Limits[name]
		switch {
		case limited && value.Cmp(limit) != 0 && !validate.MayOvercommit(name):
			errs = append(errs, field.Invalid(requests, value.String(), fmt.Sprintf("must be equal to %s limit of %s", name, limit.String())))
		case limited && value.Cmp(limit) > 0:
			errs = append(errs, field.Invalid(requests, value.String(), fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String())))
		case !limited && !validate.MayOvercommit(name):
			errs = append(errs, field.Required(limits, "Limit must be set for non overcommitable resources"))
		}
		if validate.IsHugePages(name) {
			errs = append(errs, validateHugePages(name, value, at)...)
		}
		note(name)
	}
	if hugePages && !cpuOrMemory {
		errs = append(errs, field.Forbidden(at, "HugePages require cpu or memory"))
	}
	return errs
}

// validatePodResources checks pod-level resources (KEP-2837): supported names, and room for all
// containers.
func (p podParts) validatePodResources(at *field.Path) field.ErrorList {
	r := p.spec.Resources
	if r == nil {
		return nil
	}
	var errs field.ErrorList
	if r.Claims != nil { // an empty list counts as well
		errs = append(errs, field.Forbidden(at.Child("claims"), "claims may not be set for Resources at pod-level"))
		errs = append(errs, p.validateUsedClaims(r, at)...)
	}
	errs = append(errs, validateRequirements(r, func(name corev1.ResourceName, at *field.Path) field.ErrorList {
		if errs := validate.ResourceName(name, at); len(errs) > 0 {
			return errs
		}
		if !resourcehelper.IsSupportedPodLevelResource(name) {
			supported := sets.List(sets.Set[corev1.ResourceName](resourcehelper.SupportedPodLevelResources()))
			return field.ErrorList{field.NotSupported(at, name, supported)}
		}
		return nil
	}, at)...)
	pod := &corev1.Pod{Spec: *p.spec}
	total := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		value := r.Requests[name]
		if sum, ok := total[name]; ok && sum.Cmp(value) > 0 {
			errs = append(errs, field.Invalid(at.Child("requests").Key(string(name)), value.String(), fmt.Sprintf("must be greater than or equal to aggregate container requests of %s", sum.String())))
		}
	}
	for i := range p.spec.Containers {
		for name, limit := range p.spec.Containers[i].Resources.Limits {
			if podLimit, ok := r.Limits[name]; ok && limit.Cmp(podLimit) > 0 {
				errs = append(errs, field.Invalid(at.Child("containers").Index(i).Key(string(name)).Child("limits"), limit.String(), fmt.Sprintf("must be less than or equal to pod limits of %s", podLimit.String())))
			}
		}
	}
	return errs
}
