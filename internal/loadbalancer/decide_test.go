package loadbalancer

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/knarr-project/knarr/internal/config"
)

// service returns a Service that is the older the lower its port is.
func service(name string, port int32, change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, CreationTimestamp: metav1.NewTime(time.Unix(int64(port), 0))},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Port: port, Protocol: corev1.ProtocolTCP}},
		},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

func holding(reason string, addresses ...string) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Status = corev1.ServiceStatus{}
		for _, a := range addresses {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a})
		}
		s.Status.Conditions = []metav1.Condition{{Type: Condition, Reason: reason, Message: strings.Join(addresses, ", ")}}
	}
}

func asks(ip string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.LoadBalancerIP = ip }
}

func local(s *corev1.Service) {
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}

func dual(s *corev1.Service) {
	s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
}

func ranged(name string, texts ...string) pool {
	ranges, err := parseRanges(texts)
	if err != nil {
		panic(err)
	}
	return pool{name: name, ranges: ranges}
}

func fromRanges(texts ...string) world {
	p := ranged("--load-balancer-pool", texts...)
	return world{ranges: &p}
}

func ofNodes() world {
	addresses := func(texts ...string) (out []netip.Addr) {
		for _, t := range texts {
			out = append(out, netip.MustParseAddr(t))
		}
		return out
	}
	return world{
		useNodes: true, listens: map[string]string{"TCP/6443": "the API server"},
		nodes:         []node{{"a", addresses("10.0.0.1", "fd00::1")}, {"b", addresses("10.0.0.2")}},
		endpointNodes: func(s *corev1.Service) map[string]bool { return map[string]bool{"b": s.Name != "none"} },
		nodePortOwner: func(port string, _ *corev1.Service) (types.NamespacedName, bool) {
			return types.NamespacedName{Namespace: "default", Name: "np"}, port == "TCP/30080"
		},
	}
}

