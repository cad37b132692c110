package core

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/validate"
)

const (
	kubeletPort         = 10250
	maxAffinitySeconds  = 86400
	onlyForLoadBalancer = "may only be used when `type` is 'LoadBalancer'"
	notForExternalName  = "may not be set for ExternalName services"
	onceSet             = "may not change once set"
)

var servicePortProtocols = []corev1.Protocol{corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP}

func headless(s *corev1.Service) bool {
	return len(s.Spec.ClusterIPs) == 1 && s.Spec.ClusterIPs[0] == corev1.ClusterIPNone || len(s.Spec.ClusterIPs) == 0 && s.Spec.ClusterIP == corev1.ClusterIPNone
}

func validateServiceCreate(s *corev1.Service) field.ErrorList { return validateService(s, nil) }

// validateService checks the rules for creates and updates of a Service. old is nil on create.
func validateService(s, old *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	var external *validate.Stored
	if old != nil {
		external = validate.StoredIn(slices.Values(old.Spec.ExternalIPs))
	}
	if len(s.Spec.Ports) == 0 && !headless(s) && s.Spec.Type != corev1.ServiceTypeExternalName {
		errs = append(errs, field.Required(validate.SpecPath.Child("ports"), ""))
	}
	errs = append(errs, validateServiceType(s)...)
	errs = append(errs, validateServicePorts(s, validate.SpecPath.Child("ports"))...)
	errs = append(errs, metavalidation.ValidateLabels(s.Spec.Selector, validate.SpecPath.Child("selector"))...)
	errs = append(errs, validateAffinityConfig(&s.Spec)...)
	if s.Spec.Type != corev1.ServiceTypeExternalName {
		errs = append(errs, ValidateServiceAddresses(s, old)...)
	}
	for i, ip := range s.Spec.ExternalIPs {
		at := validate.SpecPath.Child("externalIPs").Index(i)
		if invalid := validate.StoredIP(ip, external, at); len(invalid) > 0 {
			errs = append(errs, invalid...)
		} else {
			errs = append(errs, validate.NonSpecialIP(ip, at)...)
		}
	}
	errs = append(errs, validateLoadBalancerFields(s, old)...)
	errs = append(errs, validateTrafficPolicies(s)...)
	return errs
}

func validateServiceType(s *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	switch s.Spec.Type {
	case corev1.ServiceTypeLoadBalancer:
		for i, p := range s.Spec.Ports {
			if p.Port == kubeletPort {
				errs = append(errs, field.Invalid(validate.SpecPath.Child("ports").Index(i).Child("port"), p.Port, fmt.Sprintf("may not expose port %v externally since it is used by kubelet", kubeletPort)))
			}
		}
		if headless(s) {
			errs = append(errs, field.Invalid(validate.SpecPath.Child("clusterIPs").Index(0), corev1.ClusterIPNone, "may not be set to 'None' for LoadBalancer services"))
		}
	case corev1.ServiceTypeNodePort:
		if headless(s) {
			errs = append(errs, field.Invalid(validate.SpecPath.Child("clusterIPs").Index(0), corev1.ClusterIPNone, "may not be set to 'None' for NodePort services"))
		}
	case corev1.ServiceTypeExternalName:
		if len(s.Spec.ClusterIPs) > 0 || s.Spec.ClusterIP != "" {
			errs = append(errs, field.Forbidden(validate.SpecPath.Child("clusterIPs"), notForExternalName))
		}
		if len(s.Spec.IPFamilies) > 0 {
			errs = append(errs, field.Forbidden(validate.SpecPath.Child("ipFamilies"), notForExternalName))
		}
		if s.Spec.IPFamilyPolicy != nil {
			errs = append(errs, field.Forbidden(validate.SpecPath.Child("ipFamilyPolicy"), notForExternalName))
		}
		if name := strings.TrimSuffix(s.Spec.ExternalName, "."); name == "" {
			errs = append(errs, field.Required(validate.SpecPath.Child("externalName"), ""))
		} else {
			errs = append(errs, validate.Subdomain(name, validate.SpecPath.Child("externalName"))...)
		}
	case corev1.ServiceTypeClusterIP:
	default:
		errs = append(errs, validate.OneOf(s.Spec.Type, validate.SpecPath.Child("type"), corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort)...)
	}
	return errs
}

