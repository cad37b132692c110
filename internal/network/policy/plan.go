package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// plan is the desired content of the kernel.
type plan struct {
	sets   map[string]set      // by name
	chains map[string][]rule   // by name
	jumps  map[direction]jumps // from a pod's address to its chain
	self   map[netip.Addr]bool // isolated pods
}

type jumps map[netip.Addr]string

type direction string

const (
	ingress direction = "ingress"
	egress  direction = "egress"
)

// set holds addresses or, for named ports, destinations: an address, a protocol and a port.
type set struct {
	v4           bool
	addresses    []netip.Addr
	destinations []destination
}

type destination struct {
	addr  netip.Addr
	proto uint8
	port  uint16
}

// rule allows packets that match all fields that are set.
type rule struct {
	v4     bool
	peers  string         // set of the other end's addresses; empty matches any
	block  netip.Prefix   // the other end's block; invalid matches any
	except []netip.Prefix // exceptions from block
	proto  uint8          // 0 matches any
	from   uint16         // 0 matches any port
	to     uint16
	named  string // set of destinations
}

var protocols = map[corev1.Protocol]uint8{corev1.ProtocolTCP: unix.IPPROTO_TCP, corev1.ProtocolUDP: unix.IPPROTO_UDP, corev1.ProtocolSCTP: unix.IPPROTO_SCTP}

// inputs holds the objects from which a plan is computed.
type inputs struct {
	node       string
	policies   []*networkingv1.NetworkPolicy
	pods       []*corev1.Pod
	namespaces []*corev1.Namespace
	attached   []attached // this node's pods; their addresses are in force before their status is
}

// planner computes one plan.
type planner struct {
	inputs
	ends        []*end // all pods with addresses
	byNamespace map[string][]*end
	out         plan
}

// end is a pod with its addresses.
type end struct {
	*corev1.Pod
	addresses []netip.Addr
	here      bool // on this node
}

// plan is pure: equal objects give equal plans.
func (p inputs) plan() plan {
	m := planner{inputs: p, byNamespace: map[string][]*end{}, out: plan{
		sets: map[string]set{}, chains: map[string][]rule{}, jumps: map[direction]jumps{ingress: {}, egress: {}}, self: map[netip.Addr]bool{}}}
	m.ends = p.pair()
	for _, e := range m.ends {
		m.byNamespace[e.Namespace] = append(m.byNamespace[e.Namespace], e)
	}
	for _, d := range []direction{ingress, egress} {
		for _, g := range m.groups(d) {
			m.chain(d, g)
		}
	}
	return m.out
}

// pair pairs pods with their addresses. Attachments come first: the status of a pod tells its
// addresses late, and may still tell those that another pod has now.
func (p inputs) pair() (out []*end) {
	taken, done := map[netip.Addr]bool{}, map[types.UID]bool{}
	for _, a := range p.attached {
		out = append(out, &end{a.object(), a.Addresses, true})
		if a.pod != nil {
			done[a.pod.UID] = true
		}
		for _, addr := range a.Addresses {
			taken[addr] = true
		}
	}
	for _, pod := range p.pods {
		if done[pod.UID] && pod.UID != "" {
			continue
		}
		given := slices.DeleteFunc(addresses(pod), func(a netip.Addr) bool { return taken[a] })
		if len(given) > 0 {
			out = append(out, &end{pod, given, pod.Spec.NodeName == p.node})
		}
	}
	return out
}

