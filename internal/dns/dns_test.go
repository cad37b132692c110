package dns

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/network/nettest"
)

func TestMain(m *testing.M) { nettest.Main(m) }

func ptr[T any](v T) *T { return &v }

func service(ns, name, ip string, change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: ip, ClusterIPs: []string{ip},
		Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}, {Name: "udp-port", Protocol: corev1.ProtocolUDP, Port: 81}},
	}}
	if change != nil {
		change(s)
	}
	return s
}

func cluster() *nettest.Objects {
	eps := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "db-1", Labels: map[string]string{discoveryv1.LabelServiceName: "db"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr("sql"), Protocol: ptr(corev1.ProtocolTCP), Port: ptr(int32(5432))}},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.42.0.5"}, Hostname: ptr("db-0")},
			{Addresses: []string{"10.42.0.6"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr(true)}},
			{Addresses: []string{"10.42.0.7"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr(false)}},
		},
	}
	return nettest.NewObjects(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}},
		service("default", "kubernetes", "10.43.0.1", func(s *corev1.Service) { s.Spec.Ports[0].Name, s.Spec.Ports[0].Port = "https", 443 }),
		service("default", "dual", "10.43.0.2", func(s *corev1.Service) { s.Spec.ClusterIPs = []string{"10.43.0.2", "fd00::2"} }),
		service("kube-system", "kube-dns", "10.43.0.10", nil),
		service("default", "db", "None", nil), service("default", "none", "None", nil), eps,
		service("default", "outside", "", func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "www.Example.com"
		}),
		service("default", "alias", "", func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "kubernetes.default.svc.cluster.local"
		}),
		service("default", "circle", "", func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "circle.default.svc.cluster.local"
		}),
	)
}

