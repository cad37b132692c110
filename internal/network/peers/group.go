package peers

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Group is a set of pods. With a Port, its members are the destinations of these pods' ports of
// that name and protocol, else the pods' addresses.
type Group struct {
	// Namespace is the namespace of the pods. It is empty if NamespaceSelector selects namespaces.
	Namespace         string                `json:"namespace,omitempty"`
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// PodSelector selects the pods; nil selects all.
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`
	Port        string                `json:"port,omitempty"`
	Protocol    corev1.Protocol       `json:"protocol,omitempty"`
}

// MaxGroups is the number of groups that one policy may need. The peers of further groups get no
// traffic. The limit bounds the objects that a user of one namespace can cause.
const MaxGroups = 100

// Everywhere is all pods of the cluster.
func Everywhere() Group { return Group{NamespaceSelector: &metav1.LabelSelector{}} }

// OfPeer returns the group of a policy's peer; ok is false for a block of addresses.
func OfPeer(namespace string, peer *networkingv1.NetworkPolicyPeer) (g Group, ok bool) {
	if peer.IPBlock != nil {
		return g, false
	}
	g = Group{NamespaceSelector: peer.NamespaceSelector, PodSelector: peer.PodSelector}
	if peer.NamespaceSelector == nil {
		g.Namespace = namespace
	}
	return g, true
}

// WithPort returns the group of the destinations of a named port of the group's pods.
func (g Group) WithPort(name string, protocol corev1.Protocol) Group {
	g.Port, g.Protocol = name, protocol
	return g
}

// ID is a name for the group by its content.
func (g Group) ID() string {
	raw, err := json.Marshal(g)
	if err != nil {
		panic(fmt.Sprintf("peers: cannot encode a group: %v", err))
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:16])
}

// Of returns the groups that a policy needs from other nodes, each once: at most MaxGroups. more is
// the number of those left out.
func Of(policy *networkingv1.NetworkPolicy) (groups []Group, more int) {
	seen := map[string]bool{}
	add := func(g Group) {
		if id := g.ID(); !seen[id] {
			seen[id] = true
			groups = append(groups, g)
		}
	}
	if slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) {
		for i := range policy.Spec.Ingress {
			for _, g := range selected(policy.Namespace, policy.Spec.Ingress[i].From) {
				add(g) // a named port is one of the policy's own pods
			}
		}
	}
	if slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) {
		for i := range policy.Spec.Egress {
			rule := &policy.Spec.Egress[i]
			of := selected(policy.Namespace, rule.To)
			for _, g := range of {
				add(g)
			}
			if len(rule.To) == 0 {
				of = []Group{Everywhere()} // for named ports only
			}
			for j := range rule.Ports {
				name, protocol, ok := NamedPort(&rule.Ports[j])
				for _, g := range of {
					if ok {
						add(g.WithPort(name, protocol))
					}
				}
			}
		}
	}
	if len(groups) > MaxGroups {
		return groups[:MaxGroups], len(groups) - MaxGroups
	}
	return groups, 0
}

func selected(namespace string, of []networkingv1.NetworkPolicyPeer) (groups []Group) {
	for i := range of {
		if g, ok := OfPeer(namespace, &of[i]); ok {
			groups = append(groups, g)
		}
	}
	return groups
}

// NamedPort returns the name and protocol of a policy's port; ok is false for a number.
func NamedPort(p *networkingv1.NetworkPolicyPort) (name string, protocol corev1.Protocol, ok bool) {
	if p.Port == nil || p.Port.Type != intstr.String {
		return "", "", false
	}
	protocol = corev1.ProtocolTCP
	if p.Protocol != nil {
		protocol = *p.Protocol
	}
	return p.Port.StrVal, protocol, true
}

// Matcher is a group with parsed selectors.
type Matcher struct {
	Group
	namespaces, pods labels.Selector
}

// Matcher parses the selectors. An invalid one selects nothing.
func (g Group) Matcher() Matcher {
	m := Matcher{Group: g, pods: labels.Everything()}
	if g.NamespaceSelector != nil {
		m.namespaces = selectorOf(g.NamespaceSelector)
	}
	if g.PodSelector != nil {
		m.pods = selectorOf(g.PodSelector)
	}
	return m
}

func selectorOf(s *metav1.LabelSelector) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

// MatchesNamespace reports whether pods of the namespace can be in the group.
func (m Matcher) MatchesNamespace(name string, of map[string]string) bool {
	if m.namespaces == nil {
		return name == m.Namespace
	}
	return m.namespaces.Matches(labels.Set(of))
}

// MatchesPod reports whether a pod of a matching namespace is in the group.
func (m Matcher) MatchesPod(p *corev1.Pod) bool { return m.pods.Matches(labels.Set(p.Labels)) }

// Addresses returns the addresses in the pod's status. A pod with host network and one that has
// ended have none.
func Addresses(p *corev1.Pod) (out []netip.Addr) {
	if p.Spec.HostNetwork || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return nil
	}
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			out = append(out, a.Unmap())
		}
	}
	return out
}

// PortsOf returns the numbers of the pod's ports of a name.
func PortsOf(p *corev1.Pod, name string, protocol corev1.Protocol) (out []uint16) {
	for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			for _, port := range containers[i].Ports {
				given := port.Protocol
				if given == "" {
					given = corev1.ProtocolTCP
				}
				if port.Name == name && given == protocol {
					out = append(out, uint16(port.ContainerPort))
				}
			}
		}
	}
	return out
}

// Members returns the members that a pod of the group gives.
func (m Matcher) Members(p *corev1.Pod) (out []string) {
	for _, a := range Addresses(p) {
		if m.Port == "" {
			out = append(out, a.String())
			continue
		}
		for _, port := range PortsOf(p, m.Port, m.Protocol) {
			out = append(out, netip.AddrPortFrom(a, port).String())
		}
	}
	return out
}
