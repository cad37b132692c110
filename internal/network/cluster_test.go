package network_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/dns"
	"github.com/knarr-project/knarr/internal/network"
	"github.com/knarr-project/knarr/internal/network/nettest"
	"github.com/knarr-project/knarr/internal/proxy"
)

// secondNode makes the test binary act as node b, in a network namespace of its own. It takes
// commands on standard input.
const secondNode = "KNARR_TEST_SECOND_NODE"

func TestMain(m *testing.M) {
	if os.Getenv(secondNode) != "" { // already in node b's namespace
		os.Exit(m.Run())
	}
	nettest.Main(m)
}

func ptr[T any](v T) *T { return &v }

// clusterObjects holds the objects that both nodes see: the DNS, and a Service with a pod on each
// node.
func clusterObjects() *nettest.Objects {
	node := func(name, cidr, ip string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDR: cidr, PodCIDRs: []string{cidr}},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}}}
	}
	service := func(ns, name, ip string, port, nodePort int32, protocol corev1.Protocol) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, ClusterIP: ip, ClusterIPs: []string{ip},
			Ports: []corev1.ServicePort{{Name: "p", Protocol: protocol, Port: port, NodePort: nodePort}}}}
	}
	slice := func(ns, name string, port int32, ip, node string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name + "-" + node, Labels: map[string]string{discoveryv1.LabelServiceName: name}}, AddressType: discoveryv1.AddressTypeIPv4,
			Ports:     []discoveryv1.EndpointPort{{Name: ptr("p"), Protocol: ptr(corev1.ProtocolTCP), Port: ptr(port)}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{ip}, NodeName: ptr(node)}}}
	}
	objects := []runtime.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}},
		node("a", "10.42.0.0/24", "192.0.2.1"), node("b", "10.42.1.0/24", "192.0.2.2"),
		service("default", "on-a", "10.43.0.80", 80, 30080, corev1.ProtocolTCP), slice("default", "on-a", 8080, "10.42.0.2", "a"),
		service("default", "on-b", "10.43.0.81", 80, 30081, corev1.ProtocolTCP), slice("default", "on-b", 8080, "10.42.1.2", "b"),
	}
	return nettest.NewObjects(objects...)
}

// startNode runs the three components of a node and a pod that answers with its own name and the
// client's address.
func startNode(t *testing.T, name string) nettest.NS {
	t.Helper()
	objects, dir := clusterObjects(), t.TempDir()
	clusterCIDRs, serviceCIDRs := []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}, []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")}
	n, err := network.New(network.Config{NodeName: name, Client: objects, DataDir: dir, SocketPath: filepath.Join(dir, "cni.sock"), CNIConfDir: dir, ClusterCIDRs: clusterCIDRs, ServiceCIDRs: serviceCIDRs})
	must(t, err)
	p, err := proxy.New(proxy.Config{NodeName: name, Client: objects, ClusterCIDRs: clusterCIDRs, ServiceCIDRs: serviceCIDRs})
	must(t, err)
	d, err := dns.New(dns.Config{NodeName: name, Client: objects, ClusterIP: netip.MustParseAddr("10.43.0.10"), ResolvConf: filepath.Join(dir, "none")})
	must(t, err)
	run(t, n.Run, p.Run, d.Run)
	for _, ready := range []<-chan struct{}{n.Ready(), p.Ready(), d.Ready()} {
		<-ready
	}
	pod := attach(t, filepath.Join(dir, "cni.sock"), "pod on "+name)
	serve(t, pod, "pod on "+name)
	return pod
}

