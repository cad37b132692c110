package spec

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/volume"
)

// FieldValue reads a field of the pod for the environment: what volumes show too, and what only the node knows.
func FieldValue(pod *corev1.Pod, path string, facts Facts) (string, error) {
	switch path {
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP":
		return first(facts.HostIPs), nil
	case "status.hostIPs":
		return strings.Join(facts.HostIPs, ","), nil
	case "status.podIP":
		return first(facts.PodIPs), nil
	case "status.podIPs":
		return strings.Join(facts.PodIPs, ","), nil
	}
	return volume.PodField(pod, path)
}

func first(addresses []string) string {
	if len(addresses) == 0 {
		return ""
	}
	return addresses[0]
}

// ResourceValue reads a container's request or limit for the environment of self, which may be the container meant.
func ResourceValue(pod *corev1.Pod, self *corev1.Container, ref *corev1.ResourceFieldSelector, allocatable corev1.ResourceList) (string, error) {
	c := self
	if ref.ContainerName != "" && (c == nil || c.Name != ref.ContainerName) {
		if c = FindContainer(pod, ref.ContainerName); c == nil {
			return "", fmt.Errorf("container %s not found", ref.ContainerName)
		}
	}
	return volume.ResourceField(c.Resources, ref, allocatable)
}

// FindContainer finds a container of any kind in the pod's spec, or nil.
func FindContainer(pod *corev1.Pod, name string) *corev1.Container {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == name {
			return &pod.Spec.Containers[i]
		}
	}
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == name {
			return &pod.Spec.InitContainers[i]
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == name {
			c := corev1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
			return &c
		}
	}
	return nil
}

// IsSidecar says whether an init container is restartable.
func IsSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}
