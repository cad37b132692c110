package resource

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/validate"
)

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
			out = append(out, validate.WarnOldLabelAt(e.Key, field.NewPath("allowedTopologies").Index(i).Child("matchLabelExpressions").Index(j).Child("key"))...)
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
		out = append(out, validate.WarnOldLabel(e.Key, at.Child("matchExpressions").Index(i).Child("key"))...)
	}
	return append(out, validate.WarnLabelsOf(c.NodeTopology.MatchLabels, func(label string) *field.Path { return at.Child("matchLabels").Child(label) })...)
}

func warnRuntimeClass(c *nodev1.RuntimeClass) []string {
	if c.Scheduling == nil {
		return nil
	}
	return validate.WarnLabelsOf(c.Scheduling.NodeSelector, func(string) *field.Path { return field.NewPath("scheduling", "nodeSelector") })
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
