package policy

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/network/nettest"
	"github.com/knarr-project/knarr/internal/network/nft"
	"github.com/knarr-project/knarr/internal/network/peers"
)

func TestMain(m *testing.M) { nettest.Main(m) }

func podObject(namespace, name, node, ip string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}}}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: ip}}},
	}
}

func namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

// policyOf parses a policy's spec from YAML and sets the policy types as the API server does.
func policyOf(t testing.TB, name, spec string) *networkingv1.NetworkPolicy {
	t.Helper()
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	if len(p.Spec.PolicyTypes) == 0 {
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(p.Spec.Egress) > 0 {
			p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
	return p
}

func start(t *testing.T, objects *nettest.Objects) *Agent {
	t.Helper()
	return startWith(t, Config{Client: objects, AllPods: true})
}

func startWith(t *testing.T, cfg Config) *Agent {
	t.Helper()
	nettest.Need(t)
	cfg.NodeName, cfg.Debounce, cfg.CheckInterval = "here", time.Millisecond, 50*time.Millisecond
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return a
}

// reaches reports whether one machine gets an answer from another within a moment.
func reaches(t *testing.T, from nettest.Machine, addr string) bool {
	t.Helper()
	ok := false
	from.In(t, func() {
		c, err := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		if ok = err == nil; ok {
			c.Close()
		}
	})
	return ok
}

// TestPoliciesDecideWhichPodsConnect runs twice: the agent reads all pods, or those of its node and
// what the server publishes of others.
func TestPoliciesDecideWhichPodsConnect(t *testing.T) {
	for _, all := range []bool{true, false} {
		t.Run(fmt.Sprintf("all pods %t", all), func(t *testing.T) { decide(t, all) })
	}
}

// publish puts the slices of the groups that the policy needs.
func publish(t *testing.T, objects *nettest.Objects, p *networkingv1.NetworkPolicy, pods []*corev1.Pod, namespaces ...*corev1.Namespace) {
	t.Helper()
	groups, _ := peers.Of(p)
	for _, g := range groups {
		m := g.Matcher()
		var members []string
		for _, pod := range pods {
			for _, ns := range namespaces {
				if ns.Name == pod.Namespace && m.MatchesNamespace(ns.Name, ns.Labels) && m.MatchesPod(pod) {
					members = append(members, m.Members(pod)...)
				}
			}
		}
		slice, err := peers.Slice(g, 0, members)
		if err != nil {
			t.Fatal(err)
		}
		objects.Put(slice)
	}
}

func decide(t *testing.T, all bool) {
	nettest.Need(t)
	web, friend, stranger := nettest.NewMachine(t, "10.42.0.2"), nettest.NewMachine(t, "10.42.0.3"), nettest.NewMachine(t, "10.42.0.4")
	for _, port := range []int{80, 81} {
		web.Serve(t, port)
	}
	home, other := namespace("default", map[string]string{"team": "a"}), namespace("other", map[string]string{"team": "b"})
	pods := []*corev1.Pod{
		podObject("default", "web", "here", "10.42.0.2", map[string]string{"app": "web"}),
		podObject("default", "friend", "here", "10.42.0.3", map[string]string{"app": "friend"}),
		podObject("other", "stranger", "elsewhere", "10.42.0.4", map[string]string{"app": "stranger"}),
	}
	objects := nettest.NewObjects(home, other, pods[0], pods[1], pods[2])
	startWith(t, Config{Client: objects, AllPods: all})
	// f and s list the ports, of 80 and 81, that friend and stranger reach.
	cases := []struct{ name, spec, f, s string }{
		{"no pod comes in", "{podSelector: {matchLabels: {app: web}}}", "", ""},
		{"all pods come in", "{podSelector: {matchLabels: {app: web}}, ingress: [{}]}", "80 81", "80 81"},
		{"pods by label, of the own namespace", "{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: friend}}}, {podSelector: {matchLabels: {app: stranger}}}]}]}", "80 81", ""},
		{"pods of namespaces by label", "{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: b}}}]}]}", "", "80 81"},
		{"pods by label of namespaces by label", "{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: friend}}}]}]}", "80 81", ""},
		{"a block with an exception", "{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{ipBlock: {cidr: 10.42.0.0/24, except: [10.42.0.4/32]}}]}]}", "80 81", ""},
		{"one port", "{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 81}]}]}", "81", "81"},
		{"a range of ports", "{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 79, endPort: 80}]}]}", "80", "80"},
		{"a named port", "{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: http}], from: [{podSelector: {}}]}]}", "80", ""},
		{"another protocol", "{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 80, protocol: UDP}]}]}", "", ""},
		{"a policy for other pods", "{podSelector: {matchLabels: {app: friend}}}", "80 81", "80 81"},
		{"nothing goes out of friend", "{podSelector: {matchLabels: {app: friend}}, policyTypes: [Egress]}", "", "80 81"},
		{"out to a port of web", "{podSelector: {matchLabels: {app: friend}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 80}]}]}", "80", "80 81"},
		{"out to a named port", "{podSelector: {matchLabels: {app: friend}}, policyTypes: [Egress], egress: [{ports: [{port: http}]}]}", "80", "80 81"},
		{"out to a block without web", "{podSelector: {matchLabels: {app: friend}}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.42.0.0/16, except: [10.42.0.2/32]}}]}]}", "", "80 81"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := policyOf(t, "p", c.spec)
			if !all {
				publish(t, objects, p, pods, home, other)
			}
			objects.Put(p)
			defer objects.Remove(p)
			var f, s string
			nettest.Eventually(t, fmt.Sprintf("friend reaches %q and stranger %q", c.f, c.s), func() bool {
				f, s = reached(t, friend), reached(t, stranger)
				return f == c.f && s == c.s
			})
			if _, err := nettest.Ask("10.42.0.2:80"); err != nil {
				t.Errorf("the node does not reach its pod: %v", err)
			}
		})
	}
	nettest.Eventually(t, "all ports answer without policies", func() bool { return reaches(t, friend, "10.42.0.2:80") && reaches(t, stranger, "10.42.0.2:81") })
}

// reached lists those of the two ports that answer.
func reached(t *testing.T, from nettest.Machine) string {
	t.Helper()
	out := ""
	for _, port := range []string{"80", "81"} {
		if reaches(t, from, "10.42.0.2:"+port) {
			out += " " + port
		}
	}
	if out != "" {
		out = out[1:]
	}
	return out
}

func TestPoliciesAreAdditive(t *testing.T) {
	a := policyOf(t, "a", "{podSelector: {}, ingress: [{ports: [{port: 80}]}]}")
	b := policyOf(t, "b", "{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 81}]}]}")
	p, _ := inputs{node: "here", policies: []*networkingv1.NetworkPolicy{a, b}, pods: []*corev1.Pod{
		podObject("default", "web", "here", "10.42.0.2", map[string]string{"app": "web"}), podObject("default", "x", "here", "10.42.0.3", nil), podObject("default", "far", "there", "10.42.1.3", nil)}}.plan()
	if len(p.chains) != 2 || len(p.jumps[ingress]) != 2 || len(p.jumps[egress]) != 0 {
		t.Fatalf("%+v", p)
	}
	for addr, chain := range p.jumps[ingress] {
		// One rule per family and port.
		want := map[string]int{"10.42.0.2": 4, "10.42.0.3": 2}[addr.String()]
		if len(p.chains[chain]) != want {
			t.Errorf("%s has %d rules, want %d", addr, len(p.chains[chain]), want)
		}
	}
}

func TestANamedPortBelongsToTheReceiver(t *testing.T) {
	named := []networkingv1.NetworkPolicyPort{{Port: ptr.To(intstr.FromString("http"))}}
	p := policyOf(t, "p", "{podSelector: {matchLabels: {app: a}}}")
	p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
	p.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{Ports: named, To: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "b"}}}}}}
	other := podObject("default", "b", "there", "10.42.1.3", map[string]string{"app": "b"})
	other.Spec.Containers[0].Ports[0].ContainerPort = 8080
	got, _ := inputs{node: "here", policies: []*networkingv1.NetworkPolicy{p}, pods: []*corev1.Pod{podObject("default", "a", "here", "10.42.0.2", map[string]string{"app": "a"}), other}}.plan()
	for _, s := range got.sets {
		for _, d := range s.destinations {
			if d.addr.String() != "10.42.1.3" || d.port != 8080 {
				t.Errorf("leads to %+v", d)
			}
		}
	}
	if len(got.sets) != 2 {
		t.Errorf("%d sets, want the peers and the port's destinations", len(got.sets))
	}
}