func validateServicePorts(s *corev1.Service, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	type key struct {
		protocol corev1.Protocol
		port     int32
	}
	names, ports, nodePorts := map[string]bool{}, map[key]bool{}, map[key]bool{}
	for i := range s.Spec.Ports {
		p, at := &s.Spec.Ports[i], at.Index(i)
		switch {
		case p.Name == "" && len(s.Spec.Ports) > 1:
			errs = append(errs, field.Required(at.Child("name"), ""))
		case p.Name != "":
			errs = append(errs, validate.Label(p.Name, at.Child("name"))...)
			if names[p.Name] {
				errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
			}
			names[p.Name] = true
		}
		errs = append(errs, validate.Port(p.Port, at.Child("port"))...)
		errs = append(errs, validate.OneOf(p.Protocol, at.Child("protocol"), servicePortProtocols...)...)
		errs = append(errs, validate.PortNumOrName(p.TargetPort, at.Child("targetPort"))...)
		if p.AppProtocol != nil {
			errs = append(errs, validate.Qualified(*p.AppProtocol, at.Child("appProtocol"))...)
		}
		if s.Spec.Type == corev1.ServiceTypeClusterIP && p.NodePort != 0 {
			errs = append(errs, field.Forbidden(at.Child("nodePort"), "may not be used when `type` is 'ClusterIP'"))
		}
		if p.NodePort != 0 {
			k := key{p.Protocol, p.NodePort}
			if nodePorts[k] {
				errs = append(errs, field.Duplicate(at.Child("nodePort"), p.NodePort))
			}
			nodePorts[k] = true
		}
		k := key{p.Protocol, p.Port}
		if ports[k] {
			errs = append(errs, field.Duplicate(at, corev1.ServicePort{Protocol: p.Protocol, Port: p.Port}))
		}
		ports[k] = true
	}
	return errs
}

func validateAffinityConfig(s *corev1.ServiceSpec) field.ErrorList {
	errs := validate.OneOf(s.SessionAffinity, validate.SpecPath.Child("sessionAffinity"), corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone)
	at, c := validate.SpecPath.Child("sessionAffinityConfig"), s.SessionAffinityConfig
	switch {
	case s.SessionAffinity == corev1.ServiceAffinityNone && c != nil:
		errs = append(errs, field.Forbidden(at, fmt.Sprintf("must not be set when session affinity is %s", corev1.ServiceAffinityNone)))
	case s.SessionAffinity != corev1.ServiceAffinityClientIP:
	case c == nil:
		errs = append(errs, field.Required(at, fmt.Sprintf("when session affinity type is %s", corev1.ServiceAffinityClientIP)))
	case c.ClientIP == nil:
		errs = append(errs, field.Required(at.Child("clientIP"), fmt.Sprintf("when session affinity type is %s", corev1.ServiceAffinityClientIP)))
	case c.ClientIP.TimeoutSeconds == nil:
		errs = append(errs, field.Required(at.Child("clientIP", "timeoutSeconds"), fmt.Sprintf("when session affinity type is %s", corev1.ServiceAffinityClientIP)))
	case *c.ClientIP.TimeoutSeconds <= 0 || *c.ClientIP.TimeoutSeconds > maxAffinitySeconds:
		errs = append(errs, field.Invalid(at.Child("clientIP", "timeoutSeconds"), *c.ClientIP.TimeoutSeconds, fmt.Sprintf("must be greater than 0 and less than %d", maxAffinitySeconds)))
	}
	return errs
}

// ValidateServiceAddresses checks the fields that allocation needs, before addresses are allocated;
// the other fields are validated afterwards. old is nil on create.
func ValidateServiceAddresses(s, old *corev1.Service) field.ErrorList {
	if old == nil {
		return validateClusterIPs(&s.Spec, nil)
	}
	return validateClusterIPs(&s.Spec, validate.StoredIn(slices.Values(old.Spec.ClusterIPs)))
}

