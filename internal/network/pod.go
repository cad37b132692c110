package network

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"syscall"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// plumbing holds the settings of pods' interfaces that all attachments share.
type plumbing struct {
	gateways []netip.Addr // one per family
	mtu      int
}

// podMAC and hostMAC derive both ends' hardware addresses from the pod's first address, so that
// neither end needs ARP.
func podMAC(ip netip.Addr) net.HardwareAddr { return derivedMAC(0x58, ip) }

func hostMAC(ip netip.Addr) net.HardwareAddr { return derivedMAC(0x59, ip) }

func derivedMAC(kind byte, ip netip.Addr) net.HardwareAddr {
	b := ip.As16()
	return net.HardwareAddr{0x0a, kind, b[12], b[13], b[14], b[15]}
}

func isExist(err error) bool { return errors.Is(err, syscall.EEXIST) }

func isGone(err error) bool {
	var notFound netlink.LinkNotFoundError
	return errors.As(err, &notFound) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.ESRCH) || errors.Is(err, fs.ErrNotExist)
}

func hostNet(ip netip.Addr) *net.IPNet {
	return &net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(ip.BitLen(), ip.BitLen())}
}

func anyNet(ip netip.Addr) *net.IPNet {
	return &net.IPNet{IP: make(net.IP, ip.BitLen()/8), Mask: net.CIDRMask(0, ip.BitLen())}
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func family(ip netip.Addr) int {
	if ip.Is4() {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}

// dump repeats a listing that a concurrent change interrupted.
func dump[T any](list func() ([]T, error)) (out []T, err error) {
	for range 10 {
		if out, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return out, err
		}
	}
	return out, err
}

// gatewayFor returns the gateway of the address's family. An attachment only has addresses of
// ranges with a gateway.
func (p plumbing) gatewayFor(ip netip.Addr) netip.Addr {
	for _, g := range p.gateways {
		if g.Is4() == ip.Is4() {
			return g
		}
	}
	return netip.Addr{}
}

// plug makes the veth pair of the attachment and configures both ends. On error it removes
// everything.
func plug(a *attachment, p plumbing) (err error) {
	ns, err := netns.GetFromPath(a.NetNS)
	if err != nil {
		return fmt.Errorf("network namespace %s: %w", a.NetNS, err)
	}
	defer ns.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr, attrs.Flags = a.HostLink, p.mtu, hostMAC(a.IPs[0]), net.FlagUp
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerHardwareAddr, veth.PeerNamespace = a.IfName, podMAC(a.IPs[0]), netlink.NsFd(int(ns))
	err = netlink.LinkAdd(veth)
	// An interrupted ADD left the link; its name belongs to this attachment alone.
	if isExist(err) {
		if old, e := netlink.LinkByName(a.HostLink); e == nil {
			_ = netlink.LinkDel(old)
			veth.Index = 0
			err = netlink.LinkAdd(veth)
		}
	}
	if err != nil {
		return fmt.Errorf("veth %s to %s in %s: %w", a.HostLink, a.IfName, a.NetNS, err)
	}
	defer func() {
		if err != nil {
			_ = netlink.LinkDel(veth)
		}
	}()
	if err := configurePodSide(a, p, ns); err != nil {
		return err
	}
	if err := configureHostSide(a, p, veth); err != nil {
		return err
	}
	return settleCarrier(a.HostLink)
}

// settleCarrier makes the kernel process the link's carrier now. When the pod's end comes up, the
// host's end gets its carrier, but a deferred work item connects its queue, up to a second later.
// Until then packets to the pod are dropped, and the pod's first connection waits a second for its
// answer. Reading the link's state (ETHTOOL_GLINK) runs the work item.
func settleCarrier(link string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("carrier of %s: %w", link, err)
	}
	defer unix.Close(fd)
	value := struct{ cmd, data uint32 }{cmd: unix.ETHTOOL_GLINK}
	var req struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte // the rest of struct ifreq
	}
	copy(req.name[:unix.IFNAMSIZ-1], link)
	req.data = unsafe.Pointer(&value)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req))); errno != 0 {
		return fmt.Errorf("carrier of %s: %w", link, errno)
	}
	return nil
}

