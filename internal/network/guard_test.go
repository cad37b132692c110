package network

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/network/nettest"
)

// datagrams counts the datagrams that arrive at an address of the caller's namespace.
func datagrams(t *testing.T, in func(testing.TB, func()), addr string) (arrives func(what string, send func(), want bool)) {
	t.Helper()
	var conn net.PacketConn
	listen := func() {
		var err error
		if conn, err = net.ListenPacket("udp", addr); err != nil {
			t.Error(err)
		}
	}
	if in == nil {
		listen()
	} else {
		in(t, listen)
	}
	if conn == nil {
		t.FailNow()
	}
	t.Cleanup(func() { conn.Close() })
	return func(what string, send func(), want bool) {
		t.Helper()
		send()
		patience := 300 * time.Millisecond
		if want {
			patience = time.Minute
		}
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		_, from, err := conn.ReadFrom(make([]byte, 2000))
		if got := err == nil; got != want {
			t.Errorf("%s: arrives: %v (from %v), want %v", what, got, from, want)
		}
	}
}

// send sends one datagram from a namespace. An empty from lets the kernel choose.
func send(t *testing.T, in func(testing.TB, func()), from, to string, content []byte) func() {
	return func() {
		t.Helper()
		in(t, func() {
			d := net.Dialer{}
			if from != "" {
				d.LocalAddr = &net.UDPAddr{IP: net.ParseIP(from)}
			}
			c, err := d.Dial("udp", to)
			if err != nil {
				t.Errorf("from %s: %v", from, err)
				return
			}
			defer c.Close()
			_, _ = c.Write(content)
		})
	}
}

func (p pod) change(t *testing.T, fn func(eth netlink.Link) error) {
	t.Helper()
	p.In(t, func() {
		eth, err := netlink.LinkByName("eth0")
		if err == nil {
			err = fn(eth)
		}
		if err != nil {
			t.Error(err)
		}
	})
}

func TestAPodSendsOnlyFromItsOwnAddresses(t *testing.T) {
	for _, c := range []struct{ family, cidr, gateway, spoofed string }{
		{"IPv4", "10.42.0.0/24", "10.42.0.1", "10.42.0.77"},
		{"IPv6", "fd00:42::/112", "fd00:42::1", "fd00:42::77"},
	} {
		t.Run(c.family, func(t *testing.T) {
			n := agent(t, nettest.NewObjects(node("a", c.cidr, "127.0.0.1")), func(cfg *Config) { cfg.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix(c.cidr)} })
			one, two := addPod(t, n, "one", ""), addPod(t, n, "two", "")
			host := net.JoinHostPort(c.gateway, "9100")
			arrives := datagrams(t, nil, host)
			arrives("own address", send(t, one.In, "", host, []byte("x")), true)
			for _, ip := range []string{c.spoofed, two.ip.String()} {
				addr := &netlink.Addr{IPNet: hostNet(netip.MustParseAddr(ip)), Flags: unix.IFA_F_NODAD}
				one.change(t, func(eth netlink.Link) error { return netlink.AddrAdd(eth, addr) })
				arrives("from "+ip, send(t, one.In, ip, host, []byte("x")), false)
				one.change(t, func(eth netlink.Link) error { return netlink.AddrDel(eth, addr) })
			}
			arrives("own address again", send(t, one.In, "", host, []byte("x")), true)

			gw := netip.MustParseAddr(c.gateway)
			neighbour := func(eth netlink.Link) *netlink.Neigh {
				return &netlink.Neigh{LinkIndex: eth.Attrs().Index, Family: family(gw), State: netlink.NUD_PERMANENT, IP: gw.AsSlice(), HardwareAddr: hostMAC(one.ip)}
			}
			setMAC := func(mac string) {
				one.change(t, func(eth netlink.Link) error {
					hw, _ := net.ParseMAC(mac)
					if err := netlink.LinkSetHardwareAddr(eth, hw); err != nil {
						return err
					}
					return netlink.NeighSet(neighbour(eth)) // the change removed it
				})
			}
			setMAC("0a:58:01:02:03:04")
			arrives("another hardware address", send(t, one.In, "", host, []byte("x")), false)
			setMAC(podMAC(one.ip).String())
			arrives("own hardware address again", send(t, one.In, "", host, []byte("x")), true)

			// Without its neighbour entry the pod asks for the gateway.
			one.change(t, func(eth netlink.Link) error { return netlink.NeighDel(neighbour(eth)) })
			arrives("a pod that asks for the gateway", send(t, one.In, "", host, []byte("x")), false)
			link, err := netlink.LinkByName(hostLinkName("one.eth0"))
			if err != nil {
				t.Fatal(err)
			}
			known, err := netlink.NeighList(link.Attrs().Index, family(gw))
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range known {
				if !k.IP.Equal(one.ip.AsSlice()) && !k.IP.IsMulticast() && !k.IP.IsLinkLocalUnicast() {
					t.Errorf("the pod made the host know neighbour %s at %s", k.IP, k.HardwareAddr)
				}
			}
		})
	}
}

