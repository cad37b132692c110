package resource

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func serviceStrategy() *strategy.Strategy {
	s := &strategy.Strategy{
		AllowCreateOnUpdate:      true,
		AllowUnconditionalUpdate: true,
		Default:                  strategy.On(defaultService),
		PrepareCreate: strategy.On(func(s *corev1.Service) {
			s.Status = corev1.ServiceStatus{}
			pairClusterIPs(s, nil)
			dropTrafficPolicy(s)
		}),
		PrepareUpdate:  strategy.OnBoth(prepareServiceUpdate),
		PrepareStatus:  strategy.OnBoth(func(s, old *corev1.Service) { s.Spec = *old.Spec.DeepCopy() }),
		ValidateCreate: strategy.Checks(validateServiceCreate),
		ValidateUpdate: strategy.ChecksBoth(validateServiceUpdate),
		ValidateStatus: strategy.ChecksBoth(validateServiceStatus),
		ValidateName:   apivalidation.NameIsDNSLabel,
		Warnings:       serviceWarnings,
		FieldNames:     []string{"spec.clusterIP", "spec.type"},
		Fields: func(obj runtime.Object) fields.Set {
			s := obj.(*corev1.Service)
			return fields.Set{"spec.clusterIP": s.Spec.ClusterIP, "spec.type": string(s.Spec.Type)}
		},
	}
	return strategy.Show(s, serviceColumns, serviceRow)
}

func prepareServiceUpdate(s, old *corev1.Service) {
	s.Status = *old.Status.DeepCopy()
	// Stored before Kubernetes 1.20, which had a single address.
	if old.Spec.ClusterIP != "" && len(old.Spec.ClusterIPs) == 0 {
		old = old.DeepCopy()
		old.Spec.ClusterIPs = []string{old.Spec.ClusterIP}
	}
	pairClusterIPs(s, old)
	keepAllocations(s, old)
	dropOtherTypes(s, old)
	dropTrafficPolicy(s)
}

// dropTrafficPolicy clears the internal traffic policy of an ExternalName Service, which has no
// traffic in the cluster. It leaves an invalid policy for validation to refuse.
func dropTrafficPolicy(s *corev1.Service) {
	p := s.Spec.InternalTrafficPolicy
	if !hasClusterIP(s) && p != nil && (*p == corev1.ServiceInternalTrafficPolicyCluster || *p == corev1.ServiceInternalTrafficPolicyLocal) {
		s.Spec.InternalTrafficPolicy = nil
	}
}

// pairClusterIPs makes clusterIP and the first of clusterIPs equal when a client changes only one
// of them. Old clients know only clusterIP.
func pairClusterIPs(s, old *corev1.Service) {
	spec := &s.Spec
	if old == nil {
		if spec.ClusterIP != "" && len(spec.ClusterIPs) == 0 {
			spec.ClusterIPs = []string{spec.ClusterIP}
		}
		return
	}
	same := slices.Equal(spec.ClusterIPs, old.Spec.ClusterIPs)
	if spec.ClusterIP == "" && old.Spec.ClusterIP != "" && same {
		spec.ClusterIPs = nil // the client has cleared clusterIP
	}
	if spec.ClusterIP != old.Spec.ClusterIP && spec.ClusterIP != "" && same {
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
}

// keepAllocations fills in allocated addresses and ports that the client did not send back.
func keepAllocations(s, old *corev1.Service) {
	if hasClusterIP(old) && hasClusterIP(s) {
		if s.Spec.ClusterIP == "" {
			s.Spec.ClusterIP = old.Spec.ClusterIP
		}
		if len(s.Spec.ClusterIPs) == 0 && s.Spec.ClusterIP == old.Spec.ClusterIP {
			s.Spec.ClusterIPs = slices.Clone(old.Spec.ClusterIPs)
		}
	}
	if hasNodePorts(old) && hasNodePorts(s) {
		keepNodePorts(s, old)
	}
	if needsHealthCheckPort(old) && needsHealthCheckPort(s) {
		strategy.SetDefault(&s.Spec.HealthCheckNodePort, old.Spec.HealthCheckNodePort)
	}
}

// keepNodePorts keeps allocated node ports by port name; other changes of a port do not matter.
func keepNodePorts(s, old *corev1.Service) {
	allocated := map[string]int32{}
	for _, p := range old.Spec.Ports {
		allocated[p.Name] = p.NodePort
	}
	used := map[int32]bool{}
	for _, p := range s.Spec.Ports {
		used[p.NodePort] = true
	}
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		if port := allocated[p.Name]; p.NodePort == 0 && port != 0 && !used[port] {
			p.NodePort = port
			used[port] = true
		}
	}
}

// dropOtherTypes clears unchanged fields that only the old type has when the type changes.
func dropOtherTypes(s, old *corev1.Service) {
	if hasClusterIP(old) && !hasClusterIP(s) && s.Spec.ClusterIP == old.Spec.ClusterIP && slices.Equal(s.Spec.ClusterIPs, old.Spec.ClusterIPs) {
		s.Spec.ClusterIP, s.Spec.ClusterIPs = "", nil
		s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = nil, nil
	}
	// A load balancer that no longer needs node ports keeps its node ports until a client clears
	// them.
	if hasNodePorts(old) && !hasNodePorts(s) && s.Spec.Type != corev1.ServiceTypeLoadBalancer && sameNodePorts(s, old) {
		for i := range s.Spec.Ports {
			s.Spec.Ports[i].NodePort = 0
		}
	}
	if needsHealthCheckPort(old) && !needsHealthCheckPort(s) && s.Spec.HealthCheckNodePort == old.Spec.HealthCheckNodePort {
		s.Spec.HealthCheckNodePort = 0
	}
	if old.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		if validate.EqualPointers(s.Spec.AllocateLoadBalancerNodePorts, old.Spec.AllocateLoadBalancerNodePorts) {
			s.Spec.AllocateLoadBalancerNodePorts = nil
		}
		if validate.EqualPointers(s.Spec.LoadBalancerClass, old.Spec.LoadBalancerClass) {
			s.Spec.LoadBalancerClass = nil
		}
		s.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	}
	if externallyAccessible(old) && !externallyAccessible(s) && s.Spec.ExternalTrafficPolicy == old.Spec.ExternalTrafficPolicy {
		s.Spec.ExternalTrafficPolicy = ""
	}
}

func hasClusterIP(s *corev1.Service) bool { return s.Spec.Type != corev1.ServiceTypeExternalName }

func hasNodePorts(s *corev1.Service) bool {
	switch s.Spec.Type {
	case corev1.ServiceTypeNodePort:
		return true
	case corev1.ServiceTypeLoadBalancer:
		return s.Spec.AllocateLoadBalancerNodePorts == nil || *s.Spec.AllocateLoadBalancerNodePorts
	}
	return false
}

// sameNodePorts reports whether both Services have the same set of node ports, in any order.
func sameNodePorts(s, old *corev1.Service) bool {
	held := func(s *corev1.Service) sets.Set[int32] {
		ports := sets.Set[int32]{}
		for _, p := range s.Spec.Ports {
			if p.NodePort != 0 {
				ports.Insert(p.NodePort)
			}
		}
		return ports
	}
	return held(s).Equal(held(old))
}

// needsHealthCheckPort reports whether a load balancer sends traffic only to nodes with endpoints.
// It finds these nodes by health checks.
func needsHealthCheckPort(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}
