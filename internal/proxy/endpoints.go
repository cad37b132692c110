package proxy

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// backend is the address and port of an endpoint.
type backend struct {
	addr netip.Addr
	port uint16
}

func compareBackends(a, b backend) int {
	return cmp.Or(a.addr.Compare(b.addr), cmp.Compare(a.port, b.port))
}

// endpoint is a backend with the conditions that decide about its use.
type endpoint struct {
	backend
	ready, serving, terminating bool
	local                       bool
	zones, nodes                []string // hints; nil without hints
}

// self is this node's name and zone.
type self struct{ name, zone string }

// endpointsOf collects the endpoints of one port and family from the Service's slices, without
// duplicates.
func endpointsOf(slicesOf []*discoveryv1.EndpointSlice, port corev1.ServicePort, v4 bool, me self) []endpoint {
	family := discoveryv1.AddressTypeIPv6
	if v4 {
		family = discoveryv1.AddressTypeIPv4
	}
	found := map[backend]endpoint{}
	for _, s := range slicesOf {
		number, ok := portOf(s, port)
		if s.AddressType != family || !ok {
			continue
		}
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			if len(e.Addresses) == 0 {
				continue
			}
			addr, err := netip.ParseAddr(e.Addresses[0])
			if err != nil || addr.Is4() != v4 {
				continue
			}
			ep := toEndpoint(e, backend{addr, number}, me)
			if old, twice := found[ep.backend]; twice && old.ready {
				// an endpoint that moves between slices is in both for a moment; the better state
				// wins
				continue
			}
			found[ep.backend] = ep
		}
	}
	out := make([]endpoint, 0, len(found))
	for _, ep := range found {
		out = append(out, ep)
	}
	slices.SortFunc(out, func(a, b endpoint) int { return compareBackends(a.backend, b.backend) })
	return out
}

// portOf returns the slice's port number for a Service's port, which has the same name.
func portOf(s *discoveryv1.EndpointSlice, port corev1.ServicePort) (uint16, bool) {
	for _, p := range s.Ports {
		name, protocol := "", corev1.ProtocolTCP
		if p.Name != nil {
			name = *p.Name
		}
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		if name == port.Name && protocol == protocolOf(port) && p.Port != nil {
			return uint16(*p.Port), true
		}
	}
	return 0, false
}

func protocolOf(p corev1.ServicePort) corev1.Protocol {
	if p.Protocol == "" {
		return corev1.ProtocolTCP
	}
	return p.Protocol
}

// toEndpoint reads an endpoint's conditions. By the API's definition an unset ready is true, an
// unset serving equals ready, and an unset terminating is false.
func toEndpoint(e *discoveryv1.Endpoint, b backend, me self) endpoint {
	or := func(p *bool, otherwise bool) bool {
		if p == nil {
			return otherwise
		}
		return *p
	}
	ep := endpoint{backend: b, local: e.NodeName != nil && *e.NodeName == me.name}
	ep.ready = or(e.Conditions.Ready, true)
	ep.serving = or(e.Conditions.Serving, ep.ready)
	ep.terminating = or(e.Conditions.Terminating, false)
	if e.Hints != nil {
		for _, z := range e.Hints.ForZones {
			ep.zones = append(ep.zones, z.Name)
		}
		for _, n := range e.Hints.ForNodes {
			ep.nodes = append(ep.nodes, n.Name)
		}
	}
	return ep
}

// clusterBackends selects endpoints for traffic policy Cluster: the ready ones, or only near ones
// if all hints allow it. Without a ready endpoint it selects terminating ones that still serve
// (KEP-1669).
func clusterBackends(all []endpoint, me self) []backend {
	usable := usableEndpoints(all)
	return backends(near(usable, me))
}

// localBackends selects endpoints for traffic policy Local: this node's, by the same rule.
func localBackends(all []endpoint) []backend {
	var local []endpoint
	for _, ep := range all {
		if ep.local {
			local = append(local, ep)
		}
	}
	return backends(usableEndpoints(local))
}

func usableEndpoints(all []endpoint) []endpoint {
	var ready, lastResort []endpoint
	for _, ep := range all {
		switch {
		case ep.ready:
			ready = append(ready, ep)
		case ep.serving && ep.terminating:
			lastResort = append(lastResort, ep)
		}
	}
	if len(ready) > 0 {
		return ready
	}
	return lastResort
}

// near applies the hints of trafficDistribution (KEP-4444, KEP-3015), first for the node, then for
// the zone. Hints only count if every endpoint has some and at least one names this node or zone.
// Otherwise traffic would concentrate or find no endpoint.
func near(eps []endpoint, me self) []endpoint {
	byHint := func(hints func(endpoint) []string, want string) []endpoint {
		var out []endpoint
		for _, ep := range eps {
			if len(hints(ep)) == 0 || want == "" {
				return nil
			}
			if slices.Contains(hints(ep), want) {
				out = append(out, ep)
			}
		}
		return out
	}
	if out := byHint(func(e endpoint) []string { return e.nodes }, me.name); len(out) > 0 {
		return out
	}
	if out := byHint(func(e endpoint) []string { return e.zones }, me.zone); len(out) > 0 {
		return out
	}
	return eps
}

func backends(eps []endpoint) []backend {
	out := make([]backend, len(eps))
	for i, ep := range eps {
		out[i] = ep.backend
	}
	return out
}

// stableSlots orders want so that as few slots as possible change. Remaining backends keep their
// slots, new ones fill gaps, and other gaps are filled from the end.
func stableSlots(before, want []backend) []backend {
	wanted := make(map[backend]bool, len(want))
	for _, b := range want {
		wanted[b] = true
	}
	out := make([]backend, len(want))
	taken := make([]bool, len(want))
	var homeless []backend
	for i, b := range before {
		switch {
		case !wanted[b]:
			continue
		case i < len(out):
			out[i], taken[i] = b, true
		default:
			homeless = append(homeless, b)
		}
		delete(wanted, b)
	}
	for _, b := range want {
		if wanted[b] {
			homeless = append(homeless, b)
		}
	}
	for i := range out {
		if !taken[i] {
			out[i], homeless = homeless[0], homeless[1:]
		}
	}
	return out
}
