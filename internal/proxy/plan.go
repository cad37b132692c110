package proxy

import (
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	netutils "k8s.io/utils/net"
)

// lookupMap names the map that holds a frontend.
type lookupMap string

const (
	// servicesMap holds frontends as all clients see them. For externalTrafficPolicy Local it
	// holds them as clients inside the cluster see them.
	servicesMap lookupMap = "services"
	// externalMap holds frontends that clients outside of the cluster see differently.
	externalMap lookupMap = "external"
	// nodePortsMap and externalNodePortsMap are the same for node ports, whose frontends have
	// no address.
	nodePortsMap         lookupMap = "nodeports"
	externalNodePortsMap lookupMap = "external-nodeports"
)

// frontend is a key of one of these maps.
type frontend struct {
	lookupMap lookupMap
	addr      netip.Addr // for node ports, the unspecified address of the family
	proto     uint8
	port      uint16
}

// masquerading selects the clients whose source address is replaced by the node's, so that answers
// return through this node.
type masquerading uint8

const (
	// The zero value masquerades no clients.
	_ masquerading = iota
	// masqueradeOutside selects clients without a pod's address.
	masqueradeOutside
	masqueradeAll
)

// treatment is how connections to a frontend are handled.
type treatment struct {
	refuse, drop bool
	masquerade   masquerading
	affinity     int32  // seconds; 0 means none
	ranges       string // loadBalancerSourceRanges, joined by commas; empty allows all
	group        groupName
}

// groupName names a group within its Service.
type groupName struct {
	port  string // name and protocol of the port
	local bool
	v4    bool
}

// servicePlan is the plan for one Service. It depends on nothing but the arguments of plan.
type servicePlan struct {
	frontends map[frontend]treatment
	// localhost are load balancer addresses of a machine that has loopback addresses only. As for
	// node ports, listeners serve them (ADR 40).
	localhost map[netip.AddrPort]treatment
	groups    map[groupName][]backend
	affine    map[groupName]bool // groups used with session affinity
	// local are this node's backends. A pod that reaches itself must be masqueraded.
	local []netip.Addr
	// healthPort is the healthCheckNodePort, or 0.
	healthPort int32
	// localEndpoints counts this node's ready backends. Terminating ones serve as a last resort
	// (KEP-1669), but a load balancer must stop choosing this node.
	localEndpoints int
}

// plan computes this node's plan for a Service from the Service and its slices.
func plan(svc *corev1.Service, eps []*discoveryv1.EndpointSlice, me self) servicePlan {
	p := servicePlan{frontends: map[frontend]treatment{}, localhost: map[netip.AddrPort]treatment{}, groups: map[groupName][]backend{}, affine: map[groupName]bool{}}
	if svc == nil || svc.Spec.Type == corev1.ServiceTypeExternalName || svc.Spec.ClusterIP == corev1.ClusterIPNone || svc.Spec.ClusterIP == "" {
		return p
	}
	if _, other := svc.Labels["service.kubernetes.io/service-proxy-name"]; other {
		return p
	}
	ready := map[netip.Addr]bool{}
	for _, v4 := range []bool{true, false} {
		for _, port := range svc.Spec.Ports {
			all := endpointsOf(eps, port, v4, me)
			p.planPort(svc, port, all, v4, me)
			for _, ep := range all {
				if ep.local && ep.ready {
					ready[ep.addr] = true
				}
			}
		}
	}
	slices.SortFunc(p.local, netip.Addr.Compare)
	p.local = slices.Compact(p.local)
	if svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		p.healthPort, p.localEndpoints = svc.Spec.HealthCheckNodePort, len(ready)
	}
	return p
}

func (p *servicePlan) planPort(svc *corev1.Service, port corev1.ServicePort, all []endpoint, v4 bool, me self) {
	proto, ok := protocolNumber(protocolOf(port))
	if !ok {
		return
	}
	name := groupName{port: port.Name + "/" + string(protocolOf(port)), v4: v4}
	localName := name
	localName.local = true
	cluster, local := clusterBackends(all, me), localBackends(all)
	affinity := affinitySeconds(svc)

	internal := treatment{masquerade: masqueradeOutside, affinity: affinity, group: name}
	internal.refuse = len(cluster) == 0
	if svc.Spec.InternalTrafficPolicy != nil && *svc.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal {
		internal.group, internal.refuse = localName, len(all) == 0
		internal.drop = len(local) == 0 && !internal.refuse
	}
	// With policy Cluster, outside connections may go to any node and must return through this one.
	inside := treatment{masquerade: masqueradeAll, affinity: affinity, group: name, refuse: len(cluster) == 0}
	var outside *treatment
	if svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		inside.masquerade = masqueradeOutside
		// A node without endpoints drops packets, so that the load balancer notices.
		outside = &treatment{affinity: affinity, group: localName, refuse: len(all) == 0, drop: len(local) == 0 && len(all) > 0}
	}

	used := map[groupName]bool{}
	add := func(f frontend, t treatment) {
		p.frontends[f] = t
		if !t.refuse && !t.drop {
			used[t.group] = true
			p.affine[t.group] = p.affine[t.group] || t.affinity > 0
		}
	}
	addExternal := func(in, out lookupMap, addr netip.Addr, number int32, ranges string) {
		within := inside
		within.ranges = ranges
		add(frontend{in, addr, proto, uint16(number)}, within)
		if outside != nil {
			without := *outside
			without.ranges = ranges
			add(frontend{out, addr, proto, uint16(number)}, without)
		}
	}
	for _, ip := range addresses(svc.Spec.ClusterIPs, v4, svc.Spec.ClusterIP) {
		add(frontend{servicesMap, ip, proto, uint16(port.Port)}, internal)
	}
	for _, ip := range addresses(svc.Spec.ExternalIPs, v4) {
		addExternal(servicesMap, externalMap, ip, port.Port, "")
	}
	for _, ip := range loadBalancerIPs(svc, v4) {
		if ip.IsLoopback() {
			if proto == unix.IPPROTO_TCP && !inside.refuse && allows(sourceRanges(svc, v4), ip) {
				p.localhost[netip.AddrPortFrom(ip, uint16(port.Port))] = inside
				used[name] = true
			}
			continue
		}
		addExternal(servicesMap, externalMap, ip, port.Port, sourceRanges(svc, v4))
	}
	if port.NodePort != 0 && svc.Spec.Type != corev1.ServiceTypeClusterIP && hasFamily(svc, v4) {
		addExternal(nodePortsMap, externalNodePortsMap, unspecified(v4), port.NodePort, "")
	}
	if used[name] {
		p.groups[name] = cluster
	}
	if used[localName] {
		p.groups[localName] = local
	}
	for _, b := range local {
		p.local = append(p.local, b.addr)
	}
}

