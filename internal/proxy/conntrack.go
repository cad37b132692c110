package proxy

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// flowKey is the destination of clients. For node ports the address is the unspecified one.
type flowKey struct {
	proto uint8
	addr  netip.Addr
	port  uint16
}

// staleFlows maps each changed frontend to the backends that its flows may have. The kernel keeps a
// flow for as long as the client sends.
//
//	UDP  a flow would never leave a removed backend or reach a new one
//	TCP  an attempt to connect to a backend that does not answer would be repeated there for two
//	     minutes; after its flow is deleted, the next attempt reaches another backend
//
// TCP connections that a backend has answered stay with it.
type staleFlows map[flowKey]map[backend]bool

// tcpAttempt is the kernel's state of a TCP flow without an answer (TCP_CONNTRACK_SYN_SENT).
const tcpAttempt = 1

// MatchConntrackFlow is netlink's filter interface. It returns true for flows to delete.
func (s staleFlows) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	proto := flow.Forward.Protocol
	if tcp, ok := flow.ProtoInfo.(*netlink.ProtoInfoTCP); proto != unix.IPPROTO_UDP && (!ok || tcp.State != tcpAttempt) {
		return false
	}
	dst, ok := netip.AddrFromSlice(flow.Forward.DstIP)
	if !ok {
		return false
	}
	dst = dst.Unmap()
	allowed, ours := s[flowKey{proto, dst, flow.Forward.DstPort}]
	if !ours {
		allowed, ours = s[flowKey{proto, unspecified(dst.Is4()), flow.Forward.DstPort}]
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
			return fmt.Errorf("stale flows: %w", err)
		}
	}
	return nil
}