// addresses returns the addresses in the pod's status; a pod with host network has none.
func addresses(p *corev1.Pod) (out []netip.Addr) {
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

// group is the set of this node's pods that the same policies isolate in a direction.
type group struct {
	policies []*networkingv1.NetworkPolicy
	pods     []*end
}

func (m *planner) groups(d direction) []group {
	chosen := map[*end][]*networkingv1.NetworkPolicy{}
	var order []*end
	for _, policy := range m.policies {
		if !slices.Contains(policy.Spec.PolicyTypes, map[direction]networkingv1.PolicyType{ingress: networkingv1.PolicyTypeIngress, egress: networkingv1.PolicyTypeEgress}[d]) {
			continue
		}
		selector := selectorOf(&policy.Spec.PodSelector)
		for _, pod := range m.byNamespace[policy.Namespace] {
			if pod.here && selector.Matches(labels.Set(pod.Labels)) {
				if chosen[pod] == nil {
					order = append(order, pod)
				}
				chosen[pod] = append(chosen[pod], policy)
			}
		}
	}
	byKey := map[string]*group{}
	for _, pod := range order {
		key := ""
		for _, policy := range chosen[pod] {
			key += policy.Namespace + "/" + policy.Name + " "
		}
		if byKey[key] == nil {
			byKey[key] = &group{policies: chosen[pod]}
		}
		byKey[key].pods = append(byKey[key].pods, pod)
	}
	var out []group
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		out = append(out, *byKey[key])
	}
	return out
}

func selectorOf(s *metav1.LabelSelector) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

// chain adds the group's chain and the jumps to it.
func (m *planner) chain(d direction, g group) {
	var rules []rule
	for _, policy := range g.policies {
		if d == ingress {
			for _, r := range policy.Spec.Ingress {
				rules = append(rules, m.rules(d, g, policy.Namespace, r.From, r.Ports)...)
			}
			continue
		}
		for _, r := range policy.Spec.Egress {
			rules = append(rules, m.rules(d, g, policy.Namespace, r.To, r.Ports)...)
		}
	}
	name := "pol-" + string(d) + "-" + digest(ruleList(rules))
	m.out.chains[name] = rules
	for _, pod := range g.pods {
		for _, a := range pod.addresses {
			m.out.jumps[d][a] = name
			m.out.self[a] = true
		}
	}
}

// rules combines the peers and ports of one entry of a policy.
func (m *planner) rules(d direction, g group, namespace string, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) []rule {
	pods, blocks := m.peers(namespace, peers)
	if len(peers) == 0 {
		pods = m.ends // named ports are looked up in all pods
	}
	// A named port is a port of the receiving end.
	receivers := pods
	if d == ingress {
		receivers = g.pods
	}
	var out []rule
	for _, v4 := range []bool{true, false} {
		var ends []rule
		switch set := m.addressSet(v4, pods); {
		case len(peers) == 0:
			ends = append(ends, rule{v4: v4})
		case set != "":
			ends = append(ends, rule{v4: v4, peers: set})
		}
		for _, b := range blocks {
			if b.block.Addr().Is4() == v4 {
				ends = append(ends, b)
			}
		}
		for _, end := range ends {
			out = append(out, m.withPorts(end, ports, receivers)...)
		}
	}
	return out
}

// peers resolves a list of peers to pods and blocks.
func (m *planner) peers(namespace string, peers []networkingv1.NetworkPolicyPeer) (pods []*end, blocks []rule) {
	for _, peer := range peers {
		if peer.IPBlock != nil {
			if b, ok := blockRule(peer.IPBlock); ok {
				blocks = append(blocks, b)
			}
			continue
		}
		in := []string{namespace}
		if peer.NamespaceSelector != nil {
			in = nil
			selector := selectorOf(peer.NamespaceSelector)
			for _, ns := range m.namespaces {
				if selector.Matches(labels.Set(ns.Labels)) {
					in = append(in, ns.Name)
				}
			}
		}
		selector := labels.Everything()
		if peer.PodSelector != nil {
			selector = selectorOf(peer.PodSelector)
		}
		for _, ns := range in {
			for _, pod := range m.byNamespace[ns] {
				if selector.Matches(labels.Set(pod.Labels)) {
					pods = append(pods, pod)
				}
			}
		}
	}
	return pods, blocks
}