func unspecified(v4 bool) netip.Addr {
	if v4 {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// addresses parses the addresses of one family. It uses more if texts is empty, as in objects
// without defaults.
func addresses(texts []string, v4 bool, more ...string) []netip.Addr {
	if len(texts) == 0 {
		texts = more
	}
	var out []netip.Addr
	for _, t := range texts {
		if ip, err := netip.ParseAddr(t); err == nil && ip.Unmap().Is4() == v4 {
			out = append(out, ip.Unmap())
		}
	}
	return out
}

func hasFamily(svc *corev1.Service, v4 bool) bool {
	return len(addresses(svc.Spec.ClusterIPs, v4, svc.Spec.ClusterIP)) > 0
}

// loadBalancerIPs leaves out IPs with ipMode Proxy, whose traffic must pass the load balancer
// itself (KEP-1860).
func loadBalancerIPs(svc *corev1.Service, v4 bool) []netip.Addr {
	var texts []string
	for _, in := range svc.Status.LoadBalancer.Ingress {
		if in.IP != "" && (in.IPMode == nil || *in.IPMode == corev1.LoadBalancerIPModeVIP) {
			texts = append(texts, in.IP)
		}
	}
	return addresses(texts, v4)
}

// sourceRanges returns the valid loadBalancerSourceRanges of the family. If there are only ranges
// of the other family, no client of this family is allowed; "!" stands for that. Stored ranges may
// contain spaces and leading zeros.
func sourceRanges(svc *corev1.Service, v4 bool) string {
	if len(svc.Spec.LoadBalancerSourceRanges) == 0 {
		return ""
	}
	out := ""
	for _, text := range svc.Spec.LoadBalancerSourceRanges {
		if r, ok := loosePrefix(strings.TrimSpace(text)); ok && r.Addr().Is4() == v4 {
			if r.Bits() == 0 {
				return ""
			}
			out += r.Masked().String() + ","
		}
	}
	if out == "" {
		return "!"
	}
	return out
}

// allows reports whether source ranges contain the address.
func allows(ranges string, a netip.Addr) bool {
	if ranges == "" {
		return true
	}
	for text := range strings.SplitSeq(ranges, ",") {
		if r, err := netip.ParsePrefix(text); err == nil && r.Contains(a) {
			return true
		}
	}
	return false
}

// loosePrefix parses a range with leading zeros, which older versions accepted. An IPv4-mapped IPv6
// range becomes an IPv4 range.
func loosePrefix(text string) (netip.Prefix, bool) {
	_, r, err := netutils.ParseCIDRSloppy(text)
	if err != nil {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(r.IP)
	bits, all := r.Mask.Size()
	if mapped := addr.Unmap(); mapped != addr {
		if bits -= all - mapped.BitLen(); bits < 0 {
			return netip.Prefix{}, false
		}
		addr = mapped
	}
	return netip.PrefixFrom(addr, bits), ok
}

func affinitySeconds(svc *corev1.Service) int32 {
	if svc.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return 0
	}
	if c := svc.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		return *c.ClientIP.TimeoutSeconds
	}
	return corev1.DefaultClientIPServiceAffinitySeconds
}

func protocolNumber(p corev1.Protocol) (uint8, bool) {
	switch p {
	case corev1.ProtocolTCP:
		return unix.IPPROTO_TCP, true
	case corev1.ProtocolUDP:
		return unix.IPPROTO_UDP, true
	case corev1.ProtocolSCTP:
		return unix.IPPROTO_SCTP, true
	}
	return 0, false
}

// serviceOf returns the Service of a slice.
func serviceOf(s *discoveryv1.EndpointSlice) (types.NamespacedName, bool) {
	name := s.Labels[discoveryv1.LabelServiceName]
	return types.NamespacedName{Namespace: s.Namespace, Name: name}, name != ""
}
