package resource

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/resource/strategy"
)

func defaultService(s *corev1.Service) {
	spec := &s.Spec
	strategy.SetDefault(&spec.SessionAffinity, corev1.ServiceAffinityNone)
	if spec.SessionAffinity == corev1.ServiceAffinityNone {
		spec.SessionAffinityConfig = nil
	}
	if spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		strategy.SetPointer(&spec.SessionAffinityConfig, corev1.SessionAffinityConfig{})
		strategy.SetPointer(&spec.SessionAffinityConfig.ClientIP, corev1.ClientIPConfig{})
		strategy.SetPointer(&spec.SessionAffinityConfig.ClientIP.TimeoutSeconds, corev1.DefaultClientIPServiceAffinitySeconds)
	}
	strategy.SetDefault(&spec.Type, corev1.ServiceTypeClusterIP)
	for i := range spec.Ports {
		strategy.SetDefault(&spec.Ports[i].Protocol, corev1.ProtocolTCP)
		defaultTargetPort(&spec.Ports[i].TargetPort, spec.Ports[i].Port)
	}
	if externallyAccessible(s) {
		strategy.SetDefault(&spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if spec.Type != corev1.ServiceTypeExternalName && isServiceType(spec.Type) {
		strategy.SetPointer(&spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		strategy.SetPointer(&spec.AllocateLoadBalancerNodePorts, true)
		for i := range s.Status.LoadBalancer.Ingress {
			if in := &s.Status.LoadBalancer.Ingress[i]; in.IP != "" {
				strategy.SetPointer(&in.IPMode, corev1.LoadBalancerIPModeVIP)
			}
		}
	}
}

func isServiceType(t corev1.ServiceType) bool {
	switch t {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName:
		return true
	}
	return false
}

// externallyAccessible reports whether traffic from outside the cluster can reach the Service.
func externallyAccessible(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer || s.Spec.Type == corev1.ServiceTypeNodePort ||
		s.Spec.Type == corev1.ServiceTypeClusterIP && len(s.Spec.ExternalIPs) > 0
}

func defaultReplicationController(rc *corev1.ReplicationController) {
	if t := rc.Spec.Template; t != nil {
		if len(rc.Spec.Selector) == 0 {
			rc.Spec.Selector = t.Labels
		}
		if len(rc.Labels) == 0 {
			rc.Labels = t.Labels
		}
		defaultTemplate(t)
	}
	strategy.SetPointer(&rc.Spec.Replicas, 1)
}

func defaultNamespace(ns *corev1.Namespace) {
	// The label lets selectors find a namespace by its name. With generateName there is no name
	// yet: then PrepareCreate sets the label.
	if ns.Name != "" && ns.Labels[corev1.LabelMetadataName] != ns.Name {
		if ns.Labels == nil {
			ns.Labels = map[string]string{}
		}
		ns.Labels[corev1.LabelMetadataName] = ns.Name
	}
	strategy.SetDefault(&ns.Status.Phase, corev1.NamespaceActive)
}

func defaultNode(n *corev1.Node) {
	// An empty list is not stored, so each reader would have to default it.
	if len(n.Status.Allocatable) == 0 && n.Status.Capacity != nil {
		n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	}
	strategy.RoundResources(n.Status.Capacity)
	strategy.RoundResources(n.Status.Allocatable)
	// podCIDR and podCIDRs have the same meaning; podCIDR wins.
	switch spec := &n.Spec; {
	case spec.PodCIDR != "" && (len(spec.PodCIDRs) == 0 || spec.PodCIDRs[0] != spec.PodCIDR):
		spec.PodCIDRs = []string{spec.PodCIDR}
	case spec.PodCIDR == "" && len(spec.PodCIDRs) > 0:
		spec.PodCIDR = spec.PodCIDRs[0]
	}
}

func defaultEndpoints(e *corev1.Endpoints) {
	for i := range e.Subsets {
		for j := range e.Subsets[i].Ports {
			strategy.SetDefault(&e.Subsets[i].Ports[j].Protocol, corev1.ProtocolTCP)
		}
	}
}

// defaultSecret moves the write-only field stringData into data; stringData wins (API reference,
// Secret).
func defaultSecret(s *corev1.Secret) {
	strategy.SetDefault(&s.Type, corev1.SecretTypeOpaque)
	if len(s.StringData) > 0 && s.Data == nil {
		s.Data = make(map[string][]byte, len(s.StringData))
	}
	for k, v := range s.StringData {
		s.Data[k] = []byte(v)
	}
	s.StringData = nil
}

func defaultLimitRange(l *corev1.LimitRange) {
	for i := range l.Spec.Limits {
		item := &l.Spec.Limits[i]
		if item.Type == corev1.LimitTypeContainer {
			fillResources(&item.Default, item.Max)
			fillResources(&item.DefaultRequest, item.Default)
			fillResources(&item.DefaultRequest, item.Min)
		}
		for _, list := range []corev1.ResourceList{item.Max, item.Min, item.Default, item.DefaultRequest, item.MaxLimitRequestRatio} {
			strategy.RoundResources(list)
		}
	}
}

// fillResources copies each quantity whose resource is missing in list.
func fillResources(list *corev1.ResourceList, from corev1.ResourceList) {
	for name, q := range from {
		if _, ok := (*list)[name]; ok {
			continue
		}
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = q.DeepCopy()
	}
}

func defaultResourceQuota(q *corev1.ResourceQuota) {
	strategy.RoundResources(q.Spec.Hard)
	strategy.RoundResources(q.Status.Hard)
	strategy.RoundResources(q.Status.Used)
}
