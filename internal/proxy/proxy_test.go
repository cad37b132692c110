package proxy

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/knarr-project/knarr/internal/network/nettest"
)

func TestMain(m *testing.M) { nettest.Main(m) }

var pods = netip.MustParsePrefix("10.42.0.0/16")

// start runs a proxy in the test's namespace until the test ends.
func start(t *testing.T, objects *nettest.Objects) *Proxy {
	t.Helper()
	nettest.Need(t)
	p, err := New(Config{NodeName: "here", Client: objects, ClusterCIDRs: []netip.Prefix{pods}, ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return p
}

func serviceObject(name, ip string, change func(*corev1.ServiceSpec)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: ip, ClusterIPs: []string{ip},
		Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(8080)}},
	}}
	if change != nil {
		change(&s.Spec)
	}
	return s
}

func sliceObject(name string, eps ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: name + "-abc", Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: eps,
		Ports: []discoveryv1.EndpointPort{
			{Name: ptr("http"), Protocol: ptr(corev1.ProtocolTCP), Port: ptr(int32(8080))},
			{Name: ptr("udp"), Protocol: ptr(corev1.ProtocolUDP), Port: ptr(int32(8080))},
		},
	}
}

func ep(ip, node string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{ip}, NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: ptr(true), Serving: ptr(true), Terminating: ptr(false)}}
}

// settled waits until the kernel has the Service as its objects describe it.
func settled(t *testing.T, p *Proxy, name string) {
	t.Helper()
	<-p.Ready()
	nettest.Eventually(t, name+" is in the kernel", func() bool { return upToDate(p, name) })
}

func TestClusterIPsForPodsAndHost(t *testing.T) {
	objects := nettest.NewObjects()
	p := start(t, objects)
	one, two, client := nettest.NewMachine(t, "10.42.0.11"), nettest.NewMachine(t, "10.42.0.12"), nettest.NewMachine(t, "10.42.0.13")
	one.Serve(t, 8080)
	two.Serve(t, 8080)
	objects.Put(serviceObject("web", "10.43.0.80", nil))
	settled(t, p, "web")
	client.Refused(t, "a Service without endpoints", "10.43.0.80:80")
	client.Refused(t, "no Service", "10.43.0.99:80")
	objects.Put(sliceObject("web", ep(one.IP, "here"), ep(two.IP, "here")))
	settled(t, p, "web")
	seen := map[string]bool{}
	for range 40 {
		got, err := client.Ask(t, "10.43.0.80:80")
		must(t, err)
		seen[got] = true
	}
	if !seen["10.42.0.11 from 10.42.0.13"] || !seen["10.42.0.12 from 10.42.0.13"] || len(seen) != 2 {
		t.Errorf("answers of a Service with two endpoints: %v", seen)
	}
	client.Refused(t, "a port that the Service does not have", "10.43.0.80:81")
	if got, err := askFromHost(t, "10.43.0.80:80"); err != nil || !strings.HasSuffix(got, "from 10.42.0.1") {
		t.Errorf("from the host: %q, %v", got, err)
	}
	objects.Put(sliceObject("web", ep(one.IP, "here")))
	settled(t, p, "web")
	one.Wants(t, "a pod that reaches itself", "10.43.0.80:80", "10.42.0.11 from 10.42.0.1")
	objects.Remove(serviceObject("web", "", nil))
	settled(t, p, "web")
	client.Refused(t, "a deleted Service", "10.43.0.80:80")
	if n := len(p.state.rules.content["endpoints4"]); n != 0 {
		t.Errorf("%d endpoints are left in the map", n)
	}
}

func askFromHost(t *testing.T, addr string) (string, error) {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	must(t, err)
	services, _ := netlink.ParseIPNet("10.43.0.0/16")
	route := &netlink.Route{LinkIndex: lo.Attrs().Index, Dst: services, Src: net.ParseIP("10.42.0.1"), Scope: netlink.SCOPE_LINK}
	must(t, netlink.RouteReplace(route))
	defer func() { _ = netlink.RouteDel(route) }()
	return nettest.Ask(addr)
}

