package network

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// routeProtocol marks knarr's routes (rtnetlink(7); numbers above 4 are free for daemons).
const routeProtocol = 75

// overlay routes to the pods of other nodes. A peer's link-layer address is derived from its pod
// range, so the Node object is sufficient and nothing else is announced.
type overlay struct {
	cfg     Config
	applied map[peer]bool // nil until read from the kernel
	link    netlink.Link  // the VXLAN link; with host-gw, the link to the other nodes
	self    self
}

// peer is one pod range of another node and the address that leads to it.
type peer struct {
	pods netip.Prefix
	node netip.Addr
}

// self is the part of its own Node that the overlay needs.
type self struct {
	node   netip.Addr
	ranges string // as text, to compare
}

func newOverlay(cfg Config) *overlay { return &overlay{cfg: cfg} }

// vtepMAC is the hardware address of a node's VXLAN link.
func vtepMAC(pods netip.Prefix) net.HardwareAddr { return derivedMAC(0x5a, pods.Addr()) }

// peers derives the peers from the Nodes: all Nodes with a pod range and an address of self's
// family.
func peers(selfName string, selfAddr netip.Addr, nodes []*corev1.Node) map[peer]bool {
	want := map[peer]bool{}
	for _, node := range nodes {
		if node.Name == selfName {
			continue
		}
		ranges, err := podCIDRs(node)
		addr := internalIP(node, selfAddr.Is4())
		if err != nil || !addr.IsValid() {
			continue
		}
		for _, r := range ranges {
			want[peer{r, addr}] = true
		}
	}
	return want
}

// internalIP is the node's first InternalIP of the family.
func internalIP(node *corev1.Node, v4 bool) netip.Addr {
	for _, a := range node.Status.Addresses {
		if a.Type != corev1.NodeInternalIP {
			continue
		}
		if ip, err := netip.ParseAddr(a.Address); err == nil && ip.Unmap().Is4() == v4 {
			return ip.Unmap()
		}
	}
	return netip.Addr{}
}

// overlayAddress is the address that a node's frames come from: the first IPv4 InternalIP, or else
// the first IPv6 one.
func overlayAddress(node *corev1.Node) netip.Addr {
	if addr := internalIP(node, true); addr.IsValid() {
		return addr
	}
	return internalIP(node, false)
}

// sync makes the links and routes to the peers. With full, it ignores its record of earlier changes
// and compares with the kernel.
func (o *overlay) sync(node *corev1.Node, ranges []netip.Prefix, nodes []*corev1.Node, full bool) error {
	if o.cfg.Mode == ModeNone {
		return nil
	}
	addr := overlayAddress(node)
	want := peers(node.Name, addr, nodes)
	me := self{addr, fmt.Sprint(ranges)}
	if !addr.IsValid() || len(want) == 0 && len(o.applied) == 0 && o.applied != nil {
		return nil // a single node needs no overlay
	}
	if full || o.link == nil || me != o.self {
		link, err := o.ensureLink(addr, ranges, len(want) > 0)
		if err != nil {
			return err
		}
		if link == nil {
			return nil
		}
		o.link, o.self = link, me
		if o.applied, err = o.routes(); err != nil {
			return err
		}
	}
	return o.apply(want, ranges, full)
}

// apply removes obsolete peers and adds new ones.
func (o *overlay) apply(want map[peer]bool, ranges []netip.Prefix, full bool) error {
	var errs []error
	for p := range o.applied {
		if !want[p] {
			if err := o.removePeer(p, want); err != nil {
				errs = append(errs, err)
				continue
			}
			slog.Info("route to a node's pods removed", "pods", p.pods, "node", p.node)
			delete(o.applied, p)
		}
	}
	for p := range want {
		if o.applied[p] && !full {
			continue
		}
		if err := o.addPeer(p, ranges); err != nil {
			errs = append(errs, err)
			continue
		}
		if !o.applied[p] {
			slog.Info("route to a node's pods added", "pods", p.pods, "node", p.node, "mode", o.cfg.Mode)
		}
		o.applied[p] = true
	}
	return errors.Join(errs...)
}

