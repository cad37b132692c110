package core

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/pods"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func ServiceStrategy() *strategy.Strategy {
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
		pods.DefaultTargetPort(&spec.Ports[i].TargetPort, spec.Ports[i].Port)
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

func serviceWarnings(obj, _ runtime.Object) []string {
	s := obj.(*corev1.Service)
	at := validate.SpecPath
	var out []string
	if _, ok := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]; ok {
		out = append(out, fmt.Sprintf("annotation %s is deprecated, please use %s instead", corev1.DeprecatedAnnotationTopologyAwareHints, corev1.AnnotationTopologyMode))
	}
	if headless(s) {
		if s.Spec.LoadBalancerIP != "" {
			out = append(out, "spec.loadBalancerIP is ignored for headless services")
		}
		if len(s.Spec.ExternalIPs) > 0 {
			out = append(out, "spec.externalIPs is ignored for headless services")
		}
		if s.Spec.SessionAffinity != corev1.ServiceAffinityNone {
			out = append(out, "spec.SessionAffinity is ignored for headless services")
		}
	}
	for i, ip := range s.Spec.ExternalIPs {
		out = append(out, validate.WarnIP(ip, at.Child("externalIPs").Index(i))...)
	}
	switch {
	case len(s.Spec.ExternalIPs) == 0 || headless(s):
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		out = append(out, `spec.externalIPs is ignored when spec.type is "ExternalName"`)
	default:
		out = append(out, "spec.externalIPs is deprecated and may no longer be implemented in some clusters")
	}
	if s.Spec.LoadBalancerIP != "" {
		out = append(out, validate.WarnIP(s.Spec.LoadBalancerIP, at.Child("loadBalancerIP"))...)
	}
	for i, cidr := range s.Spec.LoadBalancerSourceRanges {
		out = append(out, validate.WarnCIDR(cidr, at.Child("loadBalancerSourceRanges").Index(i))...)
	}
	if s.Spec.Type != corev1.ServiceTypeExternalName && s.Spec.ExternalName != "" {
		out = append(out, `spec.externalName is ignored when spec.type is not "ExternalName"`)
	}
	if d := s.Spec.TrafficDistribution; d != nil && *d == corev1.ServiceTrafficDistributionPreferClose {
		out = append(out, `spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"`)
	}
	return out
}

var serviceColumns = columns.Define("Name", "Type@spec.type", "Cluster-IP@spec.clusterIP", "External-IP@spec.externalIPs", "Port(s)@spec.ports", "Age", "+Selector@spec.selector")

func serviceRow(s *corev1.Service, now metav1.Time) []any {
	ip := columns.None
	if len(s.Spec.ClusterIPs) > 0 {
		ip = s.Spec.ClusterIPs[0]
	} else if s.Spec.ClusterIP != "" {
		ip = s.Spec.ClusterIP
	}
	ports := make([]string, 0, len(s.Spec.Ports))
	for _, p := range s.Spec.Ports {
		text := fmt.Sprintf("%d/%s", p.Port, p.Protocol)
		if p.NodePort > 0 {
			text = fmt.Sprintf("%d:%d/%s", p.Port, p.NodePort, p.Protocol)
		}
		ports = append(ports, text)
	}
	return []any{s.Name, string(s.Spec.Type), ip, externalIP(s), columns.OrNone(strings.Join(ports, ",")), columns.AgeOf(s, now), labels.FormatLabels(s.Spec.Selector)}
}

func externalIP(s *corev1.Service) string {
	switch s.Spec.Type {
	case corev1.ServiceTypeExternalName:
		return s.Spec.ExternalName
	case corev1.ServiceTypeLoadBalancer:
		all := loadBalancerAddresses(s.Status.LoadBalancer.Ingress)
		all = append(all, s.Spec.ExternalIPs...)
		if len(all) == 0 {
			return "<pending>"
		}
		return strings.Join(all, ",")
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort:
		return columns.OrNone(strings.Join(s.Spec.ExternalIPs, ","))
	}
	return columns.Unknown
}

func loadBalancerAddresses(ingress []corev1.LoadBalancerIngress) []string {
	var all []string
	for _, in := range ingress {
		switch {
		case in.IP != "":
			all = append(all, in.IP)
		case in.Hostname != "":
			all = append(all, in.Hostname)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
