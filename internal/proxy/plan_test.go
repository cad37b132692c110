package proxy

import (
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/knarr-project/knarr/internal/network/nft"
)

func TestWhichEndpointsAreUsed(t *testing.T) {
	with := func(e discoveryv1.Endpoint, ready, serving, terminating bool) discoveryv1.Endpoint {
		e.Conditions = discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating}
		return e
	}
	hinted := func(e discoveryv1.Endpoint, zones string, nodes ...string) discoveryv1.Endpoint {
		e.Hints = &discoveryv1.EndpointHints{}
		for z := range strings.FieldsSeq(zones) {
			e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: z})
		}
		for _, n := range nodes {
			e.Hints.ForNodes = append(e.Hints.ForNodes, discoveryv1.ForNode{Name: n})
		}
		return e
	}
	a, b, c := ep("10.0.0.1", "here"), ep("10.0.0.2", "there"), ep("10.0.0.3", "there")
	unset := ep("10.0.0.4", "here")
	unset.Conditions = discoveryv1.EndpointConditions{}
	for _, tt := range []struct {
		what           string
		eps            []discoveryv1.Endpoint
		cluster, local string // last bytes of the addresses
	}{
		{"ready ones", []discoveryv1.Endpoint{a, b, with(c, false, false, false)}, "12", "1"},
		{"unset conditions mean ready", []discoveryv1.Endpoint{unset}, "4", "4"},
		{"terminating ones that serve, when none is ready", []discoveryv1.Endpoint{with(a, false, true, true), with(b, false, false, true)}, "1", "1"},
		{"terminating ones are left alone when one is ready", []discoveryv1.Endpoint{with(a, false, true, true), b}, "2", "1"},
		{"hints for our zone", []discoveryv1.Endpoint{hinted(a, "z1"), hinted(b, "z2"), hinted(c, "z1 z2")}, "13", "1"},
		{"a missing hint voids all", []discoveryv1.Endpoint{hinted(a, "z1"), b}, "12", "1"},
		{"no hint for our zone voids all", []discoveryv1.Endpoint{hinted(b, "z2"), hinted(c, "z3")}, "23", ""},
		{"hints for our node before those for the zone", []discoveryv1.Endpoint{hinted(a, "z1", "here"), hinted(b, "z1", "there")}, "1", "1"},
		{"another node's hints, our zone's", []discoveryv1.Endpoint{hinted(b, "z1", "there"), hinted(c, "z2", "there")}, "2", ""},
	} {
		t.Run(tt.what, func(t *testing.T) {
			me := self{name: "here", zone: "z1"}
			all := endpointsOf([]*discoveryv1.EndpointSlice{sliceObject("web", tt.eps...)}, corev1.ServicePort{Name: "http"}, true, me)
			text := func(bs []backend) (out string) {
				for _, b := range bs {
					out += b.addr.String()[len("10.0.0."):]
				}
				return out
			}
			if got := text(clusterBackends(all, me)); got != tt.cluster {
				t.Errorf("policy Cluster uses %q, want %q", got, tt.cluster)
			}
			if got := text(localBackends(all)); got != tt.local {
				t.Errorf("policy Local uses %q, want %q", got, tt.local)
			}
		})
	}
}

func TestSlotsChangeAsLittleAsPossible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := rapid.SliceOfDistinct(rapid.Uint16Range(1, 12), func(p uint16) uint16 { return p })
		backendsOf := func(ports []uint16) (out []backend) {
			for _, p := range ports {
				out = append(out, backend{port: p})
			}
			return out
		}
		before, want := backendsOf(set.Draw(t, "before")), backendsOf(set.Draw(t, "want"))
		got := stableSlots(before, want)
		sorted := func(b []backend) []backend {
			b = slices.Clone(b)
			slices.SortFunc(b, compareBackends)
			return b
		}
		if !slices.Equal(sorted(got), sorted(want)) {
			t.Fatalf("%v is not %v", got, want)
		}
		for i, b := range before {
			if i < len(got) && slices.Contains(want, b) && got[i] != b {
				t.Fatalf("%v moved from slot %d: %v", b, i, got)
			}
		}
	})
}

// describeMaps describes the content of the maps without the numbers of groups and classes.
func describeMaps(s *state) []string {
	classes := map[uint32]class{}
	for c, n := range s.rules.classes {
		classes[n] = c
	}
	number := func(b string) uint32 {
		return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
	}
	var out []string
	for _, f := range nft.Families() {
		targets := map[uint32][]string{}
		for key, value := range s.rules.content["endpoints"+f.Name] {
			targets[number(key)] = append(targets[number(key)], fmt.Sprintf("%x", value))
		}
		for key, member := range s.rules.content["slots"+f.Name] {
			value, ok := s.rules.content["members"+f.Name][key[:4]+member]
			if !ok {
				value = "DANGLING"
			}
			targets[number(key)] = append(targets[number(key)], fmt.Sprintf("%x", value))
		}
		for _, p := range []lookupMap{servicesMap, externalMap, nodePortsMap, externalNodePortsMap} {
			for key, value := range s.rules.content[string(p)+f.Name] {
				to := targets[number(value[4:])]
				sort.Strings(to)
				c := classes[number(value)]
				if !c.refuse && !c.drop && c.slots != len(to) {
					out = append(out, fmt.Sprintf("WRONG: %d slots, %d targets", c.slots, len(to)))
				}
				out = append(out, fmt.Sprintf("%s%s %x: %+v %v", p, f.Name, key, c, to))
			}
		}
		for key := range s.rules.content["hairpin"+f.Name] {
			out = append(out, fmt.Sprintf("hairpin %x", key))
		}
	}
	sort.Strings(out)
	return out
}

