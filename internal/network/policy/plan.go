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

	"github.com/knarr-project/knarr/internal/network/peers"
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
	// published holds the members of groups on other nodes by the group's ID, if pods are only this
	// node's.
	published map[string]peers.Members
}

// planner computes one plan.
type planner struct {
	inputs
	ends        []*end // all known pods with addresses
	byNamespace map[string][]*end
	known       map[netip.Addr]bool // addresses of ends
	out         plan
	needs       map[string]bool // IDs of the groups that the plan uses
}

// end is a pod with its addresses.
type end struct {
	*corev1.Pod
	addresses []netip.Addr
	here      bool // on this node
}

// plan is pure: equal objects give equal plans. needs are the IDs of the groups that it uses.
func (p inputs) plan() (out plan, needs map[string]bool) {
	m := planner{inputs: p, byNamespace: map[string][]*end{}, known: map[netip.Addr]bool{}, needs: map[string]bool{}, out: plan{
		sets: map[string]set{}, chains: map[string][]rule{}, jumps: map[direction]jumps{ingress: {}, egress: {}}, self: map[netip.Addr]bool{}}}
	m.ends = p.pair()
	for _, e := range m.ends {
		m.byNamespace[e.Namespace] = append(m.byNamespace[e.Namespace], e)
		for _, a := range e.addresses {
			m.known[a] = true
		}
	}
	for _, d := range []direction{ingress, egress} {
		for _, g := range m.groups(d) {
			m.chain(d, g)
		}
	}
	return m.out, m.needs
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
		given := slices.DeleteFunc(peers.Addresses(pod), func(a netip.Addr) bool { return taken[a] })
		if len(given) > 0 {
			out = append(out, &end{pod, given, pod.Spec.NodeName == p.node})
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
		if len(m.byNamespace[policy.Namespace]) == 0 || !slices.Contains(policy.Spec.PolicyTypes, map[direction]networkingv1.PolicyType{ingress: networkingv1.PolicyTypeIngress, egress: networkingv1.PolicyTypeEgress}[d]) {
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
func (m *planner) rules(d direction, g group, namespace string, from []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) []rule {
	groups, blocks := split(namespace, from)
	// A named port is a port of the receiving end.
	destinations := func(name string, protocol corev1.Protocol) []destination {
		return destinationsOf(g.pods, name, protocol)
	}
	if d == egress {
		receivers := groups
		if len(from) == 0 {
			receivers = []peers.Group{peers.Everywhere()}
		}
		destinations = func(name string, protocol corev1.Protocol) (out []destination) {
			for _, r := range receivers {
				out = append(out, m.destinations(r.WithPort(name, protocol))...)
			}
			return out
		}
	}
	var addresses []netip.Addr
	for _, g := range groups {
		addresses = append(addresses, m.addresses(g)...)
	}
	var out []rule
	for _, v4 := range []bool{true, false} {
		var ends []rule
		switch set := m.addressSet(v4, addresses); {
		case len(from) == 0:
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
			out = append(out, m.withPorts(end, ports, destinations)...)
		}
	}
	return out
}

// split divides a list of peers into groups of pods and blocks of addresses.
func split(namespace string, of []networkingv1.NetworkPolicyPeer) (groups []peers.Group, blocks []rule) {
	for i := range of {
		if g, ok := peers.OfPeer(namespace, &of[i]); ok {
			groups = append(groups, g)
		} else if b, ok := blockRule(of[i].IPBlock); ok {
			blocks = append(blocks, b)
		}
	}
	return groups, blocks
}

// matching returns the known pods of a group.
func (m *planner) matching(g peers.Group) (out []*end) {
	matcher := g.Matcher()
	in := []string{g.Namespace}
	if g.NamespaceSelector != nil {
		in = nil
		for _, ns := range m.namespaces {
			if len(m.byNamespace[ns.Name]) > 0 && matcher.MatchesNamespace(ns.Name, ns.Labels) {
				in = append(in, ns.Name)
			}
		}
	}
	for _, ns := range in {
		for _, pod := range m.byNamespace[ns] {
			if matcher.MatchesPod(pod.Pod) {
				out = append(out, pod)
			}
		}
	}
	return out
}

// addresses returns the addresses of a group's pods. What is published of an address that a known
// pod has now may be about an earlier pod, so it does not count.
func (m *planner) addresses(g peers.Group) (out []netip.Addr) {
	for _, pod := range m.matching(g) {
		out = append(out, pod.addresses...)
	}
	id := g.ID()
	m.needs[id] = true
	for _, a := range m.published[id].Addresses {
		if !m.known[a] {
			out = append(out, a)
		}
	}
	return out
}

// destinations returns the destinations of a group with a named port.
func (m *planner) destinations(g peers.Group) []destination {
	out := destinationsOf(m.matching(g), g.Port, g.Protocol)
	id := g.ID()
	m.needs[id] = true
	for _, d := range m.published[id].Destinations {
		if !m.known[d.Addr()] {
			out = append(out, destination{d.Addr(), protocols[g.Protocol], d.Port()})
		}
	}
	return out
}

// destinationsOf returns the destinations of a named port of pods.
func destinationsOf(pods []*end, name string, protocol corev1.Protocol) (out []destination) {
	for _, pod := range pods {
		for _, port := range peers.PortsOf(pod.Pod, name, protocol) {
			for _, a := range pod.addresses {
				out = append(out, destination{a, protocols[protocol], port})
			}
		}
	}
	return out
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
func (m *planner) withPorts(end rule, ports []networkingv1.NetworkPolicyPort, destinations func(string, corev1.Protocol) []destination) []rule {
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
			if r.named = m.destinationSet(end.v4, destinations(p.Port.StrVal, proto)); r.named == "" {
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

// addressSet returns the name of the set with the addresses of a family, or "" if there are none.
func (m *planner) addressSet(v4 bool, addresses []netip.Addr) string {
	s := set{v4: v4}
	for _, a := range addresses {
		if a.Is4() == v4 {
			s.addresses = append(s.addresses, a)
		}
	}
	slices.SortFunc(s.addresses, netip.Addr.Compare)
	s.addresses = slices.Compact(s.addresses)
	return m.addSet("peers", s, len(s.addresses))
}

// destinationSet returns the name of the set with the destinations of a family, or "" if there are
// none.
func (m *planner) destinationSet(v4 bool, destinations []destination) string {
	s := set{v4: v4}
	for _, d := range destinations {
		if d.addr.Is4() == v4 {
			s.destinations = append(s.destinations, d)
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