// ensureLink makes the VXLAN link or, with host-gw, finds the link to the other nodes. Without
// peers it makes nothing.
func (o *overlay) ensureLink(addr netip.Addr, ranges []netip.Prefix, needed bool) (netlink.Link, error) {
	under, err := linkOf(addr)
	if err != nil {
		return nil, err
	}
	if o.cfg.Mode == ModeHostGateway {
		return under, nil
	}
	old, err := netlink.LinkByName(o.cfg.OverlayLink)
	if err != nil && !isGone(err) {
		return nil, fmt.Errorf("link %s: %w", o.cfg.OverlayLink, err)
	}
	if old == nil && !needed {
		return nil, nil
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.MTU = o.cfg.OverlayLink, vtepMAC(ranges[0]), under.Attrs().MTU-vxlanOverhead(addr)
	if under.Attrs().Flags&net.FlagLoopback != 0 {
		attrs.MTU = defaultMTU - vxlanOverhead(addr)
	}
	want := &netlink.Vxlan{LinkAttrs: attrs, VxlanId: o.cfg.VNI, VtepDevIndex: under.Attrs().Index, SrcAddr: addr.AsSlice(), Port: o.cfg.Port}
	if old != nil && !sameVXLAN(old, want) {
		if err := netlink.LinkDel(old); err != nil {
			return nil, fmt.Errorf("link %s: %w", o.cfg.OverlayLink, err)
		}
		old = nil
	}
	if old == nil {
		if err := netlink.LinkAdd(want); err != nil {
			return nil, fmt.Errorf("link %s (VXLAN, VNI %d, UDP port %d; is the kernel's vxlan module missing, or the port taken?): %w", o.cfg.OverlayLink, o.cfg.VNI, o.cfg.Port, err)
		}
		old = want
	}
	// The source of masqueraded packets and of the host's own packets on this link is in the pod
	// range
	for _, r := range ranges {
		a := &netlink.Addr{IPNet: hostNet(r.Addr())}
		if err := netlink.AddrReplace(old, a); err != nil {
			return nil, fmt.Errorf("address %s on %s: %w", r.Addr(), o.cfg.OverlayLink, err)
		}
	}
	if err := netlink.LinkSetUp(old); err != nil {
		return nil, fmt.Errorf("link %s up: %w", o.cfg.OverlayLink, err)
	}
	return old, nil
}

func vxlanOverhead(addr netip.Addr) int {
	if addr.Is4() {
		return 50
	}
	return 70
}

func sameVXLAN(have netlink.Link, want *netlink.Vxlan) bool {
	v, ok := have.(*netlink.Vxlan)
	return ok && v.VxlanId == want.VxlanId && v.Port == want.Port && v.VtepDevIndex == want.VtepDevIndex &&
		v.SrcAddr.Equal(want.SrcAddr) && slices.Equal(v.HardwareAddr, want.HardwareAddr) && v.MTU == want.MTU
}

// linkOf finds the link with the address.
func linkOf(addr netip.Addr) (netlink.Link, error) {
	addrs, err := dump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, family(addr)) })
	if err != nil {
		return nil, fmt.Errorf("addresses of this machine: %w", err)
	}
	for _, a := range addrs {
		if a.IP.Equal(addr.AsSlice()) {
			return netlink.LinkByIndex(a.LinkIndex)
		}
	}
	return nil, fmt.Errorf("this node's InternalIP %s is on no link of this machine; other nodes cannot be reached (set --advertise-address to an address of this machine)", addr)
}

