package scheduler

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
	"github.com/knarr-project/knarr/internal/scheduler/plugins"
)

// FuzzDecideWithClasses changes a random cluster and decides pods of random classes. A decision
// with kept answers and counts must be the same as one that starts from nothing.
func FuzzDecideWithClasses(f *testing.F) {
	for seed := range uint64(60) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		w := newWorld(seed)
		for range 60 {
			w.step(t)
		}
	})
}

// world is a cluster that changes at random.
type world struct {
	random    *rand.Rand
	cluster   *cluster
	classes   *Classes
	profile   framework.Profile
	shapes    []func(*corev1.Pod) // of the pods
	nominated map[string][]*framework.PodInfo
	nodes     []string
	placed    []*framework.PodInfo
	count     int
	teams     map[string]labels.Set
}

func newWorld(seed uint64) *world {
	w := &world{
		random: rand.New(rand.NewPCG(seed, 1)), classes: NewClasses(), profile: plugins.Default(corev1.DefaultSchedulerName),
		nominated: map[string][]*framework.PodInfo{}, teams: map[string]labels.Set{"a": {"team": "x"}, "b": {"team": "y"}},
	}
	w.cluster = newCluster(func(name string) labels.Set { return w.teams[name] }, func(p *corev1.Pod) labels.Selector {
		if p.Labels["default"] == "" {
			return nil
		}
		return labels.SelectorFromSet(labels.Set{"color": p.Labels["color"]})
	})
	for range w.pick(130) + 1 {
		w.addNode()
	}
	for range w.pick(8) + 2 {
		w.shapes = append(w.shapes, w.shape())
	}
	return w
}

func (w *world) pick(n int) int        { return w.random.IntN(n) }
func (w *world) chance(one int) bool   { return w.pick(one) == 0 }
func (w *world) of(s ...string) string { return s[w.pick(len(s))] }

func (w *world) addNode() {
	w.count++
	name := fmt.Sprint("node", w.count)
	w.nodes = append(w.nodes, name)
	w.cluster.setNode(w.node(name))
}

func (w *world) node(name string) *corev1.Node {
	n := node(name, w.of("1", "2", "4"))
	if !w.chance(5) {
		n.Labels[corev1.LabelTopologyZone] = w.of("z1", "z2", "z3")
	}
	if w.chance(4) {
		n.Labels["disk"] = w.of("ssd", "hdd")
	}
	if w.chance(6) {
		n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffect(w.of("NoSchedule", "PreferNoSchedule"))}}
	}
	n.Spec.Unschedulable = w.chance(12)
	for range w.pick(3) {
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{Names: []string{w.of("i:latest", "j:latest")}, SizeBytes: int64(w.pick(900)) << 20})
	}
	return n
}

// shape makes a change of pods. Pods with the same shape are of one class, mostly.
func (w *world) shape() func(*corev1.Pod) {
	namespace, color := w.of("a", "b"), w.of("red", "blue", "green")
	var changes []func(*corev1.Pod)
	add := func(one int, change func(*corev1.Pod)) {
		if w.chance(one) {
			changes = append(changes, change)
		}
	}
	cpu := w.of("", "100m", "500m", "2")
	image, port, p := w.of("i", "j", "k"), int32(w.pick(2)+80), int32(w.pick(3))
	required, weighted := w.terms(), w.terms()
	near := w.chance(2)
	add(2, withPriority(p))
	add(2, func(p *corev1.Pod) { p.Labels["default"] = "yes" })
	add(5, func(p *corev1.Pod) { p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: port}} })
	add(4, func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists}}
	})
	add(5, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} })
	add(5, func(p *corev1.Pod) { affinityOf(p).NodeAffinity = preferDisk() })
	add(3, func(p *corev1.Pod) {
		if near {
			affinityOf(p).PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}
		} else {
			affinityOf(p).PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}
		}
	})
	add(3, func(p *corev1.Pod) {
		var list []corev1.WeightedPodAffinityTerm
		for i, t := range weighted {
			list = append(list, corev1.WeightedPodAffinityTerm{Weight: int32(10 * (i + 1)), PodAffinityTerm: t})
		}
		if near {
			affinityOf(p).PodAntiAffinity = &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: list}
		} else {
			affinityOf(p).PodAffinity = &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: list}
		}
	})
	constraints := w.constraints()
	add(3, func(p *corev1.Pod) { p.Spec.TopologySpreadConstraints = constraints })
	return func(p *corev1.Pod) {
		p.Namespace, p.Labels = namespace, map[string]string{"color": color}
		p.Spec.Containers[0].Image = image
		if cpu != "" {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		}
		for _, c := range changes {
			c(p)
		}
	}
}