func newHandler(t testing.TB, objects *nettest.Objects, resolvConf string) *handler {
	t.Helper()
	ctx := context.Background()
	services, err := client.Open[*corev1.Service](ctx, objects, client.Scope{})
	must(t, err)
	eps, err := client.Open[*discoveryv1.EndpointSlice](ctx, objects, client.Scope{})
	must(t, err)
	namespaces, err := client.Open[*corev1.Namespace](ctx, objects, client.Scope{})
	must(t, err)
	return &handler{zone: newZone("cluster.local", services, eps, namespaces), forwarder: newForwarder(resolvConf), metrics: newMetrics(),
		clusterRanges: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("10.43.0.0/16")}}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestRecordsFollowTheSpecification(t *testing.T) {
	h := newHandler(t, cluster(), filepath.Join(t.TempDir(), "none"))
	for _, tt := range []struct {
		name, qtype string
		rcode       int
		want        string // the answer's data, sorted, joined by commas
	}{
		{"kubernetes.default.svc.cluster.local.", "A", 0, "10.43.0.1"},
		{"KuberNetes.default.svc.CLUSTER.local.", "A", 0, "10.43.0.1"},
		{"kubernetes.default.svc.cluster.local.", "AAAA", 0, ""},
		{"dual.default.svc.cluster.local.", "AAAA", 0, "fd00::2"},
		{"missing.default.svc.cluster.local.", "A", mdns.RcodeNameError, ""},
		{"kubernetes.missing.svc.cluster.local.", "A", mdns.RcodeNameError, ""},
		{"default.svc.cluster.local.", "A", 0, ""},
		{"svc.cluster.local.", "A", 0, ""},
		{"missing.svc.cluster.local.", "A", mdns.RcodeNameError, ""},
		{"kubernetes.default.cluster.local.", "A", mdns.RcodeNameError, ""},
		{"_https._tcp.kubernetes.default.svc.cluster.local.", "SRV", 0, "0 100 443 kubernetes.default.svc.cluster.local."},
		{"_https._udp.kubernetes.default.svc.cluster.local.", "SRV", mdns.RcodeNameError, ""},
		{"_https._tcp.kubernetes.default.svc.cluster.local.", "A", 0, ""},
		{"_tcp.kubernetes.default.svc.cluster.local.", "SRV", 0, ""},
		{"db.default.svc.cluster.local.", "A", 0, "10.42.0.5,10.42.0.6"},
		{"none.default.svc.cluster.local.", "A", 0, ""},
		{"db-0.db.default.svc.cluster.local.", "A", 0, "10.42.0.5"},
		{"10-42-0-6.db.default.svc.cluster.local.", "A", 0, "10.42.0.6"},
		{"10-42-0-7.db.default.svc.cluster.local.", "A", mdns.RcodeNameError, ""},
		{"_sql._tcp.db.default.svc.cluster.local.", "SRV", 0, "0 100 5432 10-42-0-6.db.default.svc.cluster.local.,0 100 5432 db-0.db.default.svc.cluster.local."},
		{"1-2-3-4.default.pod.cluster.local.", "A", 0, "1.2.3.4"},
		{"fd00--1.default.pod.cluster.local.", "AAAA", 0, "fd00::1"},
		{"1-2-3-4.missing.pod.cluster.local.", "A", mdns.RcodeNameError, ""},
		{"1-2-3.default.pod.cluster.local.", "A", mdns.RcodeNameError, ""},
		{"outside.default.svc.cluster.local.", "CNAME", 0, "www.example.com."},
		{"outside.default.svc.cluster.local.", "A", 0, "www.example.com."},
		{"alias.default.svc.cluster.local.", "A", 0, "10.43.0.1,kubernetes.default.svc.cluster.local."},
		{"circle.default.svc.cluster.local.", "A", 0, "circle.default.svc.cluster.local."},
		{"dns-version.cluster.local.", "TXT", 0, `"1.1.0"`},
		{"ns.dns.cluster.local.", "A", 0, "10.43.0.10"},
		{"cluster.local.", "NS", 0, "ns.dns.cluster.local."},
		{"1.0.43.10.in-addr.arpa.", "PTR", 0, "kubernetes.default.svc.cluster.local."},
		{"5.0.42.10.in-addr.arpa.", "PTR", 0, "db-0.db.default.svc.cluster.local."},
		{"9.9.42.10.in-addr.arpa.", "PTR", mdns.RcodeNameError, ""},
		{"2." + strings.Repeat("0.", 27) + "0.0.d.f.ip6.arpa.", "PTR", 0, "dual.default.svc.cluster.local."},
		{"www.example.com.", "A", mdns.RcodeRefused, ""},
	} {
		t.Run(tt.name+" "+tt.qtype, func(t *testing.T) {
			req := new(mdns.Msg).SetQuestion(tt.name, mdns.StringToType[tt.qtype])
			reply := h.reply(context.Background(), req, false)
			var got []string
			for _, rr := range reply.Answer {
				got = append(got, strings.TrimPrefix(rr.String(), rr.Header().String()))
				if rr.Header().Name != tt.name && rr.Header().Rrtype == req.Question[0].Qtype && len(reply.Answer) == 1 {
					t.Errorf("the answer is for %s", rr.Header().Name)
				}
			}
			slices.Sort(got)
			if reply.Rcode != tt.rcode || strings.Join(got, ",") != tt.want {
				t.Errorf("%s %v, want %s %s", mdns.RcodeToString[reply.Rcode], got, mdns.RcodeToString[tt.rcode], tt.want)
			}
			if len(got) == 0 && reply.Authoritative && (len(reply.Ns) != 1 || reply.Ns[0].Header().Rrtype != mdns.TypeSOA) {
				t.Errorf("a negative answer without SOA: %v", reply.Ns)
			}
			if _, err := reply.Pack(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestLargeAnswersAreTruncatedForUDPOnly(t *testing.T) {
	objects := cluster()
	eps := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "none-1", Labels: map[string]string{discoveryv1.LabelServiceName: "none"}}, AddressType: discoveryv1.AddressTypeIPv4}
	for i := range 200 {
		eps.Endpoints = append(eps.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.42.9.%d", i)}})
	}
	objects.Put(eps)
	h := newHandler(t, objects, "")
	ask := func(edns, tcp bool) (*mdns.Msg, int) {
		req := new(mdns.Msg).SetQuestion("none.default.svc.cluster.local.", mdns.TypeA)
		if edns {
			req.SetEdns0(4096, false)
		}
		m := h.reply(context.Background(), req, tcp)
		wire, err := m.Pack()
		must(t, err)
		return m, len(wire)
	}
	if m, n := ask(false, false); !m.Truncated || n > 512 || m.IsEdns0() != nil {
		t.Errorf("plain UDP: %d bytes, truncated %v", n, m.Truncated)
	}
	if m, n := ask(true, false); !m.Truncated || n > udpSize || m.IsEdns0() == nil {
		t.Errorf("UDP with EDNS0: %d bytes, truncated %v", n, m.Truncated)
	}
	if m, _ := ask(true, true); m.Truncated || len(m.Answer) != 200 {
		t.Errorf("TCP: %d records, truncated %v", len(m.Answer), m.Truncated)
	}
}

// upstream is a resolver that answers A queries with its address. asked returns the number of
// queries.
func upstream(t *testing.T, ip string, change func(*mdns.Msg)) (asked func() int) {
	t.Helper()
	pc, err := net.ListenPacket("udp", ip+":53")
	must(t, err)
	var n atomic.Int32
	srv := &mdns.Server{PacketConn: pc, Handler: mdns.HandlerFunc(func(w mdns.ResponseWriter, r *mdns.Msg) {
		m := new(mdns.Msg).SetReply(r)
		if r.Question[0].Qtype == mdns.TypeA {
			n.Add(1)
			m.Answer = []mdns.RR{&mdns.A{Hdr: mdns.RR_Header{Name: r.Question[0].Name, Rrtype: mdns.TypeA, Class: mdns.ClassINET, Ttl: 60}, A: net.ParseIP(ip)}}
		}
		if change != nil {
			change(m)
		}
		_ = w.WriteMsg(m)
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.ActivateAndServe() }()
	t.Cleanup(func() { _ = srv.Shutdown(); pc.Close(); <-done })
	return func() int { return int(n.Load()) }
}

func TestForwardingFollowsTheHostsResolvers(t *testing.T) {
	nettest.Need(t)
	first := upstream(t, "127.0.0.2", nil)
	upstream(t, "127.0.0.3", nil)
	upstream(t, "127.0.0.4", func(m *mdns.Msg) { m.Rcode, m.Answer = mdns.RcodeServerFailure, nil })
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	h := newHandler(t, cluster(), conf)
	defer h.forwarder.wait()
	ask := func(name string) string {
		m := h.reply(context.Background(), new(mdns.Msg).SetQuestion(name, mdns.TypeA), false)
		if len(m.Answer) == 0 {
			return mdns.RcodeToString[m.Rcode]
		}
		return strings.TrimPrefix(m.Answer[len(m.Answer)-1].String(), m.Answer[len(m.Answer)-1].Header().String())
	}
	when := time.Now().Add(-time.Hour)
	set := func(servers ...string) {
		text := ""
		for _, s := range servers {
			text += "nameserver " + s + "\n"
		}
		must(t, os.WriteFile(conf, []byte(text), 0o600))
		when = when.Add(time.Second)
		must(t, os.Chtimes(conf, when, when))
		h.forwarder.mu.Lock()
		h.forwarder.checked = time.Time{}
		h.forwarder.mu.Unlock()
	}
	if got := ask("a.example."); got != "REFUSED" {
		t.Errorf("without resolv.conf: %s", got)
	}
	set("127.0.0.2")
	for range 3 {
		if got := ask("a.example."); got != "127.0.0.2" {
			t.Errorf("with a resolver: %s", got)
		}
	}
	if n := first(); n != 1 {
		t.Errorf("the resolver got %d queries for one name", n)
	}
	if got := ask("outside.default.svc.cluster.local."); got != "127.0.0.2" {
		t.Errorf("an ExternalName's address: %s", got)
	}
	set("127.0.0.4", "127.0.0.3")
	if got := ask("b.example."); got != "127.0.0.3" {
		t.Errorf("after a change, with a resolver that fails: %s", got)
	}
	h.forwarder.addOwn(netip.MustParseAddr("127.0.0.3"))
	set("127.0.0.3")
	if got := ask("c.example."); got != "REFUSED" {
		t.Errorf("with ourselves as the only resolver: %s", got)
	}
}

func node(name string, ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid"}, Spec: corev1.NodeSpec{PodCIDR: "127.9.0.0/24", PodCIDRs: []string{"127.9.0.0/24"}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
}

func TestServingAndRegistration(t *testing.T) {
	nettest.Need(t)
	objects := nettest.NewObjects(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, service("default", "web", "10.43.0.80", nil),
		&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-dns-gone", Labels: map[string]string{discoveryv1.LabelServiceName: "kube-dns", discoveryv1.LabelManagedBy: managedBy}},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.42.9.1"}, NodeName: ptr("gone")}}},
	)
	// Another process has port 53 on all addresses.
	taken, err := net.ListenPacket("udp", "127.9.0.1:53")
	must(t, err)
	defer taken.Close()
	s, err := New(Config{NodeName: "b", Client: objects, ClusterIP: netip.MustParseAddr("10.43.0.10"), ResolvConf: filepath.Join(t.TempDir(), "none")})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	time.Sleep(20 * time.Millisecond)
	objects.Put(node("b", corev1.ConditionTrue))
	slice := func(name string) *discoveryv1.EndpointSlice {
		s, _ := client.Get[*discoveryv1.EndpointSlice](ctx, objects, "kube-system", "kube-dns-"+name)
		return s
	}
	nettest.Eventually(t, "the node's slice exists", func() bool { return slice("b") != nil })
	if got := slice("b"); got.Endpoints[0].Addresses[0] != "127.9.0.1" || *got.Ports[0].Port != 10053 || !*got.Endpoints[0].Conditions.Ready {
		t.Errorf("slice: %v %v", got.Endpoints, got.Ports)
	}
	nettest.Eventually(t, "the slice of a missing node is deleted", func() bool { return slice("gone") == nil })
	if svc, err := client.Get[*corev1.Service](ctx, objects, "kube-system", "kube-dns"); err != nil || svc.Spec.ClusterIP != "10.43.0.10" || svc.Labels["k8s-app"] != "kube-dns" {
		t.Errorf("Service: %v, %v", svc, err)
	}
	for _, proto := range []string{"udp", "tcp"} {
		c := mdns.Client{Net: proto, Timeout: time.Second}
		m, _, err := c.Exchange(new(mdns.Msg).SetQuestion("web.default.svc.cluster.local.", mdns.TypeA), "127.9.0.1:10053")
		if err != nil || len(m.Answer) != 1 {
			t.Errorf("%s: %v, %v", proto, m, err)
		}
	}
	// A second node dies. This node, the first that is alive, marks the other's endpoint as not
	// ready, and as ready when it returns.
	other := slice("b").DeepCopy()
	other.Name, other.Endpoints[0].NodeName = "kube-dns-c", ptr("c")
	objects.Put(node("c", corev1.ConditionTrue))
	objects.Put(other)
	objects.Put(node("c", corev1.ConditionUnknown))
	nettest.Eventually(t, "a silent node's endpoint is not ready", func() bool { return !*slice("c").Endpoints[0].Conditions.Ready })
	objects.Put(node("c", corev1.ConditionFalse))
	nettest.Eventually(t, "a node that returns has a ready endpoint", func() bool { return *slice("c").Endpoints[0].Conditions.Ready })
}

func FuzzHandler(f *testing.F) {
	h := newHandler(f, cluster(), "/nonexistent")
	for _, name := range []string{"kubernetes.default.svc.cluster.local.", "_https._tcp.kubernetes.default.svc.cluster.local.", "1.0.43.10.in-addr.arpa.", "cluster.local.", "a-b.default.pod.cluster.local.", "."} {
		for _, qtype := range []uint16{mdns.TypeA, mdns.TypeANY, mdns.TypeSRV, mdns.TypePTR} {
			m := new(mdns.Msg).SetQuestion(name, qtype)
			m.SetEdns0(1232, true)
			wire, err := m.Pack()
			must(f, err)
			f.Add(wire)
		}
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		req := new(mdns.Msg)
		if req.Unpack(wire) != nil {
			return
		}
		for _, tcp := range []bool{false, true} {
			reply := h.reply(context.Background(), req, tcp)
			out, err := reply.Pack()
			if err != nil {
				t.Fatalf("the reply to %v cannot be sent: %v", req, err)
			}
			if !tcp && len(out) > udpSize {
				t.Fatalf("%d bytes in a UDP reply", len(out))
			}
			if reply.Id != req.Id || !reply.Response {
				t.Fatalf("not a reply to %v: %v", req, reply)
			}
		}
	})
}

func BenchmarkServiceQuery(b *testing.B) {
	h := newHandler(b, cluster(), "")
	req := new(mdns.Msg).SetQuestion("kubernetes.default.svc.cluster.local.", mdns.TypeA)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := h.reply(context.Background(), req, false).Pack(); err != nil {
			b.Fatal(err)
		}
	}
}
