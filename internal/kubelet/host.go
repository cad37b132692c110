package kubelet

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/kubelet/cgroup"
	"github.com/knarr-project/knarr/internal/kubelet/spec"
)

// host gives a pod's worker the facts about the node.
type host struct{ k *Kubelet }

func (h host) IPs() []string                      { return h.k.NodeIPs }
func (h host) Allocatable() corev1.ResourceList   { return h.k.node.Allocatable() }
func (h host) RecursiveReadOnly(name string) bool { return h.k.node.RecursiveReadOnly(name) }

func (h host) Machine() spec.Machine {
	s := h.k.Settings
	m := spec.Machine{
		MemoryCapacity: h.k.machine.Memory, CgroupV2: cgroup.V2(), NoCFSQuota: !*s.CPUCFSQuota, QuotaPeriod: s.CPUCFSQuotaPeriod.Microseconds(),
		SingleKill: s.SingleProcessOOMKill != nil && *s.SingleProcessOOMKill, LimitsSwap: h.k.limitsSwap,
	}
	if s.MemorySwap.SwapBehavior == "LimitedSwap" {
		m.PodSwap = h.k.machine.Swap
	}
	return m
}

func (h host) DNS(pod *corev1.Pod) (spec.DNS, []string) {
	return spec.PodDNS(pod, h.k.hostDNS, h.k.Settings.ClusterDNS, h.k.Settings.ClusterDomain)
}

func (h host) RuntimeHandler(ctx context.Context, pod *corev1.Pod) (string, error) {
	if pod.Spec.RuntimeClassName == nil || *pod.Spec.RuntimeClassName == "" {
		return "", nil
	}
	class, err := client.Get[*nodev1.RuntimeClass](ctx, h.k.Client, "", *pod.Spec.RuntimeClassName)
	if err != nil {
		return "", fmt.Errorf("RuntimeClass %q: %w", *pod.Spec.RuntimeClassName, err)
	}
	return class.Handler, nil
}

// objects reads the API objects that container environments use.
type objects struct{ k *Kubelet }

func (s objects) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return client.Get[*corev1.ConfigMap](ctx, s.k.Client, namespace, name)
}

func (s objects) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return client.Get[*corev1.Secret](ctx, s.k.Client, namespace, name)
}

func (s objects) Services(namespace string) []*corev1.Service {
	return s.k.services.List(namespace, nil)
}

// Allocatable returns the node's resources for pods.
func (k *Kubelet) Allocatable() corev1.ResourceList { return k.node.Allocatable() }
