package architecture

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Addresses are those of the cluster that policies need.
type Addresses struct {
	// Inside are the ranges of pods and Services. Servers beyond the cluster are in none of them.
	Inside []netip.Prefix
	// APIServers may be reached by components with access to the API.
	APIServers []netip.AddrPort
}

// dnsPort is the port of DNS servers. Its connections are always allowed.
const dnsPort = 53

// maxPolicyName is the maximum length of a NetworkPolicy's name.
const maxPolicyName = 253

// PolicyNames returns the names of the NetworkPolicies of a component.
func PolicyNames(component string) (ingress, egress string) {
	name := "component-" + component
	if len(name) > maxPolicyName-len("-ingress") {
		sum := sha256.Sum256([]byte(component))
		name = name[:maxPolicyName-len("-ingress")-17] + "-" + hex.EncodeToString(sum[:8])
	}
	return name + "-ingress", name + "-egress"
}

// labelValue returns the component's name, or a part of it with a hash if it is no label's value.
func labelValue(component string) string {
	if len(component) <= 63 {
		return component
	}
	sum := sha256.Sum256([]byte(component))
	return strings.TrimRight(component[:46], "-.") + "-" + hex.EncodeToString(sum[:8])
}

// Policies returns the NetworkPolicies that limit the connections of a component to the declared
// ones, and the hosts that no policy can express. Without NetworkEnforce there are none.
func (m *Model) Policies(ref ComponentReference, at Addresses) (policies []*networkingv1.NetworkPolicy, hosts []string) {
	c := m.components[ref]
	if c == nil || m.Network(ref) != NetworkEnforce {
		return nil, nil
	}
	ingress, egress := PolicyNames(ref.Name)
	policies = append(policies, m.policy(c, ingress, networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, Ingress: m.ingressRules(ref),
	}))
	if len(c.Spec.Requires)+len(c.Spec.RequiresOutside) == 0 {
		return policies, nil
	}
	rules, hosts := m.egressRules(ref, at)
	return append(policies, m.policy(c, egress, networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}, Egress: rules,
	})), hosts
}

func (m *Model) policy(c *Component, name string, spec networkingv1.NetworkPolicySpec) *networkingv1.NetworkPolicy {
	yes := true
	spec.PodSelector = *c.Spec.Selector.DeepCopy()
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.Namespace, Name: name,
			Labels:      map[string]string{ComponentLabel: labelValue(c.Name)},
			Annotations: map[string]string{ComponentAnnotation: c.Name},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: GroupVersion.String(), Kind: "Component", Name: c.Name, UID: c.UID, Controller: &yes, BlockOwnerDeletion: &yes,
			}},
		},
		Spec: spec,
	}
}

// Permitted reports whether a requirement may be used: it is met, and breaks no layer and no
// boundary, and no System forbids it.
func (m *Model) Permitted(from ComponentReference, requirement int) bool {
	at := fmt.Sprintf("spec.requires[%d]", requirement)
	_, found := m.unmet(from, requirement, at)
	return found && len(m.layerFaults(from, requirement, at)) == 0 && len(m.forbiddenFaults(from, requirement, at)) == 0
}

// ingressRules allows the component's own pods, the permitted requirers on the required offers, and
// all clients on exposed ones.
func (m *Model) ingressRules(ref ComponentReference) (rules []networkingv1.NetworkPolicyIngressRule) {
	c := m.components[ref]
	rules = append(rules, networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{m.peer(ref, ref.Namespace)}})
	for _, from := range m.requirers[ref] {
		var offers []Offer
		for i := range m.components[from].Spec.Requires {
			to, some, found := m.Offers(from, i)
			if to == ref && found && m.Permitted(from, i) {
				offers = append(offers, some...)
			}
		}
		if ports := policyPorts(offers); len(ports) > 0 {
			rules = append(rules, networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{m.peer(from, ref.Namespace)}, Ports: ports})
		}
	}
	var exposed []Offer
	for _, o := range c.Spec.Offers {
		if slices.Contains(c.Spec.Exposed, o.Name) {
			exposed = append(exposed, o)
		}
	}
	if ports := policyPorts(exposed); len(ports) > 0 {
		rules = append(rules, networkingv1.NetworkPolicyIngressRule{Ports: ports})
	}
	return rules
}

