package scheduler

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
	"github.com/knarr-project/knarr/internal/scheduler/plugins"
)

func node(name, cpu string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	n.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("4Gi"), corev1.ResourcePods: resource.MustParse("10"),
	}
	for _, c := range change {
		c(n)
	}
	return n
}

func pod(name, cpu string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID(name), Labels: map[string]string{"app": "a"}}}
	p.Spec.SchedulerName = corev1.DefaultSchedulerName
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	if cpu != "" {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func withPriority(v int32) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.Priority = &v } }
func onNode(name string) func(*corev1.Pod)   { return func(p *corev1.Pod) { p.Spec.NodeName = name } }

func tainted(n *corev1.Node) {
	n.Spec.Taints = []corev1.Taint{{Key: "k", Value: "v", Effect: corev1.TaintEffectNoSchedule}}
}

func inZone(zone string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = zone }
}

func antiAffinity(p *corev1.Pod) {
	p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}, TopologyKey: corev1.LabelHostname,
	}}}}
}

func spreadZones(p *corev1.Pod) {
	p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}},
	}}
}

func snapshotOf(nodes []*corev1.Node, pods []*corev1.Pod) *framework.Snapshot {
	c := newCluster(nil, nil)
	for _, n := range nodes {
		c.setNode(n)
	}
	for _, p := range pods {
		c.setPod(framework.NewPodInfo(p))
	}
	return c.takeSnapshot()
}

