package resource

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// warns adapts the warnings of one Go type to the signature in Strategy.
func warns[T runtime.Object](f func(T) []string) func(obj, old runtime.Object) []string {
	return func(obj, _ runtime.Object) []string { return f(obj.(T)) }
}

// warnsOfNew is warns for creates alone.
func warnsOfNew[T runtime.Object](f func(T) []string) func(obj, old runtime.Object) []string {
	return func(obj, old runtime.Object) []string {
		if old != nil {
			return nil
		}
		return f(obj.(T))
	}
}

// warnLabelsOf warns of node labels that others have replaced; path returns the path of a label.
func warnLabelsOf(labels map[string]string, path func(label string) *field.Path) (out []string) {
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, warnOldLabelAt(label, path(label))...)
	}
	return out
}

// warnOldLabelAt is warnOldLabel for a path that contains the label.
func warnOldLabelAt(label string, at *field.Path) []string {
	for _, old := range oldLabels {
		if old.name == label {
			return []string{fmt.Sprintf("%s: deprecated since %s; use %q instead", at, old.since, old.instead)}
		}
	}
	return nil
}

func warnIngress(i *networkingv1.Ingress) []string {
	if _, ok := i.Annotations[ingressClassAnnotation]; ok && i.Spec.IngressClassName == nil {
		return []string{fmt.Sprintf("annotation %q is deprecated, please use 'spec.ingressClassName' instead", ingressClassAnnotation)}
	}
	return nil
}

func warnEndpointSlice(e *discoveryv1.EndpointSlice) []string {
	if e.AddressType == discoveryv1.AddressTypeFQDN {
		return []string{"spec.addressType: FQDN endpoints are deprecated"}
	}
	return nil
}

func warnStorageClass(c *storagev1.StorageClass) (out []string) {
	for i, t := range c.AllowedTopologies {
		for j, e := range t.MatchLabelExpressions {
			out = append(out, warnOldLabelAt(e.Key, field.NewPath("allowedTopologies").Index(i).Child("matchLabelExpressions").Index(j).Child("key"))...)
		}
	}
	return out
}

func warnCSIStorageCapacity(c *storagev1.CSIStorageCapacity) (out []string) {
	if c.NodeTopology == nil {
		return nil
	}
	at := field.NewPath("nodeTopology")
	for i, e := range c.NodeTopology.MatchExpressions {
		out = append(out, warnOldLabel(e.Key, at.Child("matchExpressions").Index(i).Child("key"))...)
	}
	return append(out, warnLabelsOf(c.NodeTopology.MatchLabels, func(label string) *field.Path { return at.Child("matchLabels").Child(label) })...)
}

func warnRuntimeClass(c *nodev1.RuntimeClass) []string {
	if c.Scheduling == nil {
		return nil
	}
	return warnLabelsOf(c.Scheduling.NodeSelector, func(string) *field.Path { return field.NewPath("scheduling", "nodeSelector") })
}

// warnResourceQuota warns of a quota that allows more requests than limits. Requests can never use
// the difference, because a container's limits are at least its requests.
func warnResourceQuota(q *corev1.ResourceQuota) (out []string) {
	for _, pair := range []struct {
		limits   corev1.ResourceName
		requests []corev1.ResourceName // the first of them that the quota bounds is compared
	}{
		{corev1.ResourceLimitsCPU, []corev1.ResourceName{corev1.ResourceRequestsCPU, corev1.ResourceCPU}},
		{corev1.ResourceLimitsMemory, []corev1.ResourceName{corev1.ResourceRequestsMemory, corev1.ResourceMemory}},
		{corev1.ResourceLimitsEphemeralStorage, []corev1.ResourceName{corev1.ResourceRequestsEphemeralStorage}},
	} {
		limit, ok := q.Spec.Hard[pair.limits]
		if !ok {
			continue
		}
		for _, name := range pair.requests {
			request, ok := q.Spec.Hard[name]
			if !ok {
				continue
			}
			if request.Cmp(limit) > 0 {
				out = append(out, fmt.Sprintf("ResourceQuota %s (%s) should be less than %s (%s)", name, request.String(), pair.limits, limit.String()))
			}
			break
		}
	}
	return out
}