// validateClusterIPs checks addresses and families, and that they match each other.
func validateClusterIPs(s *corev1.ServiceSpec, before *validate.Stored) field.ErrorList {
	var errs field.ErrorList
	ips, families := validate.SpecPath.Child("clusterIPs"), validate.SpecPath.Child("ipFamilies")
	switch {
	case s.ClusterIP != "" && len(s.ClusterIPs) == 0:
		errs = append(errs, field.Required(ips, ""))
	case s.ClusterIP == "" && len(s.ClusterIPs) > 0:
		errs = append(errs, field.Invalid(ips, s.ClusterIPs, "must be empty when `clusterIP` is not specified"))
	case len(s.ClusterIPs) > 0 && s.ClusterIPs[0] != s.ClusterIP:
		errs = append(errs, field.Invalid(ips, s.ClusterIPs, "first value must match `clusterIP`"))
	}
	seen := map[corev1.IPFamily]bool{}
	for i, family := range s.IPFamilies {
		errs = append(errs, validate.NotSupportedUnless(family, families.Index(i), corev1.IPv4Protocol, corev1.IPv6Protocol)...)
		if seen[family] {
			errs = append(errs, field.Duplicate(families.Index(i), family))
		}
		seen[family] = true
	}
	if p := s.IPFamilyPolicy; p != nil {
		errs = append(errs, validate.NotSupportedUnless(*p, validate.SpecPath.Child("ipFamilyPolicy"), corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack, corev1.IPFamilyPolicySingleStack)...)
	}
	if len(s.ClusterIPs) > 2 {
		errs = append(errs, field.Invalid(ips, s.ClusterIPs, "may only hold up to 2 values"))
	}
	none := len(s.ClusterIPs) > 0 && s.ClusterIPs[0] == corev1.ClusterIPNone
	if none && len(s.ClusterIPs) > 1 {
		errs = append(errs, field.Invalid(ips, s.ClusterIPs, "'None' must be the first and only value"))
	}
	wrong := false
	for i, ip := range s.ClusterIPs {
		if i == 0 && none {
			continue
		}
		if invalid := validate.StoredIP(ip, before, ips.Index(i)); len(invalid) > 0 {
			errs = append(errs, invalid...)
			wrong = true
			continue
		}
		if i < len(s.IPFamilies) && !none {
			six := strings.Contains(ip, ":")
			if family := s.IPFamilies[i]; six != (family == corev1.IPv6Protocol) {
				errs = append(errs, field.Invalid(ips.Index(i), ip, fmt.Sprintf("expected an %v value as indicated by `ipFamilies[%v]`", family, i)))
			}
		}
	}
	if len(s.ClusterIPs) == 2 && !none && !wrong && strings.Contains(s.ClusterIPs[0], ":") == strings.Contains(s.ClusterIPs[1], ":") {
		errs = append(errs, field.Invalid(ips, s.ClusterIPs, "may specify no more than one IP for each IP family"))
	}
	return errs
}

func validateLoadBalancerFields(s, old *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	var ranges *validate.Stored
	if old != nil {
		ranges = validate.StoredIn(validate.TextsOf(old.Spec.LoadBalancerSourceRanges, strings.TrimSpace))
	}
	balanced := s.Spec.Type == corev1.ServiceTypeLoadBalancer
	if len(s.Spec.LoadBalancerSourceRanges) > 0 {
		at := validate.SpecPath.Child("LoadBalancerSourceRanges")
		if !balanced {
			errs = append(errs, field.Forbidden(at, onlyForLoadBalancer))
		}
		for i, cidr := range s.Spec.LoadBalancerSourceRanges {
			errs = append(errs, validate.StoredCIDR(strings.TrimSpace(cidr), ranges, at.Index(i))...)
		}
	} else {
		errs = append(errs, validateSourceRangesAnnotation(s, old)...)
	}
	if s.Spec.AllocateLoadBalancerNodePorts != nil && !balanced {
		errs = append(errs, field.Forbidden(validate.SpecPath.Child("allocateLoadBalancerNodePorts"), onlyForLoadBalancer))
	}
	if class := s.Spec.LoadBalancerClass; class != nil {
		if balanced {
			errs = append(errs, validate.Qualified(*class, validate.SpecPath.Child("loadBalancerClass"))...)
		} else {
			errs = append(errs, field.Forbidden(validate.SpecPath.Child("loadBalancerClass"), onlyForLoadBalancer))
		}
	}
	return errs
}

// validateSourceRangesAnnotation checks the annotation that preceded loadBalancerSourceRanges. An
// unchanged annotation is always accepted.
func validateSourceRangesAnnotation(s, old *corev1.Service) (errs field.ErrorList) {
	text, ok := s.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey]
	if !ok {
		return nil
	}
	at := field.NewPath("metadata", "annotations").Key(corev1.AnnotationLoadBalancerSourceRangesKey)
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		errs = append(errs, field.Forbidden(at, onlyForLoadBalancer))
	}
	if strings.TrimSpace(text) == "" || old != nil && old.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey] == text {
		return errs
	}
	for cidr := range strings.SplitSeq(text, ",") {
		errs = append(errs, validate.StoredCIDR(strings.TrimSpace(cidr), nil, at)...)
	}
	return errs
}

func validateTrafficPolicies(s *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	external := validate.SpecPath.Child("externalTrafficPolicy")
	switch {
	case !externallyAccessible(s) && s.Spec.ExternalTrafficPolicy != "":
		errs = append(errs, field.Invalid(external, s.Spec.ExternalTrafficPolicy, "may only be set for externally-accessible services"))
	case externallyAccessible(s):
		errs = append(errs, validate.OneOf(s.Spec.ExternalTrafficPolicy, external, corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)...)
	}
	health := validate.SpecPath.Child("healthCheckNodePort")
	if port := s.Spec.HealthCheckNodePort; port != 0 {
		if !needsHealthCheckPort(s) {
			errs = append(errs, field.Invalid(health, port, "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"))
		} else {
			errs = append(errs, validate.Port(port, health)...)
		}
	}
	if p := s.Spec.InternalTrafficPolicy; p != nil {
		errs = append(errs, validate.NotSupportedUnless(*p, validate.SpecPath.Child("internalTrafficPolicy"), corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)...)
	}
	if d := s.Spec.TrafficDistribution; d != nil {
		errs = append(errs, validate.NotSupportedUnless(*d, validate.SpecPath.Child("trafficDistribution"), corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode)...)
	}
	return errs
}

