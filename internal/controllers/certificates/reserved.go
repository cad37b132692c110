package certificates

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/controller"
)

// holders has the names and addresses that belong to others than the node of a request.
type holders struct {
	node    string
	domain  string
	ranges  []netip.Prefix // of Services
	servers []controller.Server
	// known is false in a process that does not know the servers.
	known bool
	nodes []corev1.Node
}

// holdersBeside collects the names and addresses that the node must not have. The list of nodes is
// a consistent read, so that of two nodes with one address the second is refused.
func holdersBeside(ctx context.Context, env controller.Env, node string) (*holders, error) {
	h := &holders{node: node, domain: env.Config.ClusterDomain, known: env.Config.Servers != nil}
	for text := range strings.SplitSeq(env.Config.ServiceCIDR, ",") {
		if r, err := netip.ParsePrefix(text); err == nil {
			h.ranges = append(h.ranges, r)
		}
	}
	list, err := env.Client.List(ctx, networkingv1.SchemeGroupVersion.WithResource("servicecidrs"), "", metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("ranges of Services: %w", err)
	}
	cidrs, ok := list.(*networkingv1.ServiceCIDRList)
	if !ok {
		return nil, fmt.Errorf("ranges of Services: the API answered with a %T", list)
	}
	for i := range cidrs.Items {
		for _, text := range cidrs.Items[i].Spec.CIDRs {
			if r, err := netip.ParsePrefix(text); err == nil {
				h.ranges = append(h.ranges, r)
			}
		}
	}
	if h.known {
		if h.servers, err = env.Config.Servers(ctx); err != nil {
			return nil, err
		}
	}
	if list, err = env.Client.List(ctx, corev1.SchemeGroupVersion.WithResource("nodes"), "", metav1.ListOptions{}); err != nil {
		return nil, fmt.Errorf("addresses of nodes: %w", err)
	}
	nodes, ok := list.(*corev1.NodeList)
	if !ok {
		return nil, fmt.Errorf("addresses of nodes: the API answered with a %T", list)
	}
	h.nodes = nodes.Items
	return h, nil
}

// refuse returns the reason why the node cannot have the certificate, or "".
func (h *holders) refuse(request *x509.CertificateRequest) string {
	for _, name := range request.DNSNames {
		// Some clients compare the text of an address with DNS names.
		why := h.refuseName(name)
		if ip, err := netip.ParseAddr(name); err == nil {
			why = h.refuseAddress(ip.Unmap())
		}
		if why != "" {
			return fmt.Sprintf("node %q cannot have a serving certificate for the name %q: %s", h.node, name, why)
		}
	}
	for _, address := range request.IPAddresses {
		ip, ok := netip.AddrFromSlice(address)
		if !ok {
			return fmt.Sprintf("node %q cannot have a serving certificate for an address of %d bytes: wanted 4 or 16", h.node, len(address))
		}
		if why := h.refuseAddress(ip.Unmap()); why != "" {
			return fmt.Sprintf("node %q cannot have a serving certificate for the address %s: %s", h.node, ip.Unmap(), why)
		}
	}
	return ""
}

func (h *holders) refuseName(name string) string {
	if strings.Contains(name, "*") {
		return "wildcards are not allowed"
	}
	if why := reservedDomain(name, h.domain); why != "" {
		return why
	}
	return h.refuseHeld(func(held string) bool { return sameName(held, name) })
}

func (h *holders) refuseAddress(ip netip.Addr) string {
	switch {
	case ip.IsUnspecified() || ip.IsMulticast() || ip.Zone() != "":
		return "it is not the address of one machine"
	case ip.IsLoopback():
		if h.known && !h.loopbackOnly() {
			return "each machine has it, also the servers"
		}
		return "" // all machines of such a cluster share the address
	}
	for _, r := range h.ranges {
		if r.Contains(ip) {
			return fmt.Sprintf("it is in the range of Services %s", r)
		}
	}
	return h.refuseHeld(func(held string) bool {
		other, err := netip.ParseAddr(held)
		return err == nil && other.Unmap() == ip
	})
}

// loopbackOnly reports whether a server has no other address than loopback ones. Then all machines
// of the cluster are this one, as in tests and on machines without a network.
func (h *holders) loopbackOnly() bool {
	return slices.ContainsFunc(h.servers, func(s controller.Server) bool {
		loopback := false
		for _, name := range s.Names {
			ip, err := netip.ParseAddr(name)
			if err == nil && !ip.IsLoopback() {
				return false
			}
			loopback = loopback || err == nil
		}
		return loopback
	})
}

// refuseHeld looks for a server or another node with the name or address.
func (h *holders) refuseHeld(is func(held string) bool) string {
	for _, s := range h.servers {
		// The node on a server's machine has its host name.
		if s.Name != h.node && slices.ContainsFunc(s.Names, is) {
			return fmt.Sprintf("it belongs to the server %q; a node on that machine needs --node-name %s", s.Name, s.Name)
		}
	}
	for i := range h.nodes {
		n := &h.nodes[i]
		if n.Name == h.node {
			continue
		}
		if is(n.Name) || slices.ContainsFunc(n.Status.Addresses, func(a corev1.NodeAddress) bool { return is(a.Address) }) {
			return fmt.Sprintf("node %q has it too; if that machine is gone for good, run `kubectl delete node %s`", n.Name, n.Name)
		}
	}
	return ""
}

// reservedDomain returns the reason why no node may have the DNS name, or "": clients in pods
// expect the API server or another Service there, or their own machine.
func reservedDomain(name, clusterDomain string) string {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	within := func(domain string) bool { return name == domain || strings.HasSuffix(name, "."+domain) }
	switch {
	case name == "kubernetes" || strings.HasPrefix(name, "kubernetes."):
		return "it is a name of the API server"
	case within("localhost"):
		return "each machine has it, also the servers"
	case within("svc"):
		return "names below svc belong to Services"
	}
	for _, kind := range []string{"svc", "pod"} {
		if clusterDomain != "" && within(kind+"."+strings.ToLower(clusterDomain)) {
			return fmt.Sprintf("names below %s.%s belong to Services and pods", kind, clusterDomain)
		}
	}
	return ""
}

func sameName(a, b string) bool {
	return strings.EqualFold(strings.TrimSuffix(a, "."), strings.TrimSuffix(b, "."))
}