// routes reads from the kernel the peers that have routes. With VXLAN, a route does not contain the
// node's address; the forwarding table does.
func (o *overlay) routes() (map[peer]bool, error) {
	have := map[peer]bool{}
	nodeOf := map[string]netip.Addr{}
	if o.cfg.Mode == ModeVXLAN {
		entries, err := dump(func() ([]netlink.Neigh, error) { return netlink.NeighList(o.link.Attrs().Index, unix.AF_BRIDGE) })
		if err != nil {
			return nil, fmt.Errorf("forwarding table of %s: %w", o.cfg.OverlayLink, err)
		}
		for _, e := range entries {
			if ip, ok := netip.AddrFromSlice(e.IP); ok {
				nodeOf[e.HardwareAddr.String()] = ip.Unmap()
			}
		}
	}
	filter := &netlink.Route{LinkIndex: o.link.Attrs().Index, Protocol: routeProtocol}
	routes, err := dump(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_ALL, filter, netlink.RT_FILTER_OIF|netlink.RT_FILTER_PROTOCOL)
	})
	if err != nil {
		return nil, fmt.Errorf("routes by %s: %w", o.link.Attrs().Name, err)
	}
	for _, r := range routes {
		gw, ok := netip.AddrFromSlice(r.Gw)
		if r.Dst == nil || !ok {
			continue
		}
		ip, _ := netip.AddrFromSlice(r.Dst.IP)
		bits, _ := r.Dst.Mask.Size()
		p := peer{netip.PrefixFrom(ip.Unmap(), bits), gw.Unmap()}
		if o.cfg.Mode == ModeVXLAN {
			p.node = nodeOf[vtepMAC(p.pods).String()]
		}
		have[p] = true
	}
	return have, nil
}

func (o *overlay) addPeer(p peer, ranges []netip.Prefix) error {
	index := o.link.Attrs().Index
	route := &netlink.Route{LinkIndex: index, Dst: ipNet(p.pods), Protocol: routeProtocol}
	for _, r := range ranges {
		if r.Addr().Is4() == p.pods.Addr().Is4() {
			route.Src = r.Addr().Next().AsSlice()
		}
	}
	if route.Src == nil {
		return nil // this node has no pods of that family
	}
	if o.cfg.Mode == ModeHostGateway {
		route.Gw = p.node.AsSlice()
	} else {
		route.Gw, route.Flags = p.pods.Addr().AsSlice(), int(netlink.FLAG_ONLINK)
		mac := vtepMAC(p.pods)
		neigh := &netlink.Neigh{LinkIndex: index, Family: family(p.pods.Addr()), State: netlink.NUD_PERMANENT, IP: p.pods.Addr().AsSlice(), HardwareAddr: mac}
		if err := netlink.NeighSet(neigh); err != nil {
			return fmt.Errorf("neighbour %s: %w", p.pods.Addr(), err)
		}
		fdb := &netlink.Neigh{LinkIndex: index, Family: unix.AF_BRIDGE, State: netlink.NUD_PERMANENT, Flags: netlink.NTF_SELF, IP: p.node.AsSlice(), HardwareAddr: mac}
		if err := netlink.NeighSet(fdb); err != nil {
			return fmt.Errorf("forwarding entry to node %s: %w", p.node, err)
		}
	}
	if err := netlink.RouteReplace(route); err != nil {
		return fmt.Errorf("route to pods %s of node %s: %w", p.pods, p.node, err)
	}
	return nil
}

// removePeer removes the route and its neighbour entries, unless another wanted peer has the range
// now.
func (o *overlay) removePeer(p peer, want map[peer]bool) error {
	for w := range want {
		if w.pods == p.pods {
			return nil // addPeer replaces it
		}
	}
	index := o.link.Attrs().Index
	if err := netlink.RouteDel(&netlink.Route{LinkIndex: index, Dst: ipNet(p.pods), Protocol: routeProtocol}); err != nil && !isGone(err) {
		return fmt.Errorf("route to pods %s: %w", p.pods, err)
	}
	if o.cfg.Mode == ModeVXLAN {
		mac := vtepMAC(p.pods)
		_ = netlink.NeighDel(&netlink.Neigh{LinkIndex: index, Family: family(p.pods.Addr()), State: netlink.NUD_PERMANENT, IP: p.pods.Addr().AsSlice(), HardwareAddr: mac})
		_ = netlink.NeighDel(&netlink.Neigh{LinkIndex: index, Family: unix.AF_BRIDGE, State: netlink.NUD_PERMANENT, Flags: netlink.NTF_SELF, IP: p.node.AsSlice(), HardwareAddr: mac})
	}
	return nil
}

// GatewayOf is the gateway address of the node's first pod range, which the node's pods can always
// reach. It is invalid until the node has a range.
func GatewayOf(node *corev1.Node) netip.Addr {
	ranges, err := podCIDRs(node)
	if err != nil || len(ranges) == 0 {
		return netip.Addr{}
	}
	return newIPAM(ranges[0]).gateway
}
