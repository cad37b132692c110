package kubelet

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/kubelet/spec"
)

// portsTaken reports whether another pod holds one of the host ports that the pod needs. The caller
// holds k.mu.
func (k *Kubelet) portsTaken(pod *corev1.Pod) bool {
	wanted := hostPorts(pod)
	if len(wanted) == 0 {
		return false
	}
	for other := range k.others(pod) {
		for _, have := range hostPorts(other) {
			if slices.ContainsFunc(wanted, have.excludes) {
				return true
			}
		}
	}
	return false
}

// hostPort is a port of the node. The address 0.0.0.0 stands for all of the node's addresses.
type hostPort struct {
	address  string
	protocol corev1.Protocol
	port     int32
}

func (p hostPort) excludes(other hostPort) bool {
	const all = "0.0.0.0"
	return p.port == other.port && p.protocol == other.protocol && (p.address == other.address || p.address == all || other.address == all)
}

// hostPorts are the host ports of the containers that run at the same time. Of the init containers,
// only sidecars count.
func hostPorts(pod *corev1.Pod) []hostPort {
	var ports []hostPort
	add := func(c *corev1.Container) {
		for _, p := range c.Ports {
			if p.HostPort > 0 {
				ports = append(ports, hostPort{cmp.Or(p.HostIP, "0.0.0.0"), cmp.Or(p.Protocol, corev1.ProtocolTCP), p.HostPort})
			}
		}
	}
	for i := range pod.Spec.InitContainers {
		if spec.IsSidecar(&pod.Spec.InitContainers[i]) {
			add(&pod.Spec.InitContainers[i])
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	return ports
}