func TestFlushedRulesAreRestored(t *testing.T) {
	nettest.Need(t)
	web, friend := nettest.NewMachine(t, "10.42.0.2"), nettest.NewMachine(t, "10.42.0.3")
	web.Serve(t, 80)
	p := policyOf(t, "p", "{podSelector: {matchLabels: {app: web}}}")
	objects := nettest.NewObjects(namespace("default", nil), p, podObject("default", "web", "here", "10.42.0.2", map[string]string{"app": "web"}))
	start(t, objects)
	isolated := func() bool { return !reaches(t, friend, "10.42.0.2:80") }
	nettest.Eventually(t, "web is isolated", isolated)
	c, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	c.FlushTable(nft.Table())
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	nettest.Eventually(t, "web is isolated again after a flush", isolated)
	objects.Remove(p)
	nettest.Eventually(t, "nothing is left of it", func() bool {
		chains, err := c.ListChainsOfTableFamily(nftables.TableFamilyINet)
		return err == nil && len(chains) == 1 && chains[0].Name == baseChain && reaches(t, friend, "10.42.0.2:80")
	})
}

// The two lists have the same 64-bit FNV-1a hash, which once was their name.
func TestListsWithTheSameShortHashHaveNamesOfTheirOwn(t *testing.T) {
	var lists [2]set
	for i, addr := range []string{"fd00::8ee0:9c7a:8344:9899:8a9d", "fd00::80da:861b:8755:921d:831c"} {
		lists[i] = set{addresses: []netip.Addr{netip.MustParseAddr(addr)}}
	}
	short := func(s set) uint64 {
		h := fnv.New64a()
		fmt.Fprint(h, s)
		return h.Sum64()
	}
	if short(lists[0]) != short(lists[1]) {
		t.Errorf("short hashes %016x and %016x differ: the example proves nothing", short(lists[0]), short(lists[1]))
	}
	if a, b := digest(lists[0]), digest(lists[1]); a == b {
		t.Errorf("both are named %s", a)
	}
	var p planner
	p.out.sets = map[string]set{}
	if p.addSet("peers", lists[0], 1) == p.addSet("peers", lists[1], 1) || len(p.out.sets) != 2 {
		t.Errorf("one list replaces the other: %v", p.out.sets)
	}
}

