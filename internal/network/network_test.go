package network

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/network/nettest"
)

func node(name, cidr, ip string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDR: cidr, PodCIDRs: []string{cidr}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}}}
}

// agent starts a pod network in the test's namespace and waits until it is ready.
func agent(t *testing.T, objects *nettest.Objects, change func(*Config)) *Network {
	t.Helper()
	nettest.Need(t)
	dir := t.TempDir()
	cfg := Config{
		NodeName: "a", Client: objects, SocketPath: filepath.Join(dir, "cni.sock"), CNIConfDir: filepath.Join(dir, "net.d"), DataDir: dir,
		ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}, ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")},
	}
	if change != nil {
		change(&cfg)
	}
	t.Cleanup(func() {
		if err := Purge(cfg); err != nil {
			t.Error(err)
		}
	})
	return start(t, cfg)
}

func start(t *testing.T, cfg Config) *Network {
	t.Helper()
	n, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	nettest.Eventually(t, "the pod network is ready", func() bool {
		_, err := os.Stat(filepath.Join(cfg.CNIConfDir, conflistName))
		return err == nil && n.status() == nil
	})
	return n
}

// cni sends a request to the agent as the plugin does.
func cni(t *testing.T, n *Network, command, id string, ns nettest.NS, config string) (cniReply, cniResult) {
	t.Helper()
	conn, err := net.Dial("unix", n.cfg.SocketPath)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if config == "" {
		config = `{"cniVersion":"1.0.0","name":"knarr"}`
	}
	req := cniRequest{Command: command, ContainerID: id, NetNS: ns.Path, IfName: "eth0", Args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + id, Config: json.RawMessage(config)}
	if err := json.NewEncoder(conn).Encode(req); err != nil {
		t.Fatal(err)
	}
	var reply cniReply
	if err := json.NewDecoder(conn).Decode(&reply); err != nil {
		t.Fatal(err)
	}
	var result cniResult
	if len(reply.Stdout) > 0 {
		if err := json.Unmarshal(reply.Stdout, &result); err != nil {
			t.Fatal(err)
		}
	}
	return reply, result
}

type pod struct {
	nettest.NS
	id string
	ip netip.Addr
}

func addPod(t *testing.T, n *Network, id, config string) pod {
	t.Helper()
	ns := nettest.New(t)
	reply, result := cni(t, n, "ADD", id, ns, config)
	if reply.Code != 0 {
		t.Fatalf("ADD %s: %s", id, reply.Stdout)
	}
	return pod{ns, id, netip.MustParsePrefix(result.IPs[0].Address).Addr()}
}

// echo answers each connection to the pod with one line: the pod's name and the client's address.
func (p pod) echo(t *testing.T, port int) {
	t.Helper()
	var l net.Listener
	p.In(t, func() {
		var err error
		if l, err = net.Listen("tcp", fmt.Sprintf(":%d", port)); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
			fmt.Fprintf(c, "%s from %s", p.id, host)
			c.Close()
		}
	}()
}

func ask(addr string) (string, error) {
	c, err := net.DialTimeout("tcp", addr, time.Minute)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	b, err := io.ReadAll(c)
	return string(b), err
}

func (p pod) ask(t *testing.T, addr string) (answer string, err error) {
	p.In(t, func() { answer, err = ask(addr) })
	return answer, err
}

func wantAnswer(t *testing.T, what, got string, err error, want string) {
	t.Helper()
	if err != nil || got != want {
		t.Errorf("%s: %q, %v; want %q", what, got, err, want)
	}
}

func TestPodsReachEachOtherAndTheHost(t *testing.T) {
	n := agent(t, nettest.NewObjects(node("a", "10.42.0.0/24", "127.0.0.1")), nil)
	one, two := addPod(t, n, "one", ""), addPod(t, n, "two", "")
	one.echo(t, 8080)
	answer, err := two.ask(t, one.ip.String()+":8080")
	wantAnswer(t, "pod to pod", answer, err, "one from "+two.ip.String())
	answer, err = ask(one.ip.String() + ":8080")
	wantAnswer(t, "host to pod", answer, err, "one from 10.42.0.1")
	l, err := net.Listen("tcp", "10.42.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	two.In(t, func() {
		c, err := net.DialTimeout("tcp", l.Addr().String(), time.Minute)
		if err != nil {
			t.Errorf("pod to gateway: %v", err)
			return
		}
		c.Close()
	})
	if reply, _ := cni(t, n, "CHECK", "one", one.NS, ""); reply.Code != 0 {
		t.Errorf("CHECK: %s", reply.Stdout)
	}
	for range 2 {
		if reply, _ := cni(t, n, "DEL", "one", one.NS, ""); reply.Code != 0 {
			t.Errorf("DEL: %s", reply.Stdout)
		}
	}
	if reply, _ := cni(t, n, "CHECK", "one", one.NS, ""); reply.Code == 0 {
		t.Error("CHECK after DEL succeeds")
	}
	nettest.Eventually(t, "the link and the file are gone", func() bool {
		files, _ := os.ReadDir(n.cfg.attachmentDir())
		return len(files) == 1 && !linkExists(hostLinkName("one.eth0"))
	})
}

