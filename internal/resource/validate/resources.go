package validate

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var quotaNames = []corev1.ResourceName{
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
	corev1.ResourceRequestsStorage, corev1.ResourceRequestsEphemeralStorage, corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory,
	corev1.ResourceLimitsEphemeralStorage, corev1.ResourcePods, corev1.ResourceQuotas, corev1.ResourceServices,
	corev1.ResourceReplicationControllers, corev1.ResourceSecrets, corev1.ResourcePersistentVolumeClaims, corev1.ResourceConfigMaps,
	corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers,
}

func IsStandardQuota(name corev1.ResourceName) bool {
	return slices.Contains(quotaNames, name) || IsHugePages(name) || strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix)
}

const ErrNotInteger = "must be an integer"

func IsHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// isNative reports whether a resource has no domain or one of Kubernetes' own.
func isNative(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// IsExtended reports whether a device plugin or an administrator offers the resource, as in
// example.com/gpu.
func IsExtended(name corev1.ResourceName) bool {
	return !isNative(name) && !strings.HasPrefix(string(name), "requests.") && len(validation.IsQualifiedName("requests."+string(name))) == 0
}

// MayOvercommit reports whether limits of a resource may exceed its requests.
func MayOvercommit(name corev1.ResourceName) bool { return isNative(name) && !IsHugePages(name) }

func IsStandardContainer(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return true
	}
	return IsHugePages(name)
}

// ContainerResourceName checks the name of a resource that a container requests.
func ContainerResourceName(name corev1.ResourceName, at *field.Path) field.ErrorList {
	errs := ResourceName(name, at)
	if !strings.Contains(string(name), "/") {
		if !IsStandardContainer(name) {
			errs = append(errs, field.Invalid(at, name, "must be a standard resource for containers"))
		}
	} else if !isNative(name) && !IsExtended(name) {
		errs = append(errs, field.Invalid(at, name, "doesn't follow extended resource name standard"))
	}
	return errs
}

// ResourceName checks a resource's name; without a domain, it must be a known one.
func ResourceName(name corev1.ResourceName, at *field.Path) field.ErrorList {
	errs := Qualified(string(name), at)
	if len(errs) == 0 && !strings.Contains(string(name), "/") && !IsStandardQuota(name) && name != corev1.ResourceStorage {
		errs = append(errs, field.Invalid(at, name, "must be a standard resource type or fully qualified"))
	}
	return errs
}

// ResourceValue checks that a quantity is not negative, and an integer where fractions have
// no meaning.
func ResourceValue(name corev1.ResourceName, value resource.Quantity, at *field.Path) field.ErrorList {
	errs := Quantity(value, at)
	whole := IsExtended(name)
	switch name {
	case corev1.ResourcePods, corev1.ResourceQuotas, corev1.ResourceServices, corev1.ResourceReplicationControllers, corev1.ResourceSecrets,
		corev1.ResourceConfigMaps, corev1.ResourcePersistentVolumeClaims, corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers:
		whole = true
	}
	if whole && value.MilliValue()%1000 != 0 {
		errs = append(errs, field.Invalid(at, value, ErrNotInteger))
	}
	return errs
}

// WarnFractions warns of fractions of a byte.
func WarnFractions(name corev1.ResourceName, list corev1.ResourceList, at *field.Path) []string {
	if value, ok := list[name]; ok && value.MilliValue()%1000 != 0 {
		return []string{fmt.Sprintf("%s: fractional byte value %q is invalid, must be an integer", at.Key(string(name)), value.String())}
	}
	return nil
}
