package framework

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// TestCountsFollowTheSnapshots changes nodes and pods at random, and compares the counts with a
// look at all pods.
func TestCountsFollowTheSnapshots(t *testing.T) {
	for seed := range uint64(30) {
		g := &generator{random: rand.New(rand.NewPCG(seed, 2))}
		var nodes []*NodeInfo
		for i := range 1 + g.random.IntN(300) {
			nodes = append(nodes, NewNodeInfo(g.node(i)))
		}
		s := NewSnapshot(nodes, nil, nil)
		for range 40 {
			supposed := g.random.IntN(4) == 0 // suppositions change only pods
			var changed []*NodeInfo
			for range 1 + g.random.IntN(3) {
				changed = append(changed, g.change(s.Nodes.At(g.random.IntN(s.Nodes.Len())), supposed))
			}
			if supposed {
				with := s.With(changed...)
				g.compare(t, with.With(g.change(with.Nodes.At(0), true)))
				g.compare(t, s)
				continue
			}
			s = s.Next(changed...)
			if g.random.IntN(2) == 0 {
				g.compare(t, s)
			}
		}
	}
}

type generator struct {
	random *rand.Rand
	pods   int
}

func (g *generator) of(s ...string) string { return s[g.random.IntN(len(s))] }

func (g *generator) node(i int) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i), Labels: map[string]string{}}}
	if g.random.IntN(5) > 0 {
		n.Labels["zone"] = g.of("a", "b", "c")
	}
	n.Spec.Unschedulable = g.random.IntN(4) == 0
	n.Status.Images = []corev1.ContainerImage{{Names: []string{g.of("i", "j", "k")}}}
	return n
}

func (g *generator) pod() *PodInfo {
	g.pods++
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(g.pods), UID: types.UID(fmt.Sprint(g.pods)), Namespace: g.of("x", "y"), Labels: map[string]string{"color": g.of("red", "blue")}}}
	term := corev1.PodAffinityTerm{TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"color": g.of("red", "blue")}}}
	if g.random.IntN(3) == 0 {
		term.LabelSelector = &metav1.LabelSelector{}
	}
	switch g.random.IntN(4) {
	case 0:
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}}
	case 1:
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: int32(1 + g.random.IntN(9)), PodAffinityTerm: term}}}}
	}
	return NewPodInfo(p)
}

// change returns another state of the node.
func (g *generator) change(n *NodeInfo, onlyPods bool) *NodeInfo {
	n = n.Clone()
	switch g.random.IntN(5) {
	case 0:
		if onlyPods {
			return n
		}
		var number int
		if _, err := fmt.Sscanf(n.Name(), "n%d", &number); err == nil {
			n.SetNode(g.node(number))
		}
	case 1, 2:
		if len(n.Pods) > 0 {
			n.RemovePod(n.Pods[g.random.IntN(len(n.Pods))])
		}
	default:
		n.AddPod(g.pod())
	}
	return n
}

func (g *generator) compare(t *testing.T, s *Snapshot) {
	t.Helper()
	red := func(p *PodInfo) bool { return p.Pod.Labels["color"] == "red" }
	open := func(n *corev1.Node) bool { return !n.Spec.Unschedulable }
	g.compareCounts(t, s, Selection{ID: "open", Keys: []string{"zone"}, Matches: red, Includes: open})
	g.compareCounts(t, s, Selection{ID: "all", Keys: []string{"zone", "other"}, Matches: red})
	for _, image := range []string{"i", "j", "k"} {
		want := 0
		for _, n := range s.Nodes.All() {
			if _, ok := n.Images[image]; ok {
				want++
			}
		}
		if got := s.NodesWithImage(image); got != want {
			t.Fatalf("%d nodes with image %s, want %d", got, image, want)
		}
	}
	about := g.pod()
	for kind := range termKinds {
		want := map[string]int64{}
		for _, n := range s.Nodes.All() {
			for _, p := range n.Pods {
				for _, term := range p.terms(kind) {
					if zone, ok := n.Node.Labels["zone"]; ok && term.Matches(about.Pod.Namespace, about.Pod.Labels, labels.Set{}) {
						want[zone] += max(term.Weight, 1)
					}
				}
			}
		}
		counts := s.TermsAbout(kind, about)
		for _, n := range s.Nodes.All() {
			var got int64
			for i := range counts {
				here, _ := counts[i].On(n)
				got += here
			}
			if zone := n.Node.Labels["zone"]; got != want[zone] {
				t.Fatalf("terms of kind %d about %v in zone %q: %d, want %v", kind, about.Pod.Labels, zone, got, want)
			}
		}
	}
}

func (g *generator) compareCounts(t *testing.T, s *Snapshot, sel Selection) {
	t.Helper()
	got := s.Count(sel)
	values, domains, total := map[string]int64{}, map[string]bool{}, int64(0)
	for _, n := range s.Nodes.All() {
		var here int64
		if sel.Includes == nil || sel.Includes(n.Node) {
			for _, p := range n.Pods {
				if sel.Matches(p) {
					here++
				}
			}
			if zone, ok := n.Node.Labels["zone"]; ok {
				values[zone] += here
				domains[zone] = true
				total += here
			}
		}
		if got.OnNode(n) != here {
			t.Fatalf("%d pods on %s, want %d", got.OnNode(n), n.Name(), here)
		}
	}
	least := int64(math.MaxInt64)
	for zone := range domains {
		least = min(least, values[zone])
	}
	for _, n := range s.Nodes.All() {
		zone, has := n.Node.Labels["zone"]
		if pods, ok := got.ByKey[0].On(n); ok != has || pods != values[zone] {
			t.Fatalf("%d pods in zone %s, want %d", pods, zone, values[zone])
		}
	}
	if got.Domains(0) != len(domains) || got.Least(0) != least || got.Total != total {
		t.Fatalf("%d domains, least %d, total %d; want %d, %d, %d", got.Domains(0), got.Least(0), got.Total, len(domains), least, total)
	}
}