func TestHostPortsWithTheSamePortAndDifferentAddresses(t *testing.T) {
	n := agent(t, nettest.NewObjects(node("a", "10.42.0.0/24", "127.0.0.1")), nil)
	mapping := func(hostIP, proto string) string {
		return fmt.Sprintf(`{"cniVersion":"1.0.0","name":"knarr","runtimeConfig":{"portMappings":[{"hostPort":54323,"containerPort":8080,"protocol":%q,"hostIP":%q}]}}`, proto, hostIP)
	}
	local := addPod(t, n, "local", mapping("127.0.0.1", "tcp"))
	gateway := addPod(t, n, "gateway", mapping("10.42.0.1", "TCP"))
	udp := addPod(t, n, "udp", mapping("10.42.0.1", "UDP"))
	wildcard := addPod(t, n, "any", `{"cniVersion":"1.0.0","name":"knarr","runtimeConfig":{"portMappings":[{"hostPort":80,"containerPort":8080,"protocol":"tcp"}]}}`)
	for _, p := range []pod{local, gateway, wildcard} {
		p.echo(t, 8080)
	}
	answer, err := ask("127.0.0.1:54323")
	wantAnswer(t, "hostIP 127.0.0.1", answer, err, "local from 10.42.0.1")
	answer, err = ask("10.42.0.1:54323")
	wantAnswer(t, "hostIP of the node", answer, err, "gateway from 10.42.0.1")
	answer, err = ask("127.0.0.1:80")
	wantAnswer(t, "no hostIP", answer, err, "any from 10.42.0.1")
	answer, err = local.ask(t, "10.42.0.1:80")
	wantAnswer(t, "from another pod", answer, err, "any from "+local.ip.String())
	answer, err = wildcard.ask(t, "10.42.0.1:80")
	wantAnswer(t, "from the pod itself", answer, err, "any from 10.42.0.1")

	var server net.PacketConn
	udp.In(t, func() { server, err = net.ListenPacket("udp", ":8080") })
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	c, err := net.Dial("udp", "10.42.0.1:54323")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "hello")
	_ = server.SetDeadline(time.Now().Add(time.Minute))
	if _, _, err := server.ReadFrom(make([]byte, 16)); err != nil {
		t.Errorf("UDP host port: %v", err)
	}

	// Another program flushes the rules.
	if err := purgeTable(); err != nil {
		t.Fatal(err)
	}
	if _, err := ask("127.0.0.1:80"); err == nil {
		t.Error("host port answers without rules")
	}
	if err := n.sync([]*corev1.Node{node("a", "10.42.0.0/24", "127.0.0.1")}, true); err != nil {
		t.Fatal(err)
	}
	answer, err = ask("127.0.0.1:80")
	wantAnswer(t, "after repair", answer, err, "any from 10.42.0.1")
	cni(t, n, "DEL", "any", wildcard.NS, "")
	if answer, err := ask("127.0.0.1:80"); err == nil {
		t.Errorf("host port answers %q after DEL", answer)
	}

	for name, p := range map[string]pod{"local": local, "gateway": gateway, "udp": udp} {
		cni(t, n, "DEL", name, p.NS, "")
	}
	n.firewall.mu.Lock()
	defer n.firewall.mu.Unlock()
	conn, err := n.firewall.open()
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range []*nftables.Set{n.firewall.sets["4"].hostPorts, n.firewall.sets["4"].hairpin} {
		if left, err := conn.GetSetElements(set); err != nil || len(left) > 0 {
			t.Errorf("after all DELs the set %s has %d elements; %v", set.Name, len(left), err)
		}
	}
}

