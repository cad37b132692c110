package announce

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// responder answers for addresses of one family on one link, by ARP (RFC 826) or by NDP (RFC 4861).
// The kernel closes its sockets with the process, so a killed process answers no longer.
type responder struct {
	link  net.Interface
	v4    bool
	file  *os.File
	raw   syscallConn
	group int // IPv6 socket that is in the multicast groups of the addresses; -1 for ARP
	done  chan struct{}

	mu   sync.Mutex
	held map[netip.Addr]bool // guarded by mu
}

type syscallConn interface {
	Read(func(fd uintptr) bool) error
	Control(func(fd uintptr)) error
}

func newResponder(link net.Interface, v4 bool) (*responder, error) {
	if len(link.HardwareAddr) != 6 {
		return nil, fmt.Errorf("link %s is no Ethernet link", link.Name)
	}
	r := &responder{link: link, v4: v4, group: -1, done: make(chan struct{}), held: map[netip.Addr]bool{}}
	// No packets arrive before the filter is set, because the protocol is still 0.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	if !v4 {
		if err = onlySolicitations(fd); err == nil {
			r.group, err = unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		}
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: r.protocol(), Ifindex: link.Index})
	}
	if err == nil {
		r.file = os.NewFile(uintptr(fd), "packets of "+link.Name)
		r.raw, err = r.file.SyscallConn()
	}
	if err != nil {
		if r.group >= 0 {
			unix.Close(r.group)
		}
		unix.Close(fd)
		return nil, fmt.Errorf("packet socket on %s: %w", link.Name, err)
	}
	go r.run()
	return r, nil
}

// protocol is the Ethernet protocol in network order.
func (r *responder) protocol() uint16 {
	p := uint16(unix.ETH_P_IPV6)
	if r.v4 {
		p = unix.ETH_P_ARP
	}
	return p<<8 | p>>8
}

// onlySolicitations filters neighbour solicitations out of all IPv6 packets.
func onlySolicitations(fd int) error {
	program, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: 6, Size: 1}, // next header
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_ICMPV6, SkipTrue: 3},
		bpf.LoadAbsolute{Off: ipv6Header, Size: 1}, // type
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: solicitation, SkipTrue: 1},
		bpf.RetConstant{Val: 1500},
		bpf.RetConstant{Val: 0},
	})
	if err != nil {
		return err
	}
	filter := make([]unix.SockFilter, len(program))
	for i, p := range program {
		filter[i] = unix.SockFilter{Code: p.Op, Jt: p.Jt, Jf: p.Jf, K: p.K}
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
}

// hold answers for the address from now on, and tells the network.
func (r *responder) hold(a netip.Addr) error {
	if !r.v4 {
		if err := unix.SetsockoptIPv6Mreq(r.group, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, r.membership(a)); err != nil && !errors.Is(err, unix.EADDRINUSE) {
			return fmt.Errorf("join the multicast group of %s on %s: %w", a, r.link.Name, err)
		}
	}
	r.mu.Lock()
	r.held[a] = true
	r.mu.Unlock()
	return r.announce(a)
}

func (r *responder) drop(a netip.Addr) {
	r.mu.Lock()
	delete(r.held, a)
	shared := false
	for other := range r.held {
		shared = shared || solicitedNode(other) == solicitedNode(a)
	}
	r.mu.Unlock()
	if !r.v4 && !shared {
		_ = unix.SetsockoptIPv6Mreq(r.group, unix.IPPROTO_IPV6, unix.IPV6_LEAVE_GROUP, r.membership(a))
	}
}

func (r *responder) membership(a netip.Addr) *unix.IPv6Mreq {
	return &unix.IPv6Mreq{Multiaddr: solicitedNode(a), Interface: uint32(r.link.Index)}
}

// announce tells all machines of the link that the address is here.
func (r *responder) announce(a netip.Addr) error {
	if r.v4 {
		broadcast := net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
		// Some machines learn from requests only, others from replies only.
		return errors.Join(r.send(broadcast, arpPacket(arpRequest, r.link.HardwareAddr, a, make(net.HardwareAddr, 6), a)),
			r.send(broadcast, arpPacket(arpReply, r.link.HardwareAddr, a, broadcast, a)))
	}
	return r.send(allNodesMAC, advertisement(a, allNodes, r.link.HardwareAddr, false))
}

func (r *responder) send(to net.HardwareAddr, packet []byte) error {
	address := &unix.SockaddrLinklayer{Protocol: r.protocol(), Ifindex: r.link.Index, Halen: 6}
	copy(address.Addr[:], to)
	var sent error
	err := r.raw.Control(func(fd uintptr) { sent = unix.Sendto(int(fd), packet, 0, address) })
	if err = errors.Join(err, sent); err != nil {
		return fmt.Errorf("send on %s: %w", r.link.Name, err)
	}
	return nil
}

