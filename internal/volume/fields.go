package volume

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// PodField reads a field of a pod's metadata for the downward API (API reference,
// DownwardAPIVolumeFile.fieldRef). Container environments support further fields of the node
// (kubelet/spec).
func PodField(pod *corev1.Pod, path string) (string, error) {
	if base, key, found := strings.Cut(strings.TrimSuffix(path, "']"), "['"); found {
		switch base {
		case "metadata.annotations":
			return pod.Annotations[key], nil
		case "metadata.labels":
			return pod.Labels[key], nil
		}
		return "", fmt.Errorf("fieldPath %q does not support subscript", path)
	}
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.annotations":
		return lines(pod.Annotations), nil
	case "metadata.labels":
		return lines(pod.Labels), nil
	}
	return "", fmt.Errorf("unsupported fieldPath: %v", path)
}

// lines formats a map as key="value" lines in key order, with quoted values.
func lines(values map[string]string) string {
	var text []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		text = append(text, fmt.Sprintf("%v=%q", key, values[key]))
	}
	return strings.Join(text, "\n")
}

// containerResource is ResourceField for a container given by name.
func containerResource(pod *corev1.Pod, ref *corev1.ResourceFieldSelector, allocatable corev1.ResourceList) (string, error) {
	resources, found := containerResources(pod, ref.ContainerName)
	if !found {
		return "", fmt.Errorf("container %s not found", ref.ContainerName)
	}
	return ResourceField(pod, resources, ref, allocatable)
}

// ResourceField reads a container's request or limit in units of the divisor, rounded up. A missing
// limit defaults to that of the whole pod (KEP-2837) or else to the node's allocatable amount, a
// missing request to the limit (API reference, ResourceFieldSelector).
func ResourceField(pod *corev1.Pod, resources corev1.ResourceRequirements, ref *corev1.ResourceFieldSelector, allocatable corev1.ResourceList) (string, error) {
	kind, resourceName, _ := strings.Cut(ref.Resource, ".")
	name := corev1.ResourceName(resourceName)
	var quantity resource.Quantity
	switch kind {
	case "limits":
		quantity = resources.Limits[name]
		if quantity.IsZero() && pod.Spec.Resources != nil {
			quantity = pod.Spec.Resources.Limits[name]
		}
		if quantity.IsZero() {
			quantity = allocatable[name]
		}
	case "requests":
		var set bool
		if quantity, set = resources.Requests[name]; !set {
			quantity = resources.Limits[name]
		}
	default:
		return "", fmt.Errorf("unsupported container resource : %v", ref.Resource)
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if name == corev1.ResourceCPU {
		return strconv.FormatInt(roundUp(quantity.MilliValue(), divisor.MilliValue()), 10), nil
	}
	return strconv.FormatInt(roundUp(quantity.Value(), divisor.Value()), 10), nil
}

func roundUp(value, unit int64) int64 { return (value + unit - 1) / unit }

func containerResources(pod *corev1.Pod, name string) (corev1.ResourceRequirements, bool) {
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			if containers[i].Name == name {
				return containers[i].Resources, true
			}
		}
	}
	return corev1.ResourceRequirements{}, false
}