func TestTheNewestAttachmentKeepsAHostPortAfterARestart(t *testing.T) {
	files := attachmentFiles{t.TempDir()}
	for i, id := range []string{"b-old", "a-new", "c-old"} {
		a := &attachment{ContainerID: id, IfName: "eth0"}
		if err := files.save(a); err != nil {
			t.Fatal(err)
		}
		at := time.Unix(1000, 0)
		if id == "a-new" {
			at = at.Add(time.Duration(i) * time.Hour)
		}
		if err := os.Chtimes(files.path(a.key()), at, at); err != nil {
			t.Fatal(err)
		}
	}
	all, err := files.load()
	if err != nil {
		t.Fatal(err)
	}
	if order := byAge(all); len(order) != 3 || order[2].ContainerID != "a-new" {
		t.Errorf("the order is %v, want the newest last", order)
	}
}

func TestAddressesSurviveAKilledAgent(t *testing.T) {
	objects := nettest.NewObjects(node("a", "10.42.0.0/29", "127.0.0.1"))
	first := agent(t, objects, nil)
	one := addPod(t, first, "one", "")
	// An attachment whose ADD was interrupted after its file had been written.
	cut := &attachment{ContainerID: "cut", IfName: "eth0", HostLink: hostLinkName("cut.eth0"), IPs: []netip.Addr{netip.MustParseAddr("10.42.0.5")}}
	if err := first.files.save(cut); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(first.cfg.attachmentDir(), "torn.json"), []byte(`{"cont`), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := first.cfg
	cfg.SocketPath += "2"
	second := start(t, cfg) // the first agent still runs on the same state; nothing is handed over
	var ips []string
	for i := range 4 {
		ips = append(ips, addPod(t, second, fmt.Sprintf("p%d", i), "").ip.String())
	}
	if got := strings.Join(ips, " "); strings.Contains(got, one.ip.String()) {
		t.Errorf("address %s was assigned twice: %s", one.ip, got)
	}
	reply, _ := cni(t, second, "ADD", "full", nettest.New(t), "")
	if reply.Code == 0 || !strings.Contains(string(reply.Stdout), "no address is free (5 in use)") {
		t.Errorf("ADD in a full range: %s", reply.Stdout)
	}
	if reply, _ := cni(t, second, "GC", "", nettest.NS{}, `{"cniVersion":"1.1.0","name":"knarr","cni.dev/valid-attachments":[{"containerID":"one","ifname":"eth0"}]}`); reply.Code != 0 {
		t.Errorf("GC: %s", reply.Stdout)
	}
	if n := len(second.attachments); n != 1 {
		t.Errorf("%d attachments after GC, want 1", n)
	}
}

func TestARepeatedADDOnAFullDiskKeepsTheAddresses(t *testing.T) {
	n := agent(t, nettest.NewObjects(node("a", "10.42.0.0/29", "127.0.0.1")), nil)
	one := addPod(t, n, "one", "")
	full := n.files.path("one.eth0") + ".new"
	if err := os.Symlink("/dev/full", full); err != nil {
		t.Fatal(err)
	}
	if reply, _ := cni(t, n, "ADD", "one", one.NS, ""); reply.Code == 0 || !strings.Contains(string(reply.Stdout), "no space left on device") {
		t.Fatalf("ADD on a full disk: %s", reply.Stdout)
	}
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		addPod(t, n, fmt.Sprint("p", i), "")
	}
	if reply, result := cni(t, n, "ADD", "full", nettest.New(t), ""); reply.Code == 0 {
		t.Errorf("another pod got address %s; the range has four beside %s", result.IPs[0].Address, one.ip)
	}
	if reply, result := cni(t, n, "ADD", "one", one.NS, ""); reply.Code != 0 || result.IPs[0].Address != one.ip.String()+"/32" {
		t.Errorf("ADD once there is space: %s, want %s", reply.Stdout, one.ip)
	}
}

func TestRoutesToPeersFollowTheNodes(t *testing.T) {
	for _, mode := range []Mode{ModeVXLAN, ModeHostGateway} {
		t.Run(string(mode), func(t *testing.T) {
			uplink(t)
			objects := nettest.NewObjects(node("a", "10.42.0.0/24", "192.0.2.1"))
			n := agent(t, objects, func(c *Config) { c.Mode = mode })
			if linkExists(DefaultOverlayLink) {
				t.Error("a single node has an overlay")
			}
			objects.Put(node("b", "10.42.1.0/24", "192.0.2.2"))
			routes := func() string {
				n.mu.Lock()
				defer n.mu.Unlock()
				list, _ := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Dst: ipNet(netip.MustParsePrefix("10.42.1.0/24"))}, netlink.RT_FILTER_DST)
				return fmt.Sprint(list)
			}
			want := "10.42.1.0"
			if mode == ModeHostGateway {
				want = "192.0.2.2"
			}
			nettest.Eventually(t, "a route to the new node", func() bool { return strings.Contains(routes(), "Gw: "+want) })
			objects.Put(node("b", "10.42.1.0/24", "192.0.2.3"))
			nettest.Eventually(t, "the forwarding entry follows the node's address", func() bool {
				if mode == ModeHostGateway {
					return strings.Contains(routes(), "Gw: 192.0.2.3")
				}
				link, err := netlink.LinkByName(DefaultOverlayLink)
				if err != nil {
					return false
				}
				fdb, _ := netlink.NeighList(link.Attrs().Index, 7)
				return strings.Contains(fmt.Sprint(fdb), "192.0.2.3") && !strings.Contains(fmt.Sprint(fdb), "192.0.2.2")
			})
			objects.Remove(node("b", "", ""))
			nettest.Eventually(t, "the route goes with the node", func() bool { return routes() == "[]" })
		})
	}
}

