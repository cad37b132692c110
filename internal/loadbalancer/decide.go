package loadbalancer

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Class is knarr's own loadBalancerClass.
const Class = "knarr.dev/load-balancer"

// Condition is the type of the Service condition that marks addresses from here. Its reason is
// FromPool or FromNodes, and its message lists the addresses. An add-on that changes the addresses
// leaves the message behind, and thereby takes the Service over.
const (
	Condition  = "knarr.dev/LoadBalancer"
	FromPool   = "FromPool"
	FromNodes  = "FromNodes"
	maxOfNodes = 64 // nodes' addresses in one status
)

// world is everything that decides about addresses.
type world struct {
	services []*corev1.Service // of type LoadBalancer, in any order
	nodes    []node            // usable ones, sorted by name
	pools    []pool            // of LoadBalancerPools, sorted by name
	ranges   *pool             // of the flag; nil means none
	useNodes bool
	off      bool // an add-on gives addresses
	listens  map[string]string
	// endpointNodes returns the nodes with a ready endpoint of the Service.
	endpointNodes func(*corev1.Service) map[string]bool
	// nodePortOwner returns another Service with the node port, such as TCP/30080.
	nodePortOwner func(port string, except *corev1.Service) (types.NamespacedName, bool)
}

// node is a node that receives traffic from outside.
type node struct {
	name      string
	addresses []netip.Addr
}

// outcome is the decision about one Service. Without addresses, pending is the reason.
type outcome struct {
	service   *corev1.Service
	addresses []netip.Addr
	reason    string // FromPool or FromNodes
	pending   string
}

// Handled reports whether the Service gets addresses from here.
func Handled(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && (s.Spec.LoadBalancerClass == nil || *s.Spec.LoadBalancerClass == Class)
}