func TestDecide(t *testing.T) {
	for name, tc := range map[string]struct {
		nodes []*corev1.Node
		pods  []*corev1.Pod
		pod   *corev1.Pod
		want  string // the node, or the message
	}{
		"the node with more room is chosen": {
			nodes: []*corev1.Node{node("a", "2"), node("b", "2")}, pods: []*corev1.Pod{pod("x", "1", onNode("a"))},
			pod: pod("p", "500m"), want: "b",
		},
		"the message counts the refused nodes for each reason": {
			nodes: []*corev1.Node{node("a", "1"), node("b", "1", tainted), node("c", "1", func(n *corev1.Node) { n.Spec.Unschedulable = true })},
			pod:   pod("p", "2"), want: "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable.",
		},
		"a node whose host port is taken is refused": {
			nodes: []*corev1.Node{node("a", "2")},
			pods:  []*corev1.Pod{pod("x", "", onNode("a"), func(p *corev1.Pod) { p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80}} })},
			pod:   pod("p", "", func(p *corev1.Pod) { p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80}} }),
			want:  "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.",
		},
		"the same host port on another host address is free": {
			nodes: []*corev1.Node{node("a", "2")},
			pods: []*corev1.Pod{pod("x", "", onNode("a"), func(p *corev1.Pod) {
				p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80, HostIP: "127.0.0.1"}}
			})},
			pod: pod("p", "", func(p *corev1.Pod) {
				p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80, HostIP: "127.0.0.2"}}
			}),
			want: "a",
		},
		"nodes that do not match the node selector are refused": {
			nodes: []*corev1.Node{node("a", "2")}, pod: pod("p", "", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"x": "y"} }),
			want: "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.",
		},
		"anti-affinity keeps the second pod away": {
			nodes: []*corev1.Node{node("a", "2"), node("b", "1")}, pods: []*corev1.Pod{pod("x", "", onNode("a"))}, pod: pod("p", "", antiAffinity), want: "b",
		},
		"the anti-affinity of an existing pod is respected": {
			nodes: []*corev1.Node{node("a", "2")}, pods: []*corev1.Pod{pod("x", "", onNode("a"), antiAffinity)}, pod: pod("p", ""),
			want: "0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules.",
		},
		"affinity to itself lets the first pod start": {
			nodes: []*corev1.Node{node("a", "2")},
			pod: pod("p", "", func(p *corev1.Pod) {
				antiAffinity(p)
				p.Spec.Affinity.PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution}
				p.Spec.Affinity.PodAntiAffinity = nil
			}), want: "a",
		},
		"DoNotSchedule spreading chooses the emptier zone": {
			nodes: []*corev1.Node{node("a", "4", inZone("1")), node("b", "1", inZone("2"))},
			pods:  []*corev1.Pod{pod("x", "", onNode("a"))}, pod: pod("p", "", spreadZones), want: "b",
		},
		"a cluster without nodes has its own message": {pod: pod("p", ""), want: "no nodes available to schedule pods"},
	} {
		t.Run(name, func(t *testing.T) {
			profile := plugins.Default(corev1.DefaultSchedulerName)
			d := Decide(Input{Snapshot: snapshotOf(tc.nodes, tc.pods), Pod: framework.NewPodInfo(tc.pod), Profile: &profile})
			got := d.Node
			if got == "" {
				got = d.Message()
			}
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// everywhere is a plugin that refuses every pod in PreFilter.
type everywhere struct{}

func (everywhere) Name() string { return "Everywhere" }

func (everywhere) PreFilter(framework.State, *framework.PodInfo, *framework.Snapshot) (sets.Set[string], *framework.Status) {
	return nil, framework.Refuse("no")
}

func TestADecisionSaysHowItWasMade(t *testing.T) {
	profile := plugins.Default(corev1.DefaultSchedulerName)
	nodes := []*corev1.Node{node("full", "1m"), node("small", "2"), node("large", "8")}
	d := Decide(Input{Snapshot: snapshotOf(nodes, nil), Pod: framework.NewPodInfo(pod("p", "1")), Profile: &profile})
	if d.Node != "large" || d.Next != "small" || d.Score <= d.NextScore || d.Feasible != 2 {
		t.Errorf("%+v", d)
	}
	want := fmt.Sprintf("score %d, next small %d; 2 of 3 nodes fit, 1 refused; took 1.5ms", d.Score, d.NextScore)
	if got := d.Note(1500 * time.Microsecond); got != want {
		t.Errorf("%s", got)
	}
}

func TestDecideReportsEachExtensionPointThatRan(t *testing.T) {
	two := []*corev1.Node{node("a", "2"), node("b", "2")}
	for name, tc := range map[string]struct {
		nodes   []*corev1.Node
		pod     *corev1.Pod
		refuses bool
		want    string
	}{
		"two feasible nodes are scored":         {nodes: two, pod: pod("p", "1"), want: "PreFilter=Success Filter=Success PreScore=Success Score=Success"},
		"one feasible node is not scored":       {nodes: two[:1], pod: pod("p", "1"), want: "PreFilter=Success Filter=Success"},
		"no feasible node is no error":          {nodes: two, pod: pod("p", "3"), want: "PreFilter=Success Filter=Success"},
		"a refusal by PreFilter ends the cycle": {nodes: two, pod: pod("p", "1"), refuses: true, want: "PreFilter=Unschedulable"},
	} {
		t.Run(name, func(t *testing.T) {
			profile := plugins.Default(corev1.DefaultSchedulerName)
			if tc.refuses {
				profile.PreFilters = append(profile.PreFilters, everywhere{})
			}
			var got []string
			Decide(Input{
				Snapshot: snapshotOf(tc.nodes, nil), Pod: framework.NewPodInfo(tc.pod), Profile: &profile,
				Observe: func(point, status string) { got = append(got, point+"="+status) },
			})
			if s := strings.Join(got, " "); s != tc.want {
				t.Errorf("got  %s\nwant %s", s, tc.want)
			}
		})
	}
}

func TestPreemptionDoesTheLeastHarm(t *testing.T) {
	profile := plugins.Default(corev1.DefaultSchedulerName)
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b"}}
	zero := intstr.FromInt32(0)
	budget.Spec = policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"keep": "yes"}}, MaxUnavailable: &zero}
	kept := func(p *corev1.Pod) { p.Labels = map[string]string{"keep": "yes"} }
	nodes := []*corev1.Node{node("a", "1"), node("b", "1"), node("c", "1")}
	pods := []*corev1.Pod{
		pod("guarded", "1", onNode("a"), withPriority(1), kept),
		pod("low", "1", onNode("b"), withPriority(2)),
		pod("higher", "1", onNode("c"), withPriority(3)),
	}
	snapshot, p := snapshotOf(nodes, pods), framework.NewPodInfo(pod("p", "1", withPriority(10)))
	in := Input{Snapshot: snapshot, Pod: p, Profile: &profile}
	d := Decide(in)
	v := Preempt(&in, &d, []*policyv1.PodDisruptionBudget{budget})
	if v.Node != "b" {
		t.Fatalf("victims on %+v, want node b: no budget violated and the lowest priority", v)
	}
	never := corev1.PreemptNever
	p.Pod.Spec.PreemptionPolicy = &never
	if v := Preempt(&in, &d, nil); v.Node != "" {
		t.Errorf("a pod with preemptionPolicy Never preempted %v", v)
	}
}

