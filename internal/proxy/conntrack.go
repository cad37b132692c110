package proxy

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// flowKey is the destination of UDP clients. For node ports the address is the unspecified one.
type flowKey struct {
	addr netip.Addr
	port uint16
}

// staleFlows maps each changed frontend to the backends that its flows may have. The kernel keeps a
// UDP flow for as long as the client sends. Such a flow would never leave a removed backend or
// reach a new one.
type staleFlows map[flowKey]map[backend]bool

// MatchConntrackFlow is netlink's filter interface. It returns true for flows to delete.
func (s staleFlows) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	if flow.Forward.Protocol != unix.IPPROTO_UDP {
		return false
	}
	dst, ok := netip.AddrFromSlice(flow.Forward.DstIP)
	if !ok {
		return false
	}
	dst = dst.Unmap()
	allowed, ours := s[flowKey{dst, flow.Forward.DstPort}]
	if !ours {
		allowed, ours = s[flowKey{unspecified(dst.Is4()), flow.Forward.DstPort}]
		src, _ := netip.AddrFromSlice(flow.Reverse.SrcIP)
		if ours && src.Unmap() == dst && len(allowed) == 0 {
			return false // to a host process on the same port, or to another machine
		}
	}
	if !ours {
		return false
	}
	src, _ := netip.AddrFromSlice(flow.Reverse.SrcIP)
	return !allowed[backend{src.Unmap(), flow.Reverse.SrcPort}]
}

// forget deletes the stale flows. It reads the kernel's table once.
func (s staleFlows) forget(h *netlink.Handle) error {
	v4, v6 := false, false
	for k := range s {
		v4, v6 = v4 || k.addr.Is4(), v6 || k.addr.Is6()
	}
	for family, needed := range map[netlink.InetFamily]bool{unix.AF_INET: v4, unix.AF_INET6: v6} {
		if !needed {
			continue
		}
		var err error
		for range 5 {
			if _, err = h.ConntrackDeleteFilters(netlink.ConntrackTable, family, s); !errors.Is(err, netlink.ErrDumpInterrupted) {
				break
			}
		}
		if err != nil {
			return fmt.Errorf("stale UDP flows: %w", err)
		}
	}
	return nil
}