func blockRule(b *networkingv1.IPBlock) (rule, bool) {
	prefix, err := netip.ParsePrefix(b.CIDR)
	if err != nil {
		return rule{}, false
	}
	r := rule{v4: prefix.Addr().Is4(), block: prefix.Masked()}
	for _, text := range b.Except {
		if e, err := netip.ParsePrefix(text); err == nil {
			r.except = append(r.except, e.Masked())
		}
	}
	return r, true
}

// withPorts returns one rule per port, or a single rule if all ports are allowed.
func (m *planner) withPorts(end rule, ports []networkingv1.NetworkPolicyPort, receivers []*end) []rule {
	if len(ports) == 0 {
		return []rule{end}
	}
	var out []rule
	for _, p := range ports {
		r, proto := end, corev1.ProtocolTCP
		if p.Protocol != nil {
			proto = *p.Protocol
		}
		r.proto = protocols[proto]
		switch {
		case r.proto == 0:
			continue // a port type that the API does not define
		case p.Port == nil:
		case p.Port.Type == intstr.String:
			if r.named = m.destinationSet(end.v4, receivers, p.Port.StrVal, proto); r.named == "" {
				continue // no pod has a port of that name
			}
		default:
			r.from, r.to = uint16(p.Port.IntVal), uint16(p.Port.IntVal)
			if p.EndPort != nil {
				r.to = uint16(*p.EndPort)
			}
		}
		out = append(out, r)
	}
	return out
}

// addressSet returns the name of the set with the pods' addresses of a family, or "" if there are
// none.
func (m *planner) addressSet(v4 bool, pods []*end) string {
	s := set{v4: v4}
	for _, pod := range pods {
		for _, a := range pod.addresses {
			if a.Is4() == v4 {
				s.addresses = append(s.addresses, a)
			}
		}
	}
	slices.SortFunc(s.addresses, netip.Addr.Compare)
	s.addresses = slices.Compact(s.addresses)
	return m.addSet("peers", s, len(s.addresses))
}

// destinationSet returns the name of the set with the destinations of the pods' named port.
func (m *planner) destinationSet(v4 bool, pods []*end, name string, proto corev1.Protocol) string {
	s := set{v4: v4}
	for _, pod := range pods {
		for _, c := range append(slices.Clone(pod.Spec.InitContainers), pod.Spec.Containers...) {
			for _, port := range c.Ports {
				given := port.Protocol
				if given == "" {
					given = corev1.ProtocolTCP
				}
				if port.Name != name || given != proto {
					continue
				}
				for _, a := range pod.addresses {
					if a.Is4() == v4 {
						s.destinations = append(s.destinations, destination{a, protocols[proto], uint16(port.ContainerPort)})
					}
				}
			}
		}
	}
	slices.SortFunc(s.destinations, func(a, b destination) int { return strings.Compare(a.String(), b.String()) })
	s.destinations = slices.Compact(s.destinations)
	return m.addSet("ports", s, len(s.destinations))
}

func (m *planner) addSet(kind string, s set, size int) string {
	if size == 0 {
		return ""
	}
	name := "pol-" + kind + "-" + digest(s)
	m.out.sets[name] = s
	return name
}

// digest derives a name from content. Equal names are taken for equal content, so two contents must
// never share one: users choose labels and blocks.
func digest(content fmt.Stringer) string {
	sum := sha256.Sum256([]byte(content.String()))
	return hex.EncodeToString(sum[:16])
}

// String lists the content for digest.
func (s set) String() string {
	return fmt.Sprintf("{v4:%t addresses:%v destinations:%v}", s.v4, s.addresses, s.destinations)
}

func (d destination) String() string { return fmt.Sprintf("%s %d %d", d.addr, d.proto, d.port) }

func (r rule) String() string {
	return fmt.Sprintf("{v4:%t peers:%s block:%s except:%v proto:%d from:%d to:%d named:%s}", r.v4, r.peers, r.block, r.except, r.proto, r.from, r.to, r.named)
}

// ruleList is a chain's rules.
type ruleList []rule

func (l ruleList) String() string { return fmt.Sprint([]rule(l)) }