// frame is a VXLAN frame with a datagram from one pod to another.
func frame(vni int, to netip.Prefix, from, pod netip.Addr, port uint16) []byte {
	udp := binary.BigEndian.AppendUint16(nil, 4000)
	udp = binary.BigEndian.AppendUint16(udp, port)
	udp = append(udp, 0, 9, 0, 0, 'x')
	ip := []byte{0x45, 0, 0, byte(20 + len(udp)), 0, 1, 0, 0, 64, 17, 0, 0}
	ip = append(append(ip, from.AsSlice()...), pod.AsSlice()...)
	sum := uint32(0)
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum+sum>>16))
	out := []byte{8, 0, 0, 0, byte(vni >> 16), byte(vni >> 8), byte(vni), 0}
	out = append(out, vtepMAC(to)...)
	out = append(out, vtepMAC(netip.MustParsePrefix("10.42.1.0/24"))...)
	out = append(out, 8, 0)
	return append(append(out, ip...), udp...)
}

func TestOverlayFramesComeFromPeersOnly(t *testing.T) {
	outside := uplink(t)
	objects := nettest.NewObjects(node("a", "10.42.0.0/24", "192.0.2.1"))
	n := agent(t, objects, nil)
	outside.In(t, func() {
		link, err := netlink.LinkByName("up0")
		if err != nil {
			t.Error(err)
			return
		}
		for _, ip := range []string{"192.0.2.3/24", "192.0.2.4/24"} {
			addr, _ := netlink.ParseAddr(ip)
			if err := netlink.AddrAdd(link, addr); err != nil {
				t.Error(err)
			}
		}
	})
	victim, attacker := addPod(t, n, "victim", ""), addPod(t, n, "attacker", "")
	own := netip.MustParsePrefix("10.42.0.0/24")
	crafted := frame(42, own, netip.MustParseAddr("10.42.1.5"), victim.ip, 9999)
	arrives := datagrams(t, victim.In, ":9999")
	peers := func(addrs ...string) {
		var nodes []*corev1.Node
		for i, addr := range addrs {
			nodes = append(nodes, node(fmt.Sprint("peer", i), fmt.Sprintf("10.42.%d.0/24", i+1), addr))
			objects.Put(nodes[i])
		}
		nettest.Eventually(t, "the peers are known", func() bool {
			n.firewall.mu.Lock()
			defer n.firewall.mu.Unlock()
			ok := len(n.firewall.guards.peers) == len(addrs)
			for _, addr := range addrs {
				ok = ok && n.firewall.guards.peers[netip.MustParseAddr(addr)]
			}
			return ok && linkExists(DefaultOverlayLink)
		})
	}
	peers("192.0.2.2")
	nettest.Eventually(t, "the overlay carries frames", func() bool {
		link, err := netlink.LinkByName(DefaultOverlayLink)
		return err == nil && link.Attrs().Flags&net.FlagUp != 0
	})
	arrives("a peer's frame", send(t, outside.In, "192.0.2.2", "192.0.2.1:8472", crafted), true)
	arrives("a stranger's frame", send(t, outside.In, "192.0.2.3", "192.0.2.1:8472", crafted), false)
	arrives("a pod's frame to its node", send(t, attacker.In, "", "192.0.2.1:8472", crafted), false)
	arrives("a pod's frame to its gateway", send(t, attacker.In, "", "10.42.0.1:8472", crafted), false)

	peers("192.0.2.2", "192.0.2.4")
	arrives("a new peer's frame", send(t, outside.In, "192.0.2.4", "192.0.2.1:8472", crafted), true)
	peers("192.0.2.3", "192.0.2.4")
	arrives("the frame of a former peer's address", send(t, outside.In, "192.0.2.2", "192.0.2.1:8472", crafted), false)

	toPeer := datagrams(t, outside.In, "192.0.2.3:8472")
	toPeer("a pod's frame to another node", send(t, attacker.In, "", "192.0.2.3:8472", crafted), false)
	toOther := datagrams(t, outside.In, "192.0.2.3:8473")
	toOther("a pod's datagram to another port of the node", send(t, attacker.In, "", "192.0.2.3:8473", crafted), true)
}