// run answers until the socket is closed.
func (r *responder) run() {
	defer close(r.done)
	buf := make([]byte, 1500)
	for {
		n := 0
		var from unix.Sockaddr
		var failed error
		err := r.raw.Read(func(fd uintptr) bool {
			n, from, failed = unix.Recvfrom(int(fd), buf, 0)
			return !errors.Is(failed, unix.EAGAIN)
		})
		if err != nil { // closed
			return
		}
		ll, ok := from.(*unix.SockaddrLinklayer)
		if failed != nil || !ok || ll.Pkttype == unix.PACKET_OUTGOING {
			continue // ENETDOWN while the link is down
		}
		sender := net.HardwareAddr(slices.Clone(ll.Addr[:6]))
		to, answer := answerTo(buf[:n], r.v4, r.link.HardwareAddr, sender, r.holds)
		if answer != nil {
			_ = r.send(to, answer)
		}
	}
}

func (r *responder) holds(a netip.Addr) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held[a]
}

func (r *responder) close() {
	_ = r.file.Close()
	<-r.done
	if r.group >= 0 {
		unix.Close(r.group)
	}
}

// answerTo returns the answer to an ARP request or a neighbour solicitation, and its receiver; nil
// for any other packet.
func answerTo(packet []byte, v4 bool, own, sender net.HardwareAddr, holds func(netip.Addr) bool) (net.HardwareAddr, []byte) {
	if v4 {
		asker, askerAddr, wanted, ok := parseARP(packet)
		if !ok || !holds(wanted) {
			return nil, nil
		}
		return asker, arpPacket(arpReply, own, wanted, asker, askerAddr)
	}
	asker, wanted, ok := parseSolicitation(packet)
	if !ok || !holds(wanted) {
		return nil, nil
	}
	if asker.IsUnspecified() { // duplicate address detection
		return allNodesMAC, advertisement(wanted, allNodes, own, false)
	}
	return sender, advertisement(wanted, asker, own, true)
}

const (
	arpRequest = 1
	arpReply   = 2
	arpLen     = 28
)

// parseARP reads a request.
func parseARP(p []byte) (asker net.HardwareAddr, askerAddr, wanted netip.Addr, ok bool) {
	if len(p) < arpLen || binary.BigEndian.Uint16(p) != 1 || binary.BigEndian.Uint16(p[2:]) != unix.ETH_P_IP || p[4] != 6 || p[5] != 4 || binary.BigEndian.Uint16(p[6:]) != arpRequest {
		return nil, netip.Addr{}, netip.Addr{}, false
	}
	return slices.Clone(p[8:14]), netip.AddrFrom4([4]byte(p[14:18])), netip.AddrFrom4([4]byte(p[24:28])), true
}

func arpPacket(op uint16, from net.HardwareAddr, fromAddr netip.Addr, to net.HardwareAddr, toAddr netip.Addr) []byte {
	p := binary.BigEndian.AppendUint16(nil, 1) // Ethernet
	p = binary.BigEndian.AppendUint16(p, unix.ETH_P_IP)
	p = append(p, 6, 4)
	p = binary.BigEndian.AppendUint16(p, op)
	return slices.Concat(p, from, fromAddr.AsSlice(), to, toAddr.AsSlice())
}

const (
	ipv6Header    = 40
	solicitation  = 135
	advertised    = 136
	solicitedFlag = 0x40
	overrideFlag  = 0x20
)

var (
	allNodes    = netip.MustParseAddr("ff02::1")
	allNodesMAC = net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}
)

// solicitedNode is the multicast group of an address (RFC 4291, section 2.7.1).
func solicitedNode(a netip.Addr) [16]byte {
	b := a.As16()
	return [16]byte{0xff, 2, 11: 1, 12: 0xff, 13: b[13], 14: b[14], 15: b[15]}
}

// parseSolicitation reads an IPv6 packet with a neighbour solicitation.
func parseSolicitation(p []byte) (asker, wanted netip.Addr, ok bool) {
	if len(p) < ipv6Header+24 || p[0]>>4 != 6 || p[6] != unix.IPPROTO_ICMPV6 || p[7] != 255 || p[ipv6Header] != solicitation || p[ipv6Header+1] != 0 {
		return asker, wanted, false
	}
	return netip.AddrFrom16([16]byte(p[8:24])), netip.AddrFrom16([16]byte(p[ipv6Header+8 : ipv6Header+24])), true
}

// advertisement returns an IPv6 packet with a neighbour advertisement.
func advertisement(a, to netip.Addr, own net.HardwareAddr, solicited bool) []byte {
	flags := byte(overrideFlag)
	if solicited {
		flags |= solicitedFlag
	}
	body := slices.Concat([]byte{advertised, 0, 0, 0, flags, 0, 0, 0}, a.AsSlice(), []byte{2, 1}, own)
	pseudo := slices.Concat(a.AsSlice(), to.AsSlice(), []byte{0, 0, 0, byte(len(body)), 0, 0, 0, unix.IPPROTO_ICMPV6}, body)
	binary.BigEndian.PutUint16(body[2:], checksum(pseudo))
	head := []byte{0x60, 0, 0, 0, 0, byte(len(body)), unix.IPPROTO_ICMPV6, 255}
	return slices.Concat(head, a.AsSlice(), to.AsSlice(), body)
}

// checksum is the Internet checksum (RFC 1071) of an even number of bytes.
func checksum(p []byte) uint16 {
	sum := uint32(0)
	for i := 0; i+1 < len(p); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(p[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