// run runs components until the test ends.
func run(t *testing.T, components ...func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, len(components))
	for _, c := range components {
		go func() { done <- c(ctx) }()
	}
	t.Cleanup(func() {
		cancel()
		for range components {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// attach makes a network namespace and attaches it as the CNI plugin does.
func attach(t *testing.T, socket, id string) nettest.NS {
	t.Helper()
	pod := nettest.New(t)
	conn, err := net.Dial("unix", socket)
	must(t, err)
	defer conn.Close()
	must(t, json.NewEncoder(conn).Encode(map[string]any{"command": "ADD", "containerID": id, "netns": pod.Path, "ifName": "eth0", "config": map[string]string{"cniVersion": "1.0.0"}}))
	var reply struct {
		Code   int
		Stdout json.RawMessage
	}
	must(t, json.NewDecoder(conn).Decode(&reply))
	if reply.Code != 0 {
		t.Fatalf("ADD: %s", reply.Stdout)
	}
	return pod
}

// serve answers every connection with the server's name and the client's address.
func serve(t *testing.T, pod nettest.NS, name string) {
	t.Helper()
	var l net.Listener
	var err error
	pod.In(t, func() { l, err = net.Listen("tcp", ":8080") })
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
			fmt.Fprintf(c, "%s from %s", name, host)
			c.Close()
		}
	}()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func askAddr(addr string) string {
	c, err := net.DialTimeout("tcp", addr, time.Minute)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	b, err := io.ReadAll(c)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// resolve queries the cluster's DNS through its Service. It retries for a while, because the node's
// DNS registers itself after it is ready.
func resolve(name string) string {
	c := mdns.Client{Timeout: 5 * time.Second}
	var m *mdns.Msg
	var err error
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		m, _, err = c.Exchange(new(mdns.Msg).SetQuestion(name, mdns.TypeA), "10.43.0.10:53")
		if err == nil || time.Now().After(deadline) {
			break
		}
	}
	switch {
	case err != nil:
		return err.Error()
	case len(m.Answer) != 1:
		return mdns.RcodeToString[m.Rcode]
	}
	return m.Answer[0].(*mdns.A).A.String()
}

func addressLink(name, addr string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	a, err := netlink.ParseAddr(addr)
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(link, a); err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

// TestSecondNode is not a test: it is node b, in a process that TestTwoNodes starts. Commands: "up"
// starts the node; "pod ADDR", "host ADDR" and "resolve NAME" send a request from there.
func TestSecondNode(t *testing.T) {
	if os.Getenv(secondNode) == "" {
		t.Skip("is the second node of TestTwoNodes")
	}
	in := bufio.NewScanner(os.Stdin)
	var pod nettest.NS
	for in.Scan() {
		verb, arg, _ := strings.Cut(in.Text(), " ")
		answer := "?"
		switch verb {
		case "up":
			lo, err := netlink.LinkByName("lo")
			must(t, err)
			must(t, netlink.LinkSetUp(lo))
			must(t, addressLink("up0", "192.0.2.2/24"))
			pod, answer = startNode(t, "b"), "up"
		case "host":
			answer = askAddr(arg)
		case "pod":
			pod.In(t, func() { answer = askAddr(arg) })
		case "resolve":
			pod.In(t, func() { answer = resolve(arg) })
		}
		fmt.Printf("answer %s\n", answer)
	}
}

func TestTwoNodes(t *testing.T) {
	nettest.Need(t)
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestSecondNode$")
	cmd.Env = append(os.Environ(), secondNode+"=1")
	cmd.Stderr = t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	defer func() { in.Close(); _ = cmd.Wait() }()
	lines := bufio.NewScanner(out)
	command := func(order string) string {
		t.Helper()
		fmt.Fprintln(in, order)
		for lines.Scan() {
			if answer, ok := strings.CutPrefix(lines.Text(), "answer "); ok {
				return answer
			}
		}
		t.Fatalf("node b ended at %q", order)
		return ""
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "up0"
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerNamespace = "up0", netlink.NsPid(cmd.Process.Pid)
	must(t, netlink.LinkAdd(veth))
	defer func() { _ = netlink.LinkDel(veth) }()
	must(t, addressLink("up0", "192.0.2.1/24"))
	if got := command("up"); got != "up" {
		t.Fatal(got)
	}
	pod := startNode(t, "a")
	defer func() {
		must(t, network.Purge(network.Config{DataDir: t.TempDir(), CNIConfDir: t.TempDir(), SocketPath: "/nonexistent"}))
	}()
	fromPod := func(addr string) (answer string) {
		pod.In(t, func() { answer = askAddr(addr) })
		return answer
	}
	var resolved string
	pod.In(t, func() { resolved = resolve("on-b.default.svc.cluster.local.") })
	for _, c := range []struct{ what, got, want string }{
		{"pod to pod", fromPod("10.42.1.2:8080"), "pod on b from 10.42.0.2"},
		{"host to the other node's pod", askAddr("10.42.1.2:8080"), "pod on b from 10.42.0.1"},
		{"pod to a Service on the other node", fromPod("10.43.0.81:80"), "pod on b from 10.42.0.2"},
		{"host to a Service on the other node, without a default route", askAddr("10.43.0.81:80"), "pod on b from 10.42.0.1"},
		{"pod to itself by its Service", fromPod("10.43.0.80:80"), "pod on a from 192.0.2.1"},
		{"pod to the other node's node port", fromPod("192.0.2.2:30081"), "pod on b from 192.0.2.2"},
		{"host to the other node's node port, with the pod on this node", askAddr("192.0.2.2:30080"), "pod on a from 10.42.1.0"},
		{"host to its own node port, with the pod on the other node", askAddr("192.0.2.1:30081"), "pod on b from 10.42.0.0"},
		{"back: pod to pod", command("pod 10.42.0.2:8080"), "pod on a from 10.42.1.2"},
		{"back: host to a Service", command("host 10.43.0.80:80"), "pod on a from 10.42.1.1"},
		{"a name, from here", resolved, "10.43.0.81"},
		{"a name, from there", command("resolve on-a.default.svc.cluster.local."), "10.43.0.80"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", c.what, c.got, c.want)
		}
	}
}

func TestDualStack(t *testing.T) {
	nettest.Need(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.NodeSpec{PodCIDR: "10.42.0.0/24", PodCIDRs: []string{"10.42.0.0/24", "fd42::/64"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}}}
	service := func(name, ip string, affinity corev1.ServiceAffinity) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.ServiceSpec{ClusterIP: ip, ClusterIPs: []string{ip}, SessionAffinity: affinity,
			Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80, NodePort: 30080}}}}
	}
	slice := func(name string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name + "-6", Labels: map[string]string{discoveryv1.LabelServiceName: name}}, AddressType: discoveryv1.AddressTypeIPv6,
			Ports: []discoveryv1.EndpointPort{{Port: ptr(int32(8080))}}, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"fd42::2"}, NodeName: ptr("a")}}}
	}
	objects := nettest.NewObjects(node, service("plain", "fd43::80", corev1.ServiceAffinityNone), slice("plain"), service("sticky", "fd43::81", corev1.ServiceAffinityClientIP), slice("sticky"))
	dir := t.TempDir()
	cluster := []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("fd42::/56")}
	services := []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16"), netip.MustParsePrefix("fd43::/112")}
	cfg := network.Config{NodeName: "a", Client: objects, DataDir: dir, SocketPath: filepath.Join(dir, "cni.sock"), CNIConfDir: dir, ClusterCIDRs: cluster, ServiceCIDRs: services}
	n, err := network.New(cfg)
	must(t, err)
	p, err := proxy.New(proxy.Config{NodeName: "a", Client: objects, ClusterCIDRs: cluster, ServiceCIDRs: services})
	must(t, err)
	run(t, n.Run, p.Run)
	defer func() { must(t, network.Purge(cfg)) }()
	<-n.Ready()
	<-p.Ready()
	first, second := attach(t, cfg.SocketPath, "first"), attach(t, cfg.SocketPath, "second")
	serve(t, first, "first")
	from := func(ns nettest.NS, addr string) (answer string) {
		ns.In(t, func() { answer = askAddr(addr) })
		return answer
	}
	for _, c := range []struct{ what, got, want string }{
		{"pod to pod, IPv4", from(second, "10.42.0.2:8080"), "first from 10.42.0.3"},
		{"pod to pod, IPv6", from(second, "[fd42::2]:8080"), "first from fd42::3"},
		{"host to pod, IPv6", askAddr("[fd42::2]:8080"), "first from fd42::1"},
		{"Service", from(second, "[fd43::80]:80"), "first from fd42::3"},
		{"Service from the host", askAddr("[fd43::80]:80"), "first from fd42::1"},
		{"Service with session affinity", from(second, "[fd43::81]:80"), "first from fd42::3"},
		{"the same once more", from(second, "[fd43::81]:80"), "first from fd42::3"},
		{"a pod reaches itself", from(first, "[fd43::80]:80"), "first from fd42::1"},
		{"node port", from(second, "[fd42::1]:30080"), "first from fd42::1"},
		{"no such Service", from(second, "[fd43::99]:80"), "dial tcp [fd43::99]:80: connect: connection refused"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", c.what, c.got, c.want)
		}
	}
}