func TestWhichAddressesServicesGet(t *testing.T) {
	other := "example.com/lb"
	shop := ranged("shop", "192.0.2.1")
	shop.namespaces = []string{"shop"}
	gold := ranged("gold", "192.0.2.9")
	gold.selector = labels.SelectorFromSet(labels.Set{"tier": "gold"})
	withPools := fromRanges("192.0.2.100")
	withPools.pools = []pool{gold, shop}
	off := ofNodes()
	off.off = true
	for what, test := range map[string]struct {
		world    world
		services []*corev1.Service
		want     map[string]string // "" means not handled
	}{
		"the lowest free address, older Services first": {fromRanges("192.0.2.8/29"), []*corev1.Service{service("b", 2), service("a", 3), service("c", 1)},
			map[string]string{"c": "192.0.2.8", "b": "192.0.2.9", "a": "192.0.2.10"}},
		"holders keep their addresses": {fromRanges("192.0.2.8/29"), []*corev1.Service{service("old", 1), service("new", 2, holding(FromPool, "192.0.2.8"))},
			map[string]string{"old": "192.0.2.9", "new": "192.0.2.8"}},
		"an exhausted pool": {fromRanges("192.0.2.1-192.0.2.2"), []*corev1.Service{service("a", 1), service("b", 2), service("c", 3)},
			map[string]string{"a": "192.0.2.1", "b": "192.0.2.2", "c": "No IPv4 address is free: pool --load-balancer-pool has 2, of which 2 are used."}},
		"a requested address": {fromRanges("192.0.2.0/24"), []*corev1.Service{service("a", 1, asks("192.0.2.7")), service("b", 2, asks("192.0.2.7")), service("c", 3, asks("198.51.100.1"))},
			map[string]string{"a": "192.0.2.7", "b": "belongs to the Service default/a", "c": "is in no pool"}},
		"a request that changes": {fromRanges("192.0.2.0/24"), []*corev1.Service{service("a", 1, holding(FromPool, "192.0.2.1"), asks("192.0.2.7"))},
			map[string]string{"a": "192.0.2.7"}},
		"an address that left its pool": {fromRanges("192.0.2.8/29"), []*corev1.Service{service("a", 1, holding(FromPool, "198.51.100.1"))},
			map[string]string{"a": "192.0.2.8"}},
		"an address of an add-on is left alone": {fromRanges("192.0.2.8/29"), []*corev1.Service{service("a", 1, holding(FromPool, "192.0.2.8"), func(s *corev1.Service) { s.Status.Conditions = nil }), service("b", 2)},
			map[string]string{"a": "", "b": "192.0.2.9"}},
		"another class": {fromRanges("192.0.2.8/29"), []*corev1.Service{service("a", 1, func(s *corev1.Service) { s.Spec.LoadBalancerClass = &other })}, map[string]string{"a": ""}},
		"a deleted Service frees its address": {fromRanges("192.0.2.1"), []*corev1.Service{service("gone", 1, holding(FromPool, "192.0.2.1"), func(s *corev1.Service) { s.DeletionTimestamp = &metav1.Time{} }), service("b", 2)},
			map[string]string{"gone": "", "b": "192.0.2.1"}},
		"both families": {fromRanges("192.0.2.1", "2001:db8::/64"), []*corev1.Service{service("a", 1, dual)}, map[string]string{"a": "192.0.2.1, 2001:db8::"}},
		"one family, if the other is not required": {fromRanges("192.0.2.1"), []*corev1.Service{service("a", 1, dual)}, map[string]string{"a": "192.0.2.1"}},
		"a required family is missing": {fromRanges("192.0.2.1"), []*corev1.Service{service("a", 1, dual, func(s *corev1.Service) {
			required := corev1.IPFamilyPolicyRequireDualStack
			s.Spec.IPFamilyPolicy = &required
		})}, map[string]string{"a": "No IPv6 address is free"}},
		"pools by namespace and label": {withPools, []*corev1.Service{
			service("a", 1, func(s *corev1.Service) { s.Namespace = "shop" }), service("b", 2, func(s *corev1.Service) { s.Labels = map[string]string{"tier": "gold"} }), service("c", 3),
		}, map[string]string{"a": "192.0.2.1", "b": "192.0.2.9", "c": "192.0.2.100"}},
		"all nodes share a Service":         {ofNodes(), []*corev1.Service{service("a", 80)}, map[string]string{"a": "10.0.0.1, 10.0.0.2"}},
		"nodes' addresses of both families": {ofNodes(), []*corev1.Service{service("a", 80, dual)}, map[string]string{"a": "10.0.0.1, fd00::1, 10.0.0.2"}},
		"nodes with endpoints only": {ofNodes(), []*corev1.Service{service("a", 80, local), service("none", 81, local)},
			map[string]string{"a": "10.0.0.2", "none": "no node has a ready endpoint"}},
		"ports at nodes' addresses collide": {ofNodes(), []*corev1.Service{service("a", 80), service("b", 81, func(s *corev1.Service) { s.Spec.Ports[0].Port = 80 })},
			map[string]string{"a": "10.0.0.1, 10.0.0.2", "b": "Port 80/TCP of the nodes' addresses belongs to the Service default/a."}},
		"another protocol does not collide": {ofNodes(), []*corev1.Service{service("a", 80), service("b", 81, func(s *corev1.Service) { s.Spec.Ports[0] = corev1.ServicePort{Port: 80, Protocol: corev1.ProtocolUDP} })},
			map[string]string{"a": "10.0.0.1, 10.0.0.2", "b": "10.0.0.1, 10.0.0.2"}},
		"knarr's own ports": {ofNodes(), []*corev1.Service{service("a", 6443), service("b", 30080)},
			map[string]string{"a": "serves the API server", "b": "is a node port of the Service default/np"}},
		"a node's address on request": {ofNodes(), []*corev1.Service{service("a", 80, asks("10.0.0.2")), service("b", 81, asks("10.9.9.9"))},
			map[string]string{"a": "10.0.0.2", "b": "is no address of a node"}},
		"an add-on gives addresses": {off, []*corev1.Service{service("a", 80)}, map[string]string{"a": ""}},
		"no pool and no nodes":      {world{}, []*corev1.Service{service("a", 80)}, map[string]string{"a": "No pool selects this Service."}},
	} {
		t.Run(what, func(t *testing.T) {
			got := map[string]string{}
			test.world.services = test.services
			for _, o := range decide(test.world) {
				got[o.service.Name] = listed(o.addresses) + o.pending
			}
			for name, want := range test.want {
				if want == "" && got[name] != "" || !strings.Contains(got[name], want) {
					t.Errorf("%s: %q, want %q", name, got[name], want)
				}
			}
		})
	}
}