// uplink makes the link with the node's address 192.0.2.1 and returns the namespace at its other
// end.
func uplink(t *testing.T) nettest.NS {
	t.Helper()
	other := nettest.New(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "up0"
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerNamespace = "up0", netlink.NsFd(int(other.Handle))
	configure := func(ip string) {
		link, err := netlink.LinkByName("up0")
		if err != nil {
			t.Error(err)
			return
		}
		addr, _ := netlink.ParseAddr(ip)
		if err := netlink.AddrAdd(link, addr); err != nil {
			t.Error(err)
		}
		if err := netlink.LinkSetUp(link); err != nil {
			t.Error(err)
		}
		if lo, err := netlink.LinkByName("lo"); err == nil {
			_ = netlink.LinkSetUp(lo)
		}
	}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	configure("192.0.2.1/24")
	other.In(t, func() { configure("192.0.2.2/24") })
	t.Cleanup(func() {
		if link, err := netlink.LinkByName("up0"); err == nil {
			_ = netlink.LinkDel(link)
		}
	})
	return other
}

func TestAnotherPluginReplacesOurs(t *testing.T) {
	n := agent(t, nettest.NewObjects(node("a", "10.42.0.0/24", "127.0.0.1")), nil)
	if err := os.WriteFile(filepath.Join(n.cfg.CNIConfDir, "05-cilium.conflist"), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := n.writeConflist(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(n.cfg.CNIConfDir, conflistName)); err == nil {
		t.Error("our configuration is still there")
	}
}

// The kernel connects a veth's queue some time after the carrier. When ADD returned before that,
// the pod's first answer was lost, and every second connection took a second.
func TestAPodsFirstConnectionIsFast(t *testing.T) {
	n := agent(t, nettest.NewObjects(node("a", "10.42.0.0/24", "127.0.0.1")), nil)
	l, err := net.Listen("tcp", "10.42.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			c.Close()
		}
	}()
	for i := range 20 {
		p := addPod(t, n, fmt.Sprint("p", i), "")
		p.In(t, func() {
			// A lost packet is sent again after 1 s.
			c, err := net.DialTimeout("tcp", l.Addr().String(), 900*time.Millisecond)
			if err != nil {
				t.Errorf("pod %d: %v", i, err)
				return
			}
			c.Close()
		})
	}
}

func BenchmarkAddDel(b *testing.B) {
	nettest.Need(b)
	dir := b.TempDir()
	n, err := New(Config{NodeName: "a", Client: nil, DataDir: dir, CNIConfDir: dir})
	if err != nil {
		b.Fatal(err)
	}
	if err := n.restore(); err != nil {
		b.Fatal(err)
	}
	if err := n.sync([]*corev1.Node{node("a", "10.42.0.0/24", "127.0.0.1")}, true); err != nil {
		b.Fatal(err)
	}
	defer Purge(n.cfg)
	var add, del time.Duration
	for i := range b.N {
		ns := nettest.New(b)
		req := &cniRequest{Command: "ADD", ContainerID: fmt.Sprint("c", i), NetNS: ns.Path, IfName: "eth0", Config: json.RawMessage(`{"cniVersion":"1.0.0"}`)}
		start := time.Now()
		if _, err := n.handle(context.Background(), req); err != nil {
			b.Fatal(err)
		}
		add += time.Since(start)
		start = time.Now()
		req.Command = "DEL"
		if _, err := n.handle(context.Background(), req); err != nil {
			b.Fatal(err)
		}
		del += time.Since(start)
	}
	b.ReportMetric(float64(add.Microseconds())/float64(b.N), "add-µs")
	b.ReportMetric(float64(del.Microseconds())/float64(b.N), "del-µs")
}