func TestNodePortsAndTrafficPolicies(t *testing.T) {
	objects := nettest.NewObjects()
	p := start(t, objects)
	local, remote := nettest.NewMachine(t, "10.42.0.11"), nettest.NewMachine(t, "10.42.1.12")
	pod, outside := nettest.NewMachine(t, "10.42.0.13"), nettest.NewMachine(t, "192.0.2.7")
	local.Serve(t, 8080)
	remote.Serve(t, 8080)
	nodePort := func(policy corev1.ServiceExternalTrafficPolicy) *corev1.Service {
		s := serviceObject("web", "10.43.0.80", func(s *corev1.ServiceSpec) {
			s.Type, s.Ports[0].NodePort, s.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, 30080, policy
			s.ExternalIPs = []string{"198.51.100.1"}
			s.LoadBalancerSourceRanges = []string{"192.0.2.0/25", "10.42.0.0/16"}
			if policy == corev1.ServiceExternalTrafficPolicyLocal {
				s.HealthCheckNodePort = 32099
			}
		})
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.2"}}
		return s
	}
	objects.Put(nodePort(corev1.ServiceExternalTrafficPolicyCluster))
	objects.Put(sliceObject("web", ep(remote.IP, "there")))
	settled(t, p, "web")
	for _, addr := range []string{"10.42.0.1:30080", "198.51.100.1:80", "198.51.100.2:80"} {
		outside.Wants(t, "policy Cluster, from outside", addr, "10.42.1.12 from 10.42.0.1")
	}
	if got, err := nettest.Ask("10.42.0.1:30080"); err != nil || got != "10.42.1.12 from 10.42.0.1" {
		t.Errorf("node port from the host: %q, %v", got, err)
	}
	stranger := nettest.NewMachine(t, "192.0.2.200")
	stranger.Wants(t, "a node port has no source ranges", "10.42.0.1:30080", "10.42.1.12 from 10.42.0.1")
	stranger.Silent(t, "outside of loadBalancerSourceRanges", "198.51.100.2:80")
	outside.Wants(t, "cluster IP from outside is masqueraded", "10.43.0.80:80", "10.42.1.12 from 10.42.0.1")

	objects.Put(nodePort(corev1.ServiceExternalTrafficPolicyLocal))
	settled(t, p, "web")
	outside.Silent(t, "policy Local without local endpoints", "10.42.0.1:30080")
	pod.Wants(t, "policy Local, from a pod", "10.42.0.1:30080", "10.42.1.12 from 10.42.0.13")
	health := func() int {
		r, err := http.Get("http://127.0.0.1:32099/")
		if err != nil {
			return 0
		}
		r.Body.Close()
		return r.StatusCode
	}
	if got := health(); got != http.StatusServiceUnavailable {
		t.Errorf("health check without local endpoints: %d", got)
	}
	objects.Put(sliceObject("web", ep(remote.IP, "there"), ep(local.IP, "here")))
	settled(t, p, "web")
	for range 10 {
		outside.Wants(t, "policy Local keeps the client's address", "10.42.0.1:30080", "10.42.0.11 from 192.0.2.7")
	}
	if got := health(); got != http.StatusOK {
		t.Errorf("health check with a local endpoint: %d", got)
	}
	objects.Put(serviceObject("web", "10.43.0.80", func(s *corev1.ServiceSpec) {
		s.InternalTrafficPolicy = ptr(corev1.ServiceInternalTrafficPolicyLocal)
	}))
	settled(t, p, "web")
	for range 10 {
		pod.Wants(t, "internalTrafficPolicy Local", "10.43.0.80:80", "10.42.0.11 from 10.42.0.13")
	}
	outside.Refused(t, "a removed node port", "10.42.0.1:30080")
}

