// Package dra holds the kinds of resource.k8s.io, dynamic resource allocation (KEP-4381). The
// limits are those of the API reference.
package dra

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func DeviceClassStrategy() *strategy.Strategy {
	s := strategy.WithGeneration(true)
	s.ValidateName = strategy.DeclaredSubdomain
	s.ValidateCreate = strategy.Checks(validateDeviceClass)
	s.ValidateUpdate = strategy.ChecksBoth(validateDeviceClassUpdate)
	return strategy.ShowAny(s, columns.NameAndAge, columns.NameAndAgeRow)
}

func validateDeviceClass(c *resourcev1.DeviceClass) field.ErrorList {
	errs := validateSelectors(c.Spec.Selectors, nil, validate.SpecPath.Child("selectors"))
	errs = append(errs, limited(len(c.Spec.Config), resourcev1.DeviceConfigMaxSize, validate.SpecPath.Child("config"), func(i int, at *field.Path) field.ErrorList {
		return validateOpaque(c.Spec.Config[i].Opaque, at)
	})...)
	if name := c.Spec.ExtendedResourceName; name != nil && !validate.IsExtended(corev1.ResourceName(*name)) {
		errs = append(errs, field.Invalid(validate.SpecPath.Child("extendedResourceName"), *name, "must be a valid extended resource name"))
	}
	return errs
}

// validateDeviceClassUpdate checks only changed expressions; accepted ones stay valid.
func validateDeviceClassUpdate(c, old *resourcev1.DeviceClass) field.ErrorList {
	stored := map[string]bool{}
	for _, s := range old.Spec.Selectors {
		if s.CEL != nil {
			stored[s.CEL.Expression] = true
		}
	}
	again := c.DeepCopy()
	again.Spec.Selectors = nil
	return append(validateSelectors(c.Spec.Selectors, stored, validate.SpecPath.Child("selectors")), validateDeviceClass(again)...)
}