// The controller publishes what a pod's status tells, and that may be about an earlier pod.
func TestAPodHereTakesItsAddressFromWhatIsPublished(t *testing.T) {
	p := policyOf(t, "p", "{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: friend}}}]}]}")
	groups, _ := peers.Of(p)
	id := groups[0].ID()
	got, needs := inputs{
		node: "here", policies: []*networkingv1.NetworkPolicy{p},
		pods:      []*corev1.Pod{podObject("default", "web", "here", "10.42.0.2", map[string]string{"app": "web"}), podObject("default", "new", "here", "10.42.0.3", nil)},
		published: map[string]peers.Members{id: {Addresses: []netip.Addr{netip.MustParseAddr("10.42.0.3"), netip.MustParseAddr("10.42.1.9")}}},
	}.plan()
	if !needs[id] || len(needs) != 1 || len(got.sets) != 1 {
		t.Fatalf("needs %v, sets %v", needs, got.sets)
	}
	for _, s := range got.sets {
		if fmt.Sprint(s.addresses) != "[10.42.1.9]" {
			t.Errorf("the policy allows %v", s.addresses)
		}
	}
}

// A group without members lets nothing in.
func TestAPeerThatIsNotPublishedYetGetsNothing(t *testing.T) {
	nettest.Need(t)
	web, stranger := nettest.NewMachine(t, "10.42.0.2"), nettest.NewMachine(t, "10.42.0.4")
	web.Serve(t, 80)
	other, home := podObject("default", "far", "elsewhere", "10.42.0.4", nil), namespace("default", nil)
	objects := nettest.NewObjects(home, other, podObject("default", "web", "here", "10.42.0.2", nil))
	startWith(t, Config{Client: objects, Patience: time.Second})
	p := policyOf(t, "p", "{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}")
	objects.Put(p)
	nettest.Eventually(t, "the stranger is kept out", func() bool { return !reaches(t, stranger, "10.42.0.2:80") })
	publish(t, objects, p, []*corev1.Pod{other}, home)
	nettest.Eventually(t, "the published peer gets in", func() bool { return reaches(t, stranger, "10.42.0.2:80") })
	objects.Remove(p)
	nettest.Eventually(t, "no policy, no limit", func() bool { return reaches(t, stranger, "10.42.0.2:80") })
}

// spy records the Views that an agent opens.
type spy struct {
	*nettest.Objects
	mu     sync.Mutex
	opened map[string]bool
}

func (s *spy) View(ctx context.Context, res schema.GroupVersionResource, scope client.Scope) (client.View, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened[res.Resource+" "+scope.FieldSelector+scope.LabelSelector] = true
	return s.Objects.View(ctx, res, scope)
}

func (s *spy) views() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.opened))
}

// A policy makes a node watch its own pods, and peers only if it selects one of them.
func TestANodeWatchesWhatItsOwnPodsNeed(t *testing.T) {
	nettest.Need(t)
	web, stranger := nettest.NewMachine(t, "10.42.0.2"), nettest.NewMachine(t, "10.42.0.4")
	web.Serve(t, 80)
	s := &spy{Objects: nettest.NewObjects(namespace("default", nil), podObject("default", "web", "here", "10.42.0.2", map[string]string{"app": "web"}),
		podObject("default", "far", "elsewhere", "10.42.0.4", map[string]string{"app": "far"})), opened: map[string]bool{}}
	startWith(t, Config{Client: s, Patience: time.Second})
	elsewhere := policyOf(t, "elsewhere", "{podSelector: {matchLabels: {app: far}}, ingress: [{from: [{podSelector: {}}]}]}")
	s.Put(elsewhere)
	without := []string{"namespaces ", "networkpolicies ", "pods spec.nodeName=here"}
	nettest.Eventually(t, "the node watches its pods", func() bool { return slices.Equal(s.views(), without) })
	here := policyOf(t, "here", "{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}")
	publish(t, s.Objects, here, nil, namespace("default", nil))
	s.Put(here)
	nettest.Eventually(t, "the policy holds", func() bool { return !reaches(t, stranger, "10.42.0.2:80") })
	groups, _ := peers.Of(here)
	want := append(slices.Clone(without), "policypeers "+peers.Scope(groups[0].ID()).LabelSelector)
	slices.Sort(want)
	if got := s.views(); !slices.Equal(got, want) {
		t.Errorf("the node watches %q, want %q", got, want)
	}
}