func TestSessionAffinity(t *testing.T) {
	objects := nettest.NewObjects()
	p := start(t, objects)
	client := nettest.NewMachine(t, "10.42.0.10")
	var servers []nettest.Machine
	var eps []discoveryv1.Endpoint
	for i := range 4 {
		m := nettest.NewMachine(t, fmt.Sprintf("10.42.0.%d", 20+i))
		m.Serve(t, 8080)
		servers, eps = append(servers, m), append(eps, ep(m.IP, "here"))
	}
	sticky := func(name, ip string, seconds int32) {
		objects.Put(serviceObject(name, ip, func(s *corev1.ServiceSpec) {
			s.SessionAffinity = corev1.ServiceAffinityClientIP
			s.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
		}))
		objects.Put(sliceObject(name, eps...))
		settled(t, p, name)
	}
	sticky("web", "10.43.0.80", 3600)
	first, err := client.Ask(t, "10.43.0.80:80")
	must(t, err)
	for range 20 {
		client.Wants(t, "the same client", "10.43.0.80:80", first)
	}
	// Remove its endpoint: another one is chosen and kept.
	var rest []discoveryv1.Endpoint
	for i, m := range servers {
		if !strings.HasPrefix(first, m.IP+" ") {
			rest = append(rest, eps[i])
		}
	}
	objects.Put(sliceObject("web", rest...))
	settled(t, p, "web")
	second, err := client.Ask(t, "10.43.0.80:80")
	must(t, err)
	if second == first {
		t.Errorf("still %q after its endpoint went", second)
	}
	for range 20 {
		client.Wants(t, "the same client with its new endpoint", "10.43.0.80:80", second)
	}
	sticky("brief", "10.43.0.81", 1)
	first, err = client.Ask(t, "10.43.0.81:80")
	must(t, err)
	nettest.Eventually(t, "a client that has been away for longer gets another endpoint", func() bool {
		time.Sleep(1100 * time.Millisecond)
		got, err := client.Ask(t, "10.43.0.81:80")
		must(t, err)
		return got != first
	})
}

func TestUDPFlowsFollowTheEndpoints(t *testing.T) {
	objects := nettest.NewObjects()
	p := start(t, objects)
	one, two, client := nettest.NewMachine(t, "10.42.0.11"), nettest.NewMachine(t, "10.42.0.12"), nettest.NewMachine(t, "10.42.0.13")
	one.Serve(t, 8080)
	two.Serve(t, 8080)
	svc := serviceObject("web", "10.43.0.80", func(s *corev1.ServiceSpec) {
		s.Type = corev1.ServiceTypeNodePort
		s.Ports = []corev1.ServicePort{{Name: "udp", Protocol: corev1.ProtocolUDP, Port: 80, NodePort: 30080}}
	})
	objects.Put(svc)
	for _, addr := range []string{"10.43.0.80:80", "10.42.0.1:30080"} {
		objects.Put(sliceObject("web", ep(one.IP, "here")))
		settled(t, p, "web")
		var c net.Conn
		client.In(t, func() {
			var err error
			c, err = net.Dial("udp", addr)
			must(t, err)
		})
		defer c.Close()
		say := func(patience time.Duration) string {
			_ = c.SetDeadline(time.Now().Add(patience))
			_, _ = c.Write([]byte("x"))
			buf := make([]byte, 100)
			n, _ := c.Read(buf)
			return string(buf[:n])
		}
		if got := say(time.Minute); got != one.IP {
			t.Errorf("%s: %q", addr, got)
		}
		objects.Put(sliceObject("web", ep(two.IP, "here")))
		nettest.Eventually(t, "the same socket reaches the new endpoint", func() bool { return say(200*time.Millisecond) == two.IP })
	}
}

