package announce

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/loadbalancer"
	"github.com/knarr-project/knarr/internal/network/nettest"
)

func TestMain(m *testing.M) { nettest.Main(m) }

const (
	here4, there4 = "192.0.2.1", "192.0.2.2"
	here6, there6 = "2001:db8::1", "2001:db8::2"
	balanced4     = "192.0.2.100"
	balanced6     = "2001:db8::100"
)

// neighbour makes a link to another namespace, and returns that and the link's hardware address
// here.
func neighbour(t *testing.T) (nettest.NS, net.HardwareAddr) {
	t.Helper()
	other := nettest.New(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "lan0"
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerNamespace = "lan1", netlink.NsFd(int(other.Handle))
	must(t, netlink.LinkAdd(veth))
	t.Cleanup(func() { _ = netlink.LinkDel(veth) })
	raise := func(name string, addresses ...string) {
		link, err := netlink.LinkByName(name)
		must(t, err)
		must(t, netlink.LinkSetUp(link))
		for _, text := range addresses {
			addr, err := netlink.ParseAddr(text)
			must(t, err)
			addr.Flags = unix.IFA_F_NODAD
			if addr.IP.To4() != nil {
				addr.Flags = 0
			} else if !hasIPv6() {
				continue
			}
			must(t, netlink.AddrAdd(link, addr))
		}
	}
	raise("lan0", here4+"/24", here6+"/64")
	other.In(t, func() { raise("lan1", there4+"/24", there6+"/64") })
	link, err := netlink.LinkByName("lan0")
	must(t, err)
	return other, link.Attrs().HardwareAddr
}

func hasIPv6() bool { _, err := os.Stat("/proc/net/if_inet6"); return err == nil }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func nodeObject(name, address string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}}}
}

func pooledService(address string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
	s.Status.Conditions = []metav1.Condition{{Type: loadbalancer.Condition, Reason: loadbalancer.FromPool}}
	return s
}

// resolve returns the hardware address that the namespace finds for the address; nil if none.
func resolve(t *testing.T, from nettest.NS, address string) (mac net.HardwareAddr) {
	t.Helper()
	from.In(t, func() {
		link, err := netlink.LinkByName("lan1")
		must(t, err)
		entry := &netlink.Neigh{LinkIndex: link.Attrs().Index, IP: net.ParseIP(address)}
		_ = netlink.NeighDel(entry)
		conn, err := net.Dial("udp", net.JoinHostPort(address, "9"))
		must(t, err)
		defer conn.Close()
		_, _ = conn.Write([]byte("x"))
		for range 20 {
			time.Sleep(10 * time.Millisecond)
			all, err := netlink.NeighList(link.Attrs().Index, 0)
			must(t, err)
			for _, n := range all {
				if n.IP.Equal(entry.IP) && n.HardwareAddr != nil && n.State&(netlink.NUD_FAILED|netlink.NUD_INCOMPLETE) == 0 {
					mac = n.HardwareAddr
					return
				}
			}
		}
	})
	return mac
}

// betterPeer returns a node's name with a lower rank than the name "here".
func betterPeer(a netip.Addr) string {
	for i := 0; ; i++ {
		if name := fmt.Sprint("peer", i); rank(a, name) < rank(a, "here") {
			return name
		}
	}
}

func TestAHolderAnswersUntilAPeerClaimsTheAddress(t *testing.T) {
	nettest.Need(t)
	for _, family := range []struct{ name, here, there, address string }{
		{"IPv4", here4, there4, balanced4}, {"IPv6", here6, there6, balanced6},
	} {
		t.Run(family.name, func(t *testing.T) {
			if family.name == "IPv6" && !hasIPv6() {
				t.Skip("this kernel has no IPv6")
			}
			other, mac := neighbour(t)
			address := netip.MustParseAddr(family.address)
			peer := betterPeer(address)
			objects := nettest.NewObjects(nodeObject("here", family.here), nodeObject(peer, family.there))
			agent, err := New(Config{NodeName: "here", NodeIP: netip.MustParseAddr(family.here), Client: objects})
			must(t, err)
			run(t, agent)

			objects.Put(pooledService(family.address))
			answers := func() bool { return resolve(t, other, family.address).String() == mac.String() }
			nettest.Eventually(t, "the address resolves to this node", answers)

			var socket *beats
			other.In(t, func() { socket, err = openBeats(t.Context(), netip.MustParseAddr(family.there), 8473) })
			must(t, err)
			defer socket.close()
			claim := encode(peer, []word{{addr: address, holds: true}})
			if family.name == "IPv4" { // as a pod would send it through its node
				p := ipv4.NewPacketConn(socket.conn)
				must(t, p.SetTTL(lasting-1))
				for range 5 {
					socket.send(netip.MustParseAddr(family.here), claim)
				}
				if !answers() {
					t.Error("a claim from another network counts")
				}
				must(t, p.SetTTL(lasting))
			}
			nettest.Eventually(t, "the node yields to a peer", func() bool {
				socket.send(netip.MustParseAddr(family.here), claim)
				return resolve(t, other, family.address) == nil
			})
			nettest.Eventually(t, "the node takes the address of a silent peer", answers)
			objects.Remove(pooledService(family.address))
			nettest.Eventually(t, "the address of a deleted Service is given up", func() bool {
				return resolve(t, other, family.address) == nil
			})
		})
	}
}

func run(t *testing.T, agent *Agent) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- agent.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the agent ended with %v", err)
		}
		if len(agent.responders) > 0 {
			t.Errorf("%d sockets are left open", len(agent.responders))
		}
	})
}