// peer selects the pods of a component in the policy of a namespace.
func (m *Model) peer(ref ComponentReference, namespace string) networkingv1.NetworkPolicyPeer {
	p := networkingv1.NetworkPolicyPeer{PodSelector: m.components[ref].Spec.Selector.DeepCopy()}
	if ref.Namespace != namespace {
		p.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ref.Namespace}}
	}
	return p
}

// policyPorts returns the ports of offers, each once.
func policyPorts(offers []Offer) (ports []networkingv1.NetworkPolicyPort) {
	seen := map[Offer]bool{}
	for _, o := range offers {
		key := Offer{Port: o.Port, Protocol: cmp.Or(o.Protocol, string(corev1.ProtocolTCP))}
		if !seen[key] {
			seen[key] = true
			ports = append(ports, policyPort(key.Port, key.Protocol))
		}
	}
	return ports
}

func policyPort(port intstr.IntOrString, protocol string) networkingv1.NetworkPolicyPort {
	p := corev1.Protocol(cmp.Or(protocol, string(corev1.ProtocolTCP)))
	return networkingv1.NetworkPolicyPort{Port: &port, Protocol: &p}
}

// egressRules allows DNS, the component's own pods, the permitted requirements, servers beyond the
// cluster, and the API servers if the component has access. A host cannot be expressed, so its
// ports are allowed to all addresses that are not inside.
func (m *Model) egressRules(ref ComponentReference, at Addresses) (rules []networkingv1.NetworkPolicyEgressRule, hosts []string) {
	c := m.components[ref]
	dns := intstr.FromInt32(dnsPort)
	rules = append(rules, networkingv1.NetworkPolicyEgressRule{Ports: []networkingv1.NetworkPolicyPort{policyPort(dns, "UDP"), policyPort(dns, "TCP")}},
		networkingv1.NetworkPolicyEgressRule{To: []networkingv1.NetworkPolicyPeer{m.peer(ref, ref.Namespace)}})
	for i := range c.Spec.Requires {
		to, offers, found := m.Offers(ref, i)
		if ports := policyPorts(offers); found && to != ref && len(ports) > 0 && m.Permitted(ref, i) {
			rules = append(rules, networkingv1.NetworkPolicyEgressRule{To: []networkingv1.NetworkPolicyPeer{m.peer(to, ref.Namespace)}, Ports: ports})
		}
	}
	if len(c.Spec.Access) > 0 {
		for _, server := range at.APIServers {
			rules = append(rules, networkingv1.NetworkPolicyEgressRule{
				To:    []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: netip.PrefixFrom(server.Addr(), server.Addr().BitLen()).String()}}},
				Ports: []networkingv1.NetworkPolicyPort{policyPort(intstr.FromInt32(int32(server.Port())), "TCP")},
			})
		}
	}
	for _, o := range c.Spec.RequiresOutside {
		rule := networkingv1.NetworkPolicyEgressRule{}
		for _, p := range o.Ports {
			rule.Ports = append(rule.Ports, policyPort(intstr.FromInt32(p.Port), p.Protocol))
		}
		if prefix, err := netip.ParsePrefix(o.CIDR); err == nil {
			rule.To = []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: prefix.Masked().String()}}}
		} else {
			hosts = append(hosts, o.Host)
			rule.To = at.beyond()
		}
		rules = append(rules, rule)
	}
	return rules, hosts
}

// beyond returns blocks of all addresses that are not inside.
func (a Addresses) beyond() (peers []networkingv1.NetworkPolicyPeer) {
	for _, all := range []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")} {
		block := &networkingv1.IPBlock{CIDR: all.String()}
		for _, p := range a.Inside {
			if p.Addr().Is4() == all.Addr().Is4() {
				block.Except = append(block.Except, p.Masked().String())
			}
		}
		peers = append(peers, networkingv1.NetworkPolicyPeer{IPBlock: block})
	}
	return peers
}