// The kernel repeats a SYN at growing intervals, for two minutes. Its client must not wait for that
// long after the endpoint of a dead node is gone.
func TestAnAttemptToConnectLeavesARemovedEndpoint(t *testing.T) {
	objects := nettest.NewObjects()
	p := start(t, objects)
	live, client := nettest.NewMachine(t, "10.42.0.12"), nettest.NewMachine(t, "10.42.0.13")
	live.Serve(t, 8080)
	objects.Put(serviceObject("web", "10.43.0.80", nil))
	dead := nettest.NewMachine(t, "10.42.0.11")
	silence(t, dead.IP)
	objects.Put(sliceObject("web", ep(dead.IP, "here")))
	settled(t, p, "web")
	answer := make(chan string, 1)
	go client.In(t, func() {
		got, err := nettest.Ask("10.43.0.80:80")
		if err != nil {
			got = err.Error()
		}
		answer <- got
	})
	nettest.Eventually(t, "the client tries", func() bool { return attempts(t) == 1 })
	objects.Put(sliceObject("web", ep(live.IP, "here")))
	if got := <-answer; !strings.HasPrefix(got, live.IP) {
		t.Errorf("the client got %q, wanted an answer of %s", got, live.IP)
	}
}

// silence makes packets to an address arrive nowhere.
func silence(t *testing.T, ip string) {
	t.Helper()
	routes, err := netlink.RouteGet(net.ParseIP(ip))
	must(t, err)
	must(t, netlink.NeighSet(&netlink.Neigh{
		LinkIndex: routes[0].LinkIndex, IP: net.ParseIP(ip), State: netlink.NUD_PERMANENT, HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 99},
	}))
}

// attempts returns the number of TCP connections that have no answer yet.
func attempts(t *testing.T) (n int) {
	t.Helper()
	flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
	must(t, err)
	for _, flow := range flows {
		if tcp, ok := flow.ProtoInfo.(*netlink.ProtoInfoTCP); ok && tcp.State == tcpAttempt {
			n++
		}
	}
	return n
}

func TestRulesComeBackAfterAFlush(t *testing.T) {
	objects := nettest.NewObjects(serviceObject("web", "10.43.0.80", nil), sliceObject("web", ep("10.42.0.11", "here")))
	p := start(t, objects)
	settled(t, p, "web")
	if d, err := p.state.rules.verify(); err != nil || d != "" {
		t.Fatalf("a difference without a cause: %q, %v", d, err)
	}
	must(t, deleteTable())
	if !p.state.rules.rulesChanged() {
		t.Error("the flush was not noticed")
	}
	p.check()
	if d, err := p.state.rules.verify(); err != nil || d != "" {
		t.Errorf("not repaired: %q, %v", d, err)
	}
	must(t, deleteTable()) // a change right after the flush, without a check between
	objects.Put(sliceObject("web", ep("10.42.0.11", "here"), ep("10.42.0.12", "here")))
	settled(t, p, "web")
	if d, err := p.state.rules.verify(); err != nil || d != "" {
		t.Errorf("not repaired by a change: %q, %v", d, err)
	}
}

const benchServices = 10000

func BenchmarkOneChangeAmongTenThousandServices(b *testing.B) {
	nettest.Need(b)
	r := newRuleset([]netip.Prefix{pods}, nil)
	defer r.close()
	s := newState(r)
	service := func(i, endpoints int) (types.NamespacedName, servicePlan) {
		name := fmt.Sprintf("s%d", i)
		var eps []discoveryv1.Endpoint
		for e := range endpoints {
			eps = append(eps, ep(fmt.Sprintf("10.42.%d.%d", i%250, e+2), "here"))
		}
		svc := serviceObject(name, fmt.Sprintf("10.43.%d.%d", i/250, i%250+1), nil)
		return types.NamespacedName{Namespace: "default", Name: name}, plan(svc, []*discoveryv1.EndpointSlice{sliceObject(name, eps...)}, self{name: "here"})
	}
	start := time.Now()
	for i := range benchServices {
		s.apply(service(i, 3))
	}
	must(b, r.commit())
	first := time.Since(start)
	b.ResetTimer()
	for i := range b.N {
		s.apply(service(i%benchServices, 2+i%3))
		must(b, r.commit())
	}
	b.StopTimer()
	start = time.Now()
	if d, err := r.verify(); err != nil || d != "" {
		b.Fatal(d, err)
	}
	b.ReportMetric(float64(time.Since(start).Milliseconds()), "verify-ms")
	b.ReportMetric(float64(first.Milliseconds()), "first-ms")
	must(b, deleteTable())
}