func validateServiceUpdate(s, old *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	if old.Spec.Type != corev1.ServiceTypeExternalName && s.Spec.Type != corev1.ServiceTypeExternalName {
		errs = append(errs, validateServiceAddressUpdate(&s.Spec, &old.Spec)...)
	}
	if old.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.Type == corev1.ServiceTypeLoadBalancer && !validate.EqualPointers(s.Spec.LoadBalancerClass, old.Spec.LoadBalancerClass) {
		errs = append(errs, field.Invalid(validate.SpecPath.Child("loadBalancerClass"), s.Spec.LoadBalancerClass, onceSet))
	}
	if needsHealthCheckPort(old) && needsHealthCheckPort(s) && s.Spec.HealthCheckNodePort != old.Spec.HealthCheckNodePort {
		errs = append(errs, field.Forbidden(validate.SpecPath.Child("healthCheckNodePort"), "field is immutable"))
	}
	return append(errs, validateService(s, old)...)
}

// validateServiceAddressUpdate keeps the first address and family. A second one may be added, and
// removed with the policy SingleStack.
func validateServiceAddressUpdate(s, old *corev1.ServiceSpec) field.ErrorList {
	var errs field.ErrorList
	ips, families := validate.SpecPath.Child("clusterIPs"), validate.SpecPath.Child("ipFamilies")
	if len(old.ClusterIPs) > 0 {
		switch {
		case len(s.ClusterIPs) == 0:
			errs = append(errs, field.Invalid(ips.Index(0), s.ClusterIPs, "primary clusterIP can not be unset"))
		case s.ClusterIPs[0] != old.ClusterIPs[0]:
			errs = append(errs, field.Invalid(ips.Index(0), s.ClusterIPs, onceSet))
		}
	}
	single := s.IPFamilyPolicy != nil && *s.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack
	if len(old.ClusterIPs) == 2 && len(s.ClusterIPs) > 0 {
		switch {
		case len(s.ClusterIPs) < 2 && !single:
			errs = append(errs, field.Invalid(ips.Index(1), s.ClusterIPs, "secondary clusterIP can not be unset, when `ipFamilyPolicy` is not 'SingleStack'"))
		case len(s.ClusterIPs) == 2 && s.ClusterIPs[1] != old.ClusterIPs[1]:
			errs = append(errs, field.Invalid(ips.Index(1), s.ClusterIPs, onceSet))
		}
	}
	if slices.Contains(old.ClusterIPs, corev1.ClusterIPNone) && slices.Equal(s.ClusterIPs, old.ClusterIPs) {
		return errs // no address depends on the families
	}
	if len(old.IPFamilies) > 0 && len(s.IPFamilies) > 0 && s.IPFamilies[0] != old.IPFamilies[0] {
		errs = append(errs, field.Invalid(families.Index(0), s.IPFamilies, onceSet))
	}
	if len(old.IPFamilies) == 2 && len(s.IPFamilies) == 2 && s.IPFamilies[1] != old.IPFamilies[1] {
		errs = append(errs, field.Invalid(families.Index(1), s.IPFamilies, onceSet))
	}
	return errs
}

func validateServiceStatus(s, old *corev1.Service) field.ErrorList {
	at := field.NewPath("status", "loadBalancer", "ingress")
	var errs field.ErrorList
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) > 0 {
		return field.ErrorList{field.Forbidden(at, "may only be used when `spec.type` is 'LoadBalancer'")}
	}
	before := validate.StoredIn(validate.TextsOf(old.Status.LoadBalancer.Ingress, func(in corev1.LoadBalancerIngress) string { return in.IP }))
	for i, ingress := range s.Status.LoadBalancer.Ingress {
		at := at.Index(i)
		if ingress.IP != "" {
			errs = append(errs, validate.StoredIP(ingress.IP, before, at.Child("ip"))...)
			if ingress.IPMode == nil {
				errs = append(errs, field.Required(at.Child("ipMode"), "must be specified when `ip` is set"))
			}
		} else if ingress.IPMode != nil {
			errs = append(errs, field.Forbidden(at.Child("ipMode"), "may not be specified when `ip` is not set"))
		}
		if ingress.IP != "" && ingress.IPMode != nil {
			errs = append(errs, validate.NotSupportedUnless(*ingress.IPMode, at.Child("ipMode"), corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP)...)
		}
		errs = append(errs, validate.IngressHostname(ingress.Hostname, at.Child("hostname"))...)
	}
	// As upstream, conditions are not validated as metav1.Condition, because clients write
	// incomplete ones.
	return errs
}
