package nettest

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Machine is a namespace beside the test's own, connected by a veth link: a pod, or a client from
// elsewhere.
type Machine struct {
	NS
	IP string
}

var links struct {
	sync.Mutex
	n int
}

// NewMachine makes a Machine with this address. All pods have the gateway 10.42.0.1, or fd42::1.
func NewMachine(t testing.TB, ip string) Machine {
	t.Helper()
	m := Machine{New(t), ip}
	links.Lock()
	links.n++
	name := fmt.Sprintf("m%d", links.n)
	links.Unlock()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Flags = name, net.FlagUp
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerNamespace = "eth0", netlink.NsFd(int(m.Handle))
	must(t, netlink.LinkAdd(veth))
	t.Cleanup(func() { _ = netlink.LinkDel(veth) })
	addr, _ := netlink.ParseAddr(ip + "/32")
	gateway, _ := netlink.ParseAddr("10.42.0.1/32")
	_, all, _ := net.ParseCIDR("0.0.0.0/0")
	forwarding := "/proc/sys/net/ipv4/ip_forward"
	if strings.Contains(ip, ":") {
		addr, _ = netlink.ParseAddr(ip + "/128")
		gateway, _ = netlink.ParseAddr("fd42::1/128")
		_, all, _ = net.ParseCIDR("::/0")
		forwarding = "/proc/sys/net/ipv6/conf/all/forwarding"
		// Detection of duplicates would make the addresses usable a second later only.
		addr.Flags, gateway.Flags = unix.IFA_F_NODAD, unix.IFA_F_NODAD
	}
	must(t, netlink.AddrReplace(veth, gateway))
	must(t, netlink.RouteAdd(&netlink.Route{LinkIndex: veth.Index, Dst: addr.IPNet, Scope: netlink.SCOPE_LINK, Src: gateway.IP}))
	m.In(t, func() {
		eth, err := netlink.LinkByName("eth0")
		must(t, err)
		must(t, netlink.AddrAdd(eth, addr))
		must(t, netlink.LinkSetUp(eth))
		lo, err := netlink.LinkByName("lo")
		must(t, err)
		must(t, netlink.LinkSetUp(lo))
		must(t, netlink.RouteAdd(&netlink.Route{LinkIndex: eth.Attrs().Index, Dst: all, Gw: gateway.IP, Flags: int(netlink.FLAG_ONLINK)}))
	})
	must(t, os.WriteFile(forwarding, []byte("1"), 0))
	// Reading the link makes the kernel process the carrier now.
	_, err := netlink.LinkByIndex(veth.Index)
	must(t, err)
	return m
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Serve answers TCP and UDP on the port with "IP from CLIENT".
func (m Machine) Serve(t *testing.T, port int) {
	t.Helper()
	var l net.Listener
	var u net.PacketConn
	family := "4"
	if strings.Contains(m.IP, ":") {
		family = "6"
	}
	m.In(t, func() {
		var err error
		l, err = net.Listen("tcp"+family, fmt.Sprintf(":%d", port))
		must(t, err)
		u, err = net.ListenPacket("udp"+family, fmt.Sprintf(":%d", port))
		must(t, err)
	})
	t.Cleanup(func() { l.Close(); u.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
			fmt.Fprintf(c, "%s from %s", m.IP, host)
			c.Close()
		}
	}()
	go func() {
		buf := make([]byte, 100)
		for {
			_, from, err := u.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = u.WriteTo([]byte(m.IP), from)
		}
	}()
}

// Ask connects and reads the server's first line.
func Ask(addr string) (string, error) { return ask(addr, time.Minute) }

func ask(addr string, timeout time.Duration) (string, error) {
	c, err := net.DialTimeout("tcp", addr, timeout)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(timeout))
	b, err := io.ReadAll(c)
	return string(b), err
}

// Ask is the function Ask, from this machine.
func (m Machine) Ask(t *testing.T, addr string) (answer string, err error) {
	m.In(t, func() { answer, err = Ask(addr) })
	return answer, err
}

// Wants expects an answer, Refused a refusal, and Silent neither.
func (m Machine) Wants(t *testing.T, what, addr, want string) {
	t.Helper()
	if got, err := m.Ask(t, addr); err != nil || got != want {
		t.Errorf("%s: %q, %v; want %q", what, got, err, want)
	}
}

func (m Machine) Refused(t *testing.T, what, addr string) {
	t.Helper()
	if got, err := m.Ask(t, addr); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("%s: %q, %v; want connection refused", what, got, err)
	}
}

func (m Machine) Silent(t *testing.T, what, addr string) {
	t.Helper()
	var got string
	var err error
	m.In(t, func() { got, err = ask(addr, time.Second) })
	if err == nil || !strings.Contains(err.Error(), "timeout") {
		t.Errorf("%s: %q, %v; want no answer", what, got, err)
	}
}