// Whatever happens to Services, no address is given twice, and a holder keeps its address.
func TestAddressesAreUniqueAndStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := fromRanges("192.0.2.0/29", "2001:db8::/125")
		now := map[string]*corev1.Service{}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			name := fmt.Sprint("s", rapid.IntRange(0, 11).Draw(t, "name"))
			if now[name] != nil && rapid.Bool().Draw(t, "delete") {
				delete(now, name)
			} else if now[name] == nil {
				now[name] = service(name, int32(rapid.IntRange(1, 99).Draw(t, "port")))
				if rapid.Bool().Draw(t, "dual") {
					dual(now[name])
				}
			}
			w.services = nil
			for _, s := range now {
				w.services = append(w.services, s)
			}
			seen := map[netip.Addr]string{}
			for _, o := range decide(w) {
				for _, a := range heldBy(o.service) {
					if !slices.Contains(o.addresses, a) {
						t.Fatalf("%s had %s, and has %v", o.service.Name, a, o.addresses)
					}
				}
				for _, a := range o.addresses {
					if seen[a] != "" {
						t.Fatalf("%s belongs to %s and %s", a, seen[a], o.service.Name)
					}
					seen[a] = o.service.Name
				}
				if len(o.addresses) == 0 && o.pending == "" {
					t.Fatalf("%s has neither an address nor a reason", o.service.Name)
				}
				if len(o.addresses) > 0 {
					var texts []string
					for _, a := range o.addresses {
						texts = append(texts, a.String())
					}
					holding(FromPool, texts...)(now[o.service.Name])
				}
			}
		}
	})
}

func TestPoolsAreReadAsWritten(t *testing.T) {
	read := func(spec map[string]any) (pool, error) {
		return poolOf(&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "p"}, "spec": spec}})
	}
	p, err := read(map[string]any{
		"addresses": []any{"192.0.2.0/30", "192.0.2.2-192.0.2.5"}, "namespaces": []any{"shop"},
		"serviceSelector": map[string]any{"matchLabels": map[string]any{"tier": "gold"}},
	})
	if err != nil || p.size(true) != "6" || p.size(false) != "0" {
		t.Errorf("read %+v, %v; want 6 addresses", p, err)
	}
	if p.serves(service("a", 1)) || !p.serves(service("a", 1, func(s *corev1.Service) { s.Namespace, s.Labels = "shop", map[string]string{"tier": "gold"} })) {
		t.Error("the pool serves other Services than it selects")
	}
	for _, spec := range []map[string]any{nil, {"addresses": []any{}}, {"addresses": "x"}, {"addresses": []any{"1.2.3.4-1.2.3.3"}},
		{"addresses": []any{"1.2.3.4"}, "serviceSelector": map[string]any{"matchExpressions": []any{map[string]any{"key": "a", "operator": "Like"}}}}} {
		if p, err := read(spec); err == nil {
			t.Errorf("%v is accepted as %+v", spec, p)
		}
	}
}

func FuzzAddressRange(f *testing.F) {
	for _, text := range []string{"192.0.2.0/24", "192.0.2.1-192.0.2.9", "2001:db8::1", "::ffff:1.2.3.4", "1.2.3.4-::1", "fe80::1%eth0", "0.0.0.0/0", "a-b-c"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := config.ParseAddressRange(text)
		if err != nil {
			return
		}
		if r.Last.Less(r.First) || !r.Contains(r.First) || !r.Contains(r.Last) || r.First.Is4() != r.Last.Is4() {
			t.Fatalf("%q gives %v", text, r)
		}
		p := pool{ranges: []config.AddressRange{r}}
		if a, ok := p.free(r.First.Is4(), func(a netip.Addr) bool { return a == r.First }); ok && (a == r.First || !r.Contains(a)) {
			t.Fatalf("%q: %s is free", text, a)
		}
	})
}