// After any sequence of changes, the maps must equal those of a fresh start with the last state.
func TestChangesGiveTheSameMapsAsAFreshStart(t *testing.T) {
	me := self{name: "here"}
	rapid.Check(t, func(t *rapid.T) {
		s := newState(newRuleset([]netip.Prefix{pods}, nil))
		now := map[types.NamespacedName]servicePlan{}
		for range rapid.IntRange(1, 12).Draw(t, "changes") {
			name := types.NamespacedName{Namespace: "default", Name: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")}
			p := plan(drawService(t, name.Name), drawSlices(t, name.Name), me)
			now[name] = p
			for queue := []types.NamespacedName{name}; len(queue) > 0; queue = queue[1:] {
				queue = append(queue, s.apply(queue[0], now[queue[0]])...)
			}
		}
		fresh := newState(newRuleset([]netip.Prefix{pods}, nil))
		// Apply the owners first, so that contended frontends go to the same Service.
		var names []types.NamespacedName
		for name := range now {
			names = append(names, name)
		}
		for f, owner := range s.owners {
			fresh.owners[f] = owner
		}
		for _, name := range names {
			fresh.apply(name, now[name])
		}
		got, want := describeMaps(s), describeMaps(fresh)
		if !slices.Equal(got, want) {
			t.Fatalf("after changes:\n%s\nfresh:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		for f, owner := range s.owners {
			if _, wanted := now[owner].frontends[f]; !wanted {
				t.Fatalf("%v belongs to %v, which does not want it", f, owner)
			}
		}
		for name, p := range now {
			for f := range p.frontends {
				if _, owned := s.owners[f]; !owned {
					t.Fatalf("%v is wanted by %v but has no owner", f, name)
				}
			}
		}
	})
}

func drawService(t *rapid.T, name string) *corev1.Service {
	if rapid.IntRange(0, 4).Draw(t, "deleted") == 0 {
		return nil
	}
	return serviceObject(name, map[string]string{"a": "10.43.0.1", "b": "10.43.0.2", "c": "10.43.0.3"}[name], func(s *corev1.ServiceSpec) {
		s.Type = corev1.ServiceTypeNodePort
		s.Ports[0].NodePort = rapid.SampledFrom([]int32{0, 30001, 30002}).Draw(t, "nodePort")
		if rapid.Bool().Draw(t, "external IP") {
			s.ExternalIPs = []string{"192.0.2.1"}
		}
		if rapid.Bool().Draw(t, "affinity") {
			s.SessionAffinity = corev1.ServiceAffinityClientIP
		}
		if rapid.Bool().Draw(t, "external local") {
			s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}
		if rapid.Bool().Draw(t, "internal local") {
			s.InternalTrafficPolicy = ptr(corev1.ServiceInternalTrafficPolicyLocal)
		}
		if rapid.Bool().Draw(t, "second port") {
			s.Ports = append(s.Ports, corev1.ServicePort{Name: "udp", Protocol: corev1.ProtocolUDP, Port: 53})
		}
	})
}

func drawSlices(t *rapid.T, name string) []*discoveryv1.EndpointSlice {
	var eps []discoveryv1.Endpoint
	for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(1, 6), 0, 4, func(i int) int { return i }).Draw(t, "endpoints") {
		e := ep(fmt.Sprintf("10.42.0.%d", i), map[bool]string{true: "here", false: "there"}[i%2 == 0])
		*e.Conditions.Ready = rapid.Bool().Draw(t, "ready")
		*e.Conditions.Terminating = !*e.Conditions.Ready
		eps = append(eps, e)
	}
	return []*discoveryv1.EndpointSlice{sliceObject(name, eps...)}
}

func TestTheHealthCheckCountsReadyEndpointsOfThisNode(t *testing.T) {
	svc := serviceObject("web", "10.43.0.80", func(s *corev1.ServiceSpec) {
		s.Type, s.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
		s.HealthCheckNodePort = 32000
	})
	ending := ep("10.42.0.1", "here")
	*ending.Conditions.Ready, *ending.Conditions.Terminating = false, true
	for what, test := range map[string]struct {
		eps  []discoveryv1.Endpoint
		want int
	}{
		"a ready one and one of another node":        {[]discoveryv1.Endpoint{ep("10.42.0.2", "here"), ep("10.42.1.2", "there")}, 1},
		"terminating ones serve but are not counted": {[]discoveryv1.Endpoint{ending}, 0},
	} {
		p := plan(svc, []*discoveryv1.EndpointSlice{sliceObject("web", test.eps...)}, self{name: "here"})
		if p.localEndpoints != test.want || len(p.local) != 1 {
			t.Errorf("%s: %d counted of %v, want %d", what, p.localEndpoints, p.local, test.want)
		}
	}
}

func TestSourceRangesMayContainSpacesAndLeadingZeros(t *testing.T) {
	svc := serviceObject("web", "10.43.0.80", func(s *corev1.ServiceSpec) {
		s.LoadBalancerSourceRanges = []string{" 192.0.2.0/25", "2001:db8::/64 ", "10.42.0.0/16", "010.043.0.0/16", "::ffff:10.44.0.1/112", "::ffff:10.45.0.0/64", "10.46.0.0", "x/8"}
	})
	if got, want := sourceRanges(svc, true), "192.0.2.0/25,10.42.0.0/16,10.43.0.0/16,10.44.0.0/16,"; got != want {
		t.Errorf("IPv4: %q, want %q", got, want)
	}
	if got, want := sourceRanges(svc, false), "2001:db8::/64,::/64,"; got != want {
		t.Errorf("IPv6: %q, want %q", got, want)
	}
}
