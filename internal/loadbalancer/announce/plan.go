package announce

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"

	"github.com/knarr-project/knarr/internal/loadbalancer"
)

// maxPeers bounds the nodes that exchange beats about an address, in a cluster of any size.
const maxPeers = 8

// peer is another node, at an address of this node's family.
type peer struct {
	name string
	addr netip.Addr
}

// duty is this node's part in announcing an address.
type duty struct {
	service *corev1.Service
	stands  bool
	peers   []peer
}

// pooled returns the addresses that a Service has from a pool.
func pooled(s *corev1.Service) []netip.Addr {
	m := apimeta.FindStatusCondition(s.Status.Conditions, loadbalancer.Condition)
	if !loadbalancer.Handled(s) || s.DeletionTimestamp != nil || m == nil || m.Reason != loadbalancer.FromPool {
		return nil
	}
	var out []netip.Addr
	for _, in := range s.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(in.IP); err == nil {
			out = append(out, a.Unmap())
		}
	}
	return out
}

// plan returns this node's duties. nodes maps all nodes, excluded ones left out, to their
// addresses.
func plan(services []*corev1.Service, nodes map[string]netip.Addr, endpointNodes func(*corev1.Service) map[string]bool, me string) map[netip.Addr]duty {
	out := map[netip.Addr]duty{}
	for _, s := range services {
		for _, a := range pooled(s) {
			var local map[string]bool
			if s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
				local = endpointNodes(s)
			}
			names := ranked(a, nodes, local)
			if !slices.Contains(names, me) {
				continue
			}
			d := duty{service: s, stands: local == nil || local[me]}
			for _, name := range names {
				if name != me {
					d.peers = append(d.peers, peer{name, nodes[name]})
				}
			}
			out[a] = d
		}
	}
	return out
}

// ranked returns the first nodes for an address: those with local endpoints, then the others.
func ranked(a netip.Addr, nodes map[string]netip.Addr, local map[string]bool) []string {
	type place struct {
		name  string
		later bool
		rank  uint64
	}
	var all []place
	for name := range nodes {
		all = append(all, place{name, local != nil && !local[name], rank(a, name)})
	}
	slices.SortFunc(all, func(x, y place) int {
		if x.later != y.later {
			if x.later {
				return 1
			}
			return -1
		}
		return cmp.Or(cmp.Compare(x.rank, y.rank), cmp.Compare(x.name, y.name))
	})
	var out []string
	for _, p := range all[:min(len(all), maxPeers)] {
		out = append(out, p.name)
	}
	return out
}

// participants returns the nodes that may announce, with their internal address of the family.
func participants(nodes []*corev1.Node, v4 bool) map[string]netip.Addr {
	out := map[string]netip.Addr{}
	for _, n := range nodes {
		if _, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]; excluded || n.DeletionTimestamp != nil {
			continue
		}
		for _, a := range n.Status.Addresses {
			ip, err := netip.ParseAddr(a.Address)
			if a.Type == corev1.NodeInternalIP && err == nil && ip.Unmap().Is4() == v4 {
				out[n.Name] = ip.Unmap()
				break
			}
		}
	}
	return out
}

// nodesOf returns the nodes with a ready endpoint.
func nodesOf(slicesOf []*discoveryv1.EndpointSlice) map[string]bool {
	out := map[string]bool{}
	for _, s := range slicesOf {
		for _, e := range s.Endpoints {
			if e.NodeName != nil && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
				out[*e.NodeName] = true
			}
		}
	}
	return out
}