func affinityOf(p *corev1.Pod) *corev1.Affinity {
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{}
	}
	return p.Spec.Affinity
}

func preferDisk() *corev1.NodeAffinity {
	return &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
		Weight: 5, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "disk", Operator: corev1.NodeSelectorOpExists}}},
	}}}
}

func (w *world) terms() (out []corev1.PodAffinityTerm) {
	for range w.pick(2) + 1 {
		t := corev1.PodAffinityTerm{
			TopologyKey:   w.of(corev1.LabelTopologyZone, corev1.LabelHostname, "disk"),
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"color": w.of("red", "blue", "green")}},
		}
		switch w.pick(4) {
		case 0:
			t.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "x"}}
		case 1:
			t.Namespaces = []string{"a", "b"}
		}
		if w.chance(4) {
			t.LabelSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "color", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"red"}}}}
		}
		out = append(out, t)
	}
	return out
}

func (w *world) constraints() (out []corev1.TopologySpreadConstraint) {
	for range w.pick(2) + 1 {
		c := corev1.TopologySpreadConstraint{
			MaxSkew: int32(w.pick(2) + 1), TopologyKey: w.of(corev1.LabelTopologyZone, corev1.LabelHostname, "disk"),
			WhenUnsatisfiable: corev1.UnsatisfiableConstraintAction(w.of("DoNotSchedule", "ScheduleAnyway")),
			LabelSelector:     &metav1.LabelSelector{MatchLabels: map[string]string{"color": w.of("red", "blue")}},
		}
		if w.chance(3) {
			minDomains := int32(w.pick(4) + 1)
			c.MinDomains, c.WhenUnsatisfiable = &minDomains, corev1.DoNotSchedule
		}
		if w.chance(3) {
			honor := corev1.NodeInclusionPolicyHonor
			c.NodeTaintsPolicy = &honor
		}
		out = append(out, c)
	}
	return out
}

// step changes the cluster, or decides a pod and assumes it.
func (w *world) step(t *testing.T) {
	switch w.pick(12) {
	case 0:
		w.addNode()
	case 1:
		if len(w.nodes) > 1 && w.chance(3) {
			i := w.pick(len(w.nodes))
			w.cluster.removeNode(w.nodes[i])
			w.nodes = append(w.nodes[:i], w.nodes[i+1:]...)
		}
	case 2:
		w.cluster.setNode(w.node(w.nodes[w.pick(len(w.nodes))]))
	case 3, 4:
		if len(w.placed) > 0 {
			i := w.pick(len(w.placed))
			w.cluster.removePod(w.placed[i].Pod.UID)
			w.placed = append(w.placed[:i], w.placed[i+1:]...)
		}
	case 5:
		if len(w.placed) > 0 { // the binding is seen, or the pod begins to terminate
			i := w.pick(len(w.placed))
			p := w.placed[i].Pod.DeepCopy()
			p.Spec.NodeName = w.cluster.where[p.UID].node
			if w.chance(2) {
				p.DeletionTimestamp = &metav1.Time{}
			}
			w.placed[i] = framework.NewPodInfo(p)
			w.cluster.setPod(w.placed[i])
		}
	case 6:
		w.nominate()
	case 7:
		if w.chance(8) {
			w.teams = map[string]labels.Set{"a": {"team": w.of("x", "y")}, "b": {"team": w.of("x", "y")}}
			w.cluster.namespacesChanged()
		}
	default:
		w.decide(t)
	}
}

func (w *world) newPod() *framework.PodInfo {
	w.count++
	return framework.NewPodInfo(pod(fmt.Sprint("pod", w.count), "", w.shapes[w.pick(len(w.shapes))]))
}

func (w *world) nominate() {
	if clear(w.nominated); w.chance(2) {
		w.nominated[w.nodes[w.pick(len(w.nodes))]] = []*framework.PodInfo{w.newPod()}
	}
}

func (w *world) decide(t *testing.T) {
	info := w.newPod()
	if w.chance(10) {
		p := info.Pod.DeepCopy()
		p.Status.NominatedNodeName = w.nodes[w.pick(len(w.nodes))]
		info = framework.NewPodInfo(p)
	}
	snapshot := w.cluster.takeSnapshot()
	in := Input{
		Snapshot: snapshot, Pod: info, Profile: &w.profile, Nominated: w.nominated,
		Start: w.pick(snapshot.Nodes.Len() + 1), Pick: w.random.Uint64(), Explain: w.chance(4), Classes: w.classes,
	}
	kept := Decide(in)
	in.Classes, in.Snapshot = nil, w.fromNothing(snapshot)
	plain := Decide(in)
	if a, b := verdictOf(&kept), verdictOf(&plain); !reflect.DeepEqual(a, b) {
		t.Fatalf("pod %v\nwith classes %+v\nwithout      %+v", info.Pod.Spec, a, b)
	}
	if kept.Node == "" {
		b := Preempt(&in, &plain, nil)
		in.Snapshot = snapshot
		if a := Preempt(&in, &kept, nil); !reflect.DeepEqual(a, b) {
			t.Fatalf("pod %v\npreempts with classes %v\nwithout               %v", info.Pod.Spec, a, b)
		}
		return
	}
	w.cluster.assume(info, kept.Node)
	w.placed = append(w.placed, info)
}