func TestPreemptionEvictsAsFewPodsAsPossible(t *testing.T) {
	profile := plugins.Default(corev1.DefaultSchedulerName)
	snapshot := snapshotOf([]*corev1.Node{node("a", "2")}, []*corev1.Pod{
		pod("one", "1", onNode("a"), withPriority(5)), pod("two", "500m", onNode("a"), withPriority(4)), pod("three", "500m", onNode("a"), withPriority(3)),
	})
	p := framework.NewPodInfo(pod("p", "500m", withPriority(10)))
	in := Input{Snapshot: snapshot, Pod: p, Profile: &profile}
	d := Decide(in)
	v := Preempt(&in, &d, nil)
	if len(v.Victims) != 1 || v.Victims[0].Name != "three" {
		t.Fatalf("victims %+v, want only the least important", v)
	}
}

// Two pods must not count on the same victims.
func TestPreemptionLeavesTheRoomOfNominatedPods(t *testing.T) {
	profile := plugins.Default(corev1.DefaultSchedulerName)
	snapshot := snapshotOf([]*corev1.Node{node("a", "1"), node("b", "1")}, []*corev1.Pod{
		pod("one", "1", onNode("a"), withPriority(1)), pod("two", "1", onNode("b"), withPriority(2)),
	})
	s := New(Config{})
	for i, want := range []string{"a", "b", ""} {
		p := framework.NewPodInfo(pod(fmt.Sprint("p", i), "1", withPriority(10)))
		in := Input{Snapshot: snapshot, Pod: p, Profile: &profile, Nominated: s.nominated}
		d := Decide(in)
		v := Preempt(&in, &d, nil)
		if v.Node != want {
			t.Fatalf("pod %d evicts %+v, want node %q", i, v, want)
		}
		if want != "" {
			s.nominate(p, v.Node)
		}
	}
	s.forgetNomination("p0")
	if len(s.nominated["a"]) != 0 || len(s.nominated["b"]) != 1 {
		t.Errorf("nominated: %v", s.nominated)
	}
}

func TestSnapshotsDoNotChange(t *testing.T) {
	c := newCluster(nil, nil)
	c.setNode(node("a", "2"))
	before := c.takeSnapshot()
	for i := range 3 {
		c.assume(framework.NewPodInfo(pod(fmt.Sprint(i), "100m")), "a")
	}
	if n := before.Nodes.At(0); len(n.Pods) != 0 || n.Requested.MilliCPU != 0 {
		t.Errorf("an old snapshot changed: %d pods, %dm", len(n.Pods), n.Requested.MilliCPU)
	}
	after := c.takeSnapshot().Nodes.At(0)
	if len(after.Pods) != 3 || after.Requested.MilliCPU != 300 {
		t.Errorf("the new snapshot has %d pods, %dm", len(after.Pods), after.Requested.MilliCPU)
	}
}

func TestPickBestChoosesAmongTheHighestScores(t *testing.T) {
	scores := []int64{3, 7, 1, 7, 7, 0}
	for pick, want := range []int{1, 3, 4, 1, 3} {
		if got := pickBest(scores, uint64(pick)); got != want {
			t.Errorf("pick %d is %d, want %d", pick, got, want)
		}
	}
	if got := pickBest([]int64{0}, 5); got != 0 {
		t.Errorf("of one, %d", got)
	}
}