// decide computes the addresses of all handled Services. Holders are first, so that they keep what
// they have; then older Services come before younger ones.
func decide(w world) []outcome {
	r := round{world: w, taken: map[netip.Addr]types.NamespacedName{}, held: map[netip.Addr]types.NamespacedName{}, ports: map[string]types.NamespacedName{}}
	var mine []*corev1.Service
	for _, s := range w.services {
		switch {
		case s.DeletionTimestamp != nil && Handled(s):
		case Handled(s) && !w.off && !foreign(s):
			mine = append(mine, s)
		default:
			for _, a := range addressesOf(s) {
				r.taken[a] = nameOf(s)
			}
		}
	}
	slices.SortFunc(mine, func(a, b *corev1.Service) int {
		return cmp.Or(-cmp.Compare(len(heldBy(a)), len(heldBy(b))), a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, s := range mine {
		for _, a := range heldBy(s) {
			if _, twice := r.held[a]; !twice {
				r.held[a] = nameOf(s)
			}
		}
	}
	out := make([]outcome, len(mine))
	var late []int
	for i, s := range mine {
		out[i].service = s
		if pools := w.poolsOf(s); len(pools) > 0 && !r.keep(&out[i], pools) {
			late = append(late, i)
		} else if len(pools) == 0 {
			r.fromNodes(&out[i])
		}
	}
	for _, i := range late {
		r.fromPools(&out[i], w.poolsOf(out[i].service))
	}
	return out
}

// round is the state of one decision.
type round struct {
	world
	taken map[netip.Addr]types.NamespacedName // addresses from pools
	held  map[netip.Addr]types.NamespacedName // addresses that handled Services have
	ports map[string]types.NamespacedName     // ports at the nodes' addresses
}

// poolsOf returns the pools of the Service: LoadBalancerPools that select it, else the flag's
// ranges.
func (w world) poolsOf(s *corev1.Service) []pool {
	var out []pool
	for _, p := range w.pools {
		if p.serves(s) {
			out = append(out, p)
		}
	}
	if out == nil && w.ranges != nil {
		out = []pool{*w.ranges}
	}
	return out
}

// keep lets a holder keep its addresses if they are still right.
func (r *round) keep(o *outcome, pools []pool) bool {
	s := o.service
	held := heldBy(s)
	if len(held) == 0 {
		return false
	}
	wanted, wrong := requested(s)
	if wrong != "" {
		return false
	}
	for i, a := range held {
		in := slices.ContainsFunc(pools, func(p pool) bool { return p.contains(a) })
		_, lost := r.taken[a]
		misses := wanted.IsValid() && wanted.Is4() == a.Is4() && wanted != a
		twice := slices.ContainsFunc(held[:i], func(b netip.Addr) bool { return a.Is4() == b.Is4() })
		if !in || lost || misses || twice || !slices.Contains(families(s), a.Is4()) {
			return false
		}
	}
	if len(held) < len(families(s)) && !r.stillLacks(s, held, pools) {
		return false
	}
	r.give(o, held)
	return true
}

// stillLacks reports whether the pools have no address of the family that a dual-stack holder
// misses.
func (r *round) stillLacks(s *corev1.Service, held []netip.Addr, pools []pool) bool {
	for _, v4 := range families(s) {
		if slices.ContainsFunc(held, func(a netip.Addr) bool { return a.Is4() == v4 }) {
			continue
		}
		for _, p := range pools {
			if _, ok := p.free(v4, r.takenFor(s)); ok {
				return false
			}
		}
	}
	return true
}

// takenFor returns whether others have an address, as the Service sees it.
func (r *round) takenFor(s *corev1.Service) func(netip.Addr) bool {
	return func(a netip.Addr) bool {
		_, taken := r.taken[a]
		holder, held := r.held[a]
		return taken || held && holder != nameOf(s)
	}
}

func (r *round) give(o *outcome, addresses []netip.Addr) {
	for _, a := range addresses {
		r.taken[a] = nameOf(o.service)
	}
	o.addresses, o.reason = addresses, FromPool
}

// fromPools gives the Service one address of each of its families.
func (r *round) fromPools(o *outcome, pools []pool) {
	s := o.service
	wanted, wrong := requested(s)
	if o.pending = wrong; wrong != "" {
		return
	}
	var got []netip.Addr
	var lacks string
	taken := r.takenFor(s)
	for _, v4 := range families(s) {
		if wanted.IsValid() && wanted.Is4() == v4 {
			if o.pending = r.refuse(wanted, pools); o.pending != "" {
				return
			}
			got = append(got, wanted)
			continue
		}
		found := false
		for _, p := range pools {
			a, ok := p.free(v4, taken)
			for _, held := range heldBy(s) { // a holder keeps the address that is still right
				if held.Is4() == v4 && p.contains(held) && !taken(held) {
					a, ok = held, true
				}
			}
			if ok {
				got, found = append(got, a), true
				break
			}
		}
		if !found {
			lacks = r.exhausted(pools, v4)
		}
	}
	required := s.Spec.IPFamilyPolicy != nil && *s.Spec.IPFamilyPolicy == corev1.IPFamilyPolicyRequireDualStack
	if len(got) == 0 || required && lacks != "" {
		o.pending = lacks
		return
	}
	r.give(o, got)
}

// refuse explains why the Service cannot have the address of spec.loadBalancerIP.
func (r *round) refuse(a netip.Addr, pools []pool) string {
	if owner, taken := r.taken[a]; taken {
		return fmt.Sprintf("spec.loadBalancerIP %s belongs to the Service %s.", a, owner)
	}
	if !slices.ContainsFunc(pools, func(p pool) bool { return p.contains(a) }) {
		return fmt.Sprintf("spec.loadBalancerIP %s is in no pool of this Service (its pools: %s).", a, poolNames(pools))
	}
	return ""
}

func (r *round) exhausted(pools []pool, v4 bool) string {
	var parts []string
	for _, p := range pools {
		used := 0
		for a := range r.taken {
			if a.Is4() == v4 && p.contains(a) {
				used++
			}
		}
		parts = append(parts, fmt.Sprintf("%s has %s, of which %d are used", p.name, p.size(v4), used))
	}
	return fmt.Sprintf("No %s address is free: pool %s.", familyName(v4), strings.Join(parts, "; pool "))
}

// fromNodes gives the Service the addresses of the nodes that serve it.
func (r *round) fromNodes(o *outcome) {
	s := o.service
	if !r.useNodes {
		o.pending = "No pool selects this Service. Create a LoadBalancerPool for it, or add ranges to --load-balancer-pool."
		return
	}
	wanted, wrong := requested(s)
	if o.pending = wrong; wrong != "" {
		return
	}
	if o.pending = r.conflict(s); o.pending != "" {
		return
	}
	var local map[string]bool
	if s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		local = r.endpointNodes(s)
	}
	var all []netip.Addr
	serving := 0
	for _, n := range r.nodes {
		if local != nil && !local[n.name] {
			continue
		}
		serving++
		for _, v4 := range families(s) {
			for _, a := range n.addresses {
				if a.Is4() == v4 && (!wanted.IsValid() || wanted == a) && len(all) < maxOfNodes && !slices.Contains(all, a) {
					all = append(all, a)
				}
			}
		}
	}
	// The ports stay reserved while no node serves the Service, so that another Service does not
	// take them meanwhile.
	for _, p := range s.Spec.Ports {
		r.ports[portName(p.Protocol, p.Port)] = nameOf(s)
	}
	switch {
	case len(all) > 0:
		o.addresses, o.reason = all, FromNodes
	case len(r.nodes) == 0:
		o.pending = "No node is ready to receive its traffic."
	case serving == 0:
		o.pending = "externalTrafficPolicy is Local, and no node has a ready endpoint of this Service."
	case wanted.IsValid():
		o.pending = fmt.Sprintf("spec.loadBalancerIP %s is no address of a node that serves this Service.", wanted)
	default:
		o.pending = "No ready node has an address of the Service's IP family."
	}
}

// conflict explains why the Service cannot have its ports at the nodes' addresses.
func (r *round) conflict(s *corev1.Service) string {
	for _, p := range s.Spec.Ports {
		port := portName(p.Protocol, p.Port)
		text := fmt.Sprintf("port %d/%s of the nodes' addresses", p.Port, p.Protocol)
		if use, ok := r.listens[port]; ok {
			return fmt.Sprintf("%s serves %s. Choose another port.", upperFirst(text), use)
		}
		if owner, ok := r.ports[port]; ok {
			return fmt.Sprintf("%s belongs to the Service %s. Choose another port, or use pools.", upperFirst(text), owner)
		}
		if len(heldBy(s)) > 0 {
			continue
		}
		if owner, ok := r.nodePortOwner(port, s); ok {
			return fmt.Sprintf("%s is a node port of the Service %s. Choose another port.", upperFirst(text), owner)
		}
	}
	return ""
}

func upperFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func portName(protocol corev1.Protocol, port int32) string {
	return fmt.Sprintf("%s/%d", cmp.Or(protocol, corev1.ProtocolTCP), port)
}

func nameOf(s *corev1.Service) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
}

func familyName(v4 bool) string {
	if v4 {
		return "IPv4"
	}
	return "IPv6"
}

// families returns the Service's families in order; true means IPv4.
func families(s *corev1.Service) []bool {
	var out []bool
	for _, f := range s.Spec.IPFamilies {
		out = append(out, f == corev1.IPv4Protocol)
	}
	if out == nil {
		a, err := netip.ParseAddr(s.Spec.ClusterIP)
		out = []bool{err != nil || a.Is4()}
	}
	return out
}

// requested parses spec.loadBalancerIP. wrong explains why it cannot be used.
func requested(s *corev1.Service) (a netip.Addr, wrong string) {
	if s.Spec.LoadBalancerIP == "" {
		return a, ""
	}
	a, err := netip.ParseAddr(s.Spec.LoadBalancerIP)
	if err != nil {
		return a, fmt.Sprintf("spec.loadBalancerIP %q is not an IP address.", s.Spec.LoadBalancerIP)
	}
	if a = a.Unmap(); !slices.Contains(families(s), a.Is4()) {
		return a, fmt.Sprintf("spec.loadBalancerIP %s is of none of the Service's IP families.", a)
	}
	return a, ""
}

// addressesOf returns the IP addresses in the Service's status.
func addressesOf(s *corev1.Service) []netip.Addr {
	var out []netip.Addr
	for _, in := range s.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(in.IP); err == nil {
			out = append(out, a.Unmap())
		}
	}
	return out
}

// heldBy returns the addresses that the Service got from here.
func heldBy(s *corev1.Service) []netip.Addr {
	if mark(s) == nil || foreign(s) {
		return nil
	}
	return addressesOf(s)
}

// foreign reports whether another controller has written the Service's addresses.
func foreign(s *corev1.Service) bool {
	if len(s.Status.LoadBalancer.Ingress) == 0 {
		return false
	}
	m := mark(s)
	return m == nil || m.Message != listed(addressesOf(s))
}

// listed is the message of the condition.
func listed(addresses []netip.Addr) string {
	var texts []string
	for _, a := range addresses {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ", ")
}