func configurePodSide(a *attachment, p plumbing, ns netns.NsHandle) error {
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink in %s: %w", a.NetNS, err)
	}
	defer h.Close()
	eth, err := h.LinkByName(a.IfName)
	if err != nil {
		return fmt.Errorf("link %s in %s: %w", a.IfName, a.NetNS, err)
	}
	for _, ip := range a.IPs {
		addr := &netlink.Addr{IPNet: hostNet(ip)}
		if !ip.Is4() {
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := h.AddrAdd(eth, addr); err != nil && !isExist(err) {
			return fmt.Errorf("address %s in %s: %w", ip, a.NetNS, err)
		}
	}
	if lo, err := h.LinkByName("lo"); err == nil {
		if err := h.LinkSetUp(lo); err != nil {
			return fmt.Errorf("loopback up in %s: %w", a.NetNS, err)
		}
	}
	if err := h.LinkSetUp(eth); err != nil {
		return fmt.Errorf("link %s up in %s: %w", a.IfName, a.NetNS, err)
	}
	for _, ip := range a.IPs {
		gw := p.gatewayFor(ip)
		if err := h.NeighSet(&netlink.Neigh{LinkIndex: eth.Attrs().Index, Family: family(gw), State: netlink.NUD_PERMANENT, IP: gw.AsSlice(), HardwareAddr: hostMAC(a.IPs[0])}); err != nil {
			return fmt.Errorf("neighbour %s in %s: %w", gw, a.NetNS, err)
		}
		route := &netlink.Route{LinkIndex: eth.Attrs().Index, Dst: anyNet(gw), Gw: gw.AsSlice(), Flags: int(netlink.FLAG_ONLINK)}
		if err := h.RouteAdd(route); err != nil && !isExist(err) {
			return fmt.Errorf("default route by %s in %s: %w", gw, a.NetNS, err)
		}
	}
	return nil
}

func configureHostSide(a *attachment, p plumbing, veth *netlink.Veth) error {
	// Both ends have permanent neighbours. Without ARP a pod cannot fill the host's table. This
	// comes first, because it removes neighbours.
	if err := netlink.LinkSetARPOff(veth); err != nil {
		return fmt.Errorf("link %s without ARP: %w", a.HostLink, err)
	}
	index := veth.Index
	for _, ip := range a.IPs {
		if err := netlink.NeighSet(&netlink.Neigh{LinkIndex: index, Family: family(ip), State: netlink.NUD_PERMANENT, IP: ip.AsSlice(), HardwareAddr: podMAC(a.IPs[0])}); err != nil {
			return fmt.Errorf("neighbour %s: %w", ip, err)
		}
		// With this source address, the host's packets to its pods (probes) stay inside the pod
		// range.
		route := &netlink.Route{LinkIndex: index, Dst: hostNet(ip), Scope: netlink.SCOPE_LINK, Src: p.gatewayFor(ip).AsSlice(), Protocol: routeProtocol}
		if err := netlink.RouteReplace(route); err != nil {
			return fmt.Errorf("route to %s: %w", ip, err)
		}
	}
	return nil
}

// unroute removes the route to the pod, which is fast. A missing route is no error.
func unroute(a *attachment) error {
	for _, ip := range a.IPs {
		if err := netlink.RouteDel(&netlink.Route{Dst: hostNet(ip), Protocol: routeProtocol}); err != nil && !isGone(err) {
			return fmt.Errorf("route to %s: %w", ip, err)
		}
	}
	return nil
}

// unplug removes the veth pair; routes and neighbours go with the link. A missing link is no error.
func unplug(hostLink string) error {
	link, err := netlink.LinkByName(hostLink)
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil && !isGone(err) {
		return fmt.Errorf("link %s: %w", hostLink, err)
	}
	return nil
}

// checkPlugged compares the kernel with the attachment (CNI's CHECK).
func checkPlugged(a *attachment, p plumbing) error {
	host, err := netlink.LinkByName(a.HostLink)
	if err != nil {
		return fmt.Errorf("link %s: %w", a.HostLink, err)
	}
	ns, err := netns.GetFromPath(a.NetNS)
	if err != nil {
		return fmt.Errorf("network namespace %s: %w", a.NetNS, err)
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink in %s: %w", a.NetNS, err)
	}
	defer h.Close()
	eth, err := h.LinkByName(a.IfName)
	if err != nil {
		return fmt.Errorf("link %s in %s: %w", a.IfName, a.NetNS, err)
	}
	addrs, err := dump(func() ([]netlink.Addr, error) { return h.AddrList(eth, netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("addresses of %s in %s: %w", a.IfName, a.NetNS, err)
	}
	for _, ip := range a.IPs {
		found := false
		for _, addr := range addrs {
			found = found || addr.IP.Equal(net.IP(ip.AsSlice()))
		}
		if !found {
			return fmt.Errorf("address %s is missing on %s in %s", ip, a.IfName, a.NetNS)
		}
		routes, err := dump(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(family(ip), &netlink.Route{LinkIndex: host.Attrs().Index, Dst: hostNet(ip)}, netlink.RT_FILTER_OIF|netlink.RT_FILTER_DST)
		})
		if err != nil || len(routes) == 0 {
			return fmt.Errorf("route to %s by %s is missing", ip, a.HostLink)
		}
	}
	return nil
}