// fromNothing makes the snapshot again, without its history.
func (w *world) fromNothing(s *framework.Snapshot) *framework.Snapshot {
	var nodes []*framework.NodeInfo
	for _, n := range s.Nodes.All() {
		again := framework.NewNodeInfo(n.Node)
		for _, p := range n.Pods {
			again.AddPod(p)
		}
		nodes = append(nodes, again)
	}
	return framework.NewSnapshot(nodes, s.NamespaceLabels, s.Selectors)
}

// verdict is the part of a Decision that must be the same with and without Classes.
type verdict struct {
	node, next, message, err string
	score, nextScore         int64
	feasible, refused        int
	refusals                 map[string]string
}

func verdictOf(d *Decision) verdict {
	v := verdict{node: d.Node, next: d.Next, score: d.Score, nextScore: d.NextScore, feasible: d.Feasible, refused: d.Refused, refusals: map[string]string{}}
	if d.Err != nil {
		v.err = d.Err.Error()
	}
	if d.Node == "" {
		v.message = d.Message()
	}
	for name, status := range d.Refusals.All() {
		v.refusals[name] = fmt.Sprint(status.Code, status)
	}
	return v
}

// TestAPodOfAKnownClassAsksOnlyAboutChangedNodes counts the calls of a plugin.
func TestAPodOfAKnownClassAsksOnlyAboutChangedNodes(t *testing.T) {
	c, classes := newCluster(nil, nil), NewClasses()
	for i := range 50 {
		c.setNode(node(fmt.Sprint("node", i), "8"))
	}
	var asked int
	profile := framework.Profile{Filters: []framework.FilterPlugin{&askedFilter{&asked}}}
	// The first pod makes no class yet; the second fills it.
	for i, want := range []int{50, 50, 1, 1} {
		asked = 0
		info := framework.NewPodInfo(pod(fmt.Sprint(i), "1", func(p *corev1.Pod) { p.UID = types.UID(fmt.Sprint(i)) }))
		d := Decide(Input{Snapshot: c.takeSnapshot(), Pod: info, Profile: &profile, Pick: uint64(i), Classes: classes})
		if asked != want {
			t.Errorf("the plugin was asked about %d nodes for pod %d, want %d", asked, i, want)
		}
		c.assume(info, d.Node)
	}
}

// TestARefusalByAnExtenderNamesTheNodesThatTheClassRefused compares with a decision without
// classes.
func TestARefusalByAnExtenderNamesTheNodesThatTheClassRefused(t *testing.T) {
	c, classes := newCluster(nil, nil), NewClasses()
	c.setNode(node("small", "1"))
	c.setNode(node("large", "8"))
	profile := plugins.Default("default-scheduler")
	for i := range 4 {
		info := framework.NewPodInfo(pod(fmt.Sprint(i), "2", func(p *corev1.Pod) { p.UID = types.UID(fmt.Sprint(i)) }))
		in := Input{Snapshot: c.takeSnapshot(), Pod: info, Profile: &profile, Extension: refusesAll{}}
		plain := Decide(in)
		in.Classes = classes
		kept := Decide(in)
		if plain.Message() != kept.Message() || kept.Node != "" || kept.Refused != 2 {
			t.Errorf("pod %d: node %q, %d refusals: %q, want %q", i, kept.Node, kept.Refused, kept.Message(), plain.Message())
		}
	}
}

type refusesAll struct{}

func (refusesAll) Filter(_ *framework.PodInfo, feasible []*framework.NodeInfo) ([]*framework.NodeInfo, map[string]*framework.Status, error) {
	refusals := map[string]*framework.Status{}
	for _, n := range feasible {
		refusals[n.Name()] = framework.Refuse("not here")
	}
	return nil, refusals, nil
}
func (refusesAll) Scores(*framework.PodInfo, []*framework.NodeInfo) map[string]int64 { return nil }

type askedFilter struct{ count *int }

func (*askedFilter) Name() string { return "Asked" }
func (f *askedFilter) Filter(framework.State, *framework.PodInfo, *framework.NodeInfo) *framework.Status {
	*f.count++
	return nil
}
func (*askedFilter) AppendKey(key []byte, _ *framework.PodInfo, _ *framework.Snapshot) []byte {
	return key
}
