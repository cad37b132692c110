package scheduler

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
	"github.com/knarr-project/knarr/internal/scheduler/plugins"
)

// workload is a load like those of upstream's scheduler_perf: clusters with one or two pods on each
// node, to which more pods come.
type workload struct {
	name string
	// before and pods change the pods that are there, and the pods to decide. i counts them.
	before, pods func(i int, p *corev1.Pod)
	node         func(i int, n *corev1.Node)
	// most is the largest cluster for it; 0 means 50,000 nodes.
	most int
}

func term(key string, match map[string]string) corev1.PodAffinityTerm {
	return corev1.PodAffinityTerm{TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: match}}
}

func colored(color string, change func(*corev1.Affinity)) func(int, *corev1.Pod) {
	return func(_ int, p *corev1.Pod) {
		p.Labels = map[string]string{"color": color}
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}, PodAntiAffinity: &corev1.PodAntiAffinity{}}
		change(p.Spec.Affinity)
	}
}

func near(color string, terms ...corev1.PodAffinityTerm) func(int, *corev1.Pod) {
	return colored(color, func(a *corev1.Affinity) { a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = terms })
}

func away(color string, terms ...corev1.PodAffinityTerm) func(int, *corev1.Pod) {
	return colored(color, func(a *corev1.Affinity) { a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = terms })
}

func ratherNear(color string, t corev1.PodAffinityTerm) func(int, *corev1.Pod) {
	return colored(color, func(a *corev1.Affinity) {
		a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: t}}
	})
}

func ratherAway(color string, t corev1.PodAffinityTerm) func(int, *corev1.Pod) {
	return colored(color, func(a *corev1.Affinity) {
		a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: t}}
	})
}

func spread(key string, action corev1.UnsatisfiableConstraintAction) func(int, *corev1.Pod) {
	return func(_ int, p *corev1.Pod) {
		p.Labels = map[string]string{"color": "blue"}
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 5, TopologyKey: key, WhenUnsatisfiable: action, LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels},
		}}
	}
}

func inNamespaces(t corev1.PodAffinityTerm) corev1.PodAffinityTerm {
	t.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "devops"}}
	return t
}

const (
	byHost = corev1.LabelHostname
	byZone = corev1.LabelTopologyZone
)

var (
	blue  = map[string]string{"color": "blue"}
	green = map[string]string{"color": "green"}
	none  = func(int, *corev1.Pod) {}
)

var perfWorkloads = []workload{
	{name: "basic", pods: none},
	{name: "deployments", pods: func(i int, p *corev1.Pod) { // 100 of them, with default spreading
		p.Labels = map[string]string{"app": fmt.Sprint("app", i%100)}
	}},
	{name: "node affinity", pods: func(_ int, p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: byZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"zone1", "zone2"}}}}},
		}}}
	}},
	{name: "hard spread by zone", pods: spread(byZone, corev1.DoNotSchedule)},
	{name: "soft spread by zone", pods: spread(byZone, corev1.ScheduleAnyway)},
	{name: "hard spread by host", pods: spread(byHost, corev1.DoNotSchedule)},
	{name: "soft spread by host", pods: spread(byHost, corev1.ScheduleAnyway)},
	{name: "affinity by zone", before: near("blue", term(byZone, blue)), pods: near("blue", term(byZone, blue))},
	{name: "anti-affinity by host", before: none, pods: away("green", term(byHost, green)), most: 5000},
	{name: "anti-affinity everywhere", before: away("green", term(byHost, blue)), pods: none},
	{name: "preferred affinity", before: ratherNear("blue", term(byHost, blue)), pods: ratherNear("blue", term(byHost, blue))},
	{name: "preferred anti-affinity", before: ratherAway("blue", term(byHost, blue)), pods: ratherAway("blue", term(byHost, blue))},
	{name: "affinity with namespaces", before: near("blue", inNamespaces(term(byZone, blue))), pods: near("blue", inNamespaces(term(byZone, blue)))},
	{name: "preferred with namespaces", before: ratherNear("blue", inNamespaces(term(byHost, blue))), pods: ratherNear("blue", inNamespaces(term(byHost, blue)))},
	{name: "volumes", pods: func(i int, p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{claimVolume(fmt.Sprint("claim", i))} }},
	{name: "mixed", before: func(i int, p *corev1.Pod) { mixed[i%len(mixed)](i, p) }, pods: func(i int, p *corev1.Pod) { mixed[i%len(mixed)](i, p) }},
	{name: "every pod different", pods: func(i int, p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = *resource.NewQuantity(1<<20+int64(i), resource.BinarySI)
	}},
	{name: "full cluster", pods: none, node: func(i int, n *corev1.Node) {
		if i%50 != 0 {
			n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("100m")
		}
	}},
}

var mixed = []func(int, *corev1.Pod){
	none, near("blue", term(byZone, blue)), away("red", term(byHost, map[string]string{"color": "red"})), ratherNear("yellow", term(byHost, blue)),
	ratherAway("white", term(byHost, green)), spread(byZone, corev1.ScheduleAnyway),
}

func claimVolume(claim string) corev1.Volume {
	return corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}
}

// cluster makes the workload's cluster.
func (w *workload) cluster(nodes int) *cluster {
	c := newCluster(func(string) labels.Set { return labels.Set{"team": "devops"} }, func(p *corev1.Pod) labels.Selector {
		if app, ok := p.Labels["app"]; ok && w.name == "deployments" {
			return labels.SelectorFromSet(labels.Set{"app": app})
		}
		return nil
	})
	for i := range nodes {
		n := node(fmt.Sprint("node", i), "32", inZone(fmt.Sprint("zone", i%3)))
		n.Status.Allocatable[corev1.ResourceMemory], n.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("64Gi"), resource.MustParse("110")
		if w.node != nil {
			w.node(i, n)
		}
		c.setNode(n)
	}
	if w.before != nil {
		for i := range nodes {
			p := w.pod(w.before, "before", i)
			p.Spec.NodeName = fmt.Sprint("node", i)
			c.setPod(framework.NewPodInfo(p))
		}
	}
	if w.name == "volumes" {
		c.storage = func() (framework.Storage, error) { return benchStorage{}, nil }
	}
	return c
}

func (w *workload) pod(change func(int, *corev1.Pod), prefix string, i int) *corev1.Pod {
	p := pod(fmt.Sprint(prefix, i), "100m")
	p.Labels = nil
	p.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse("100Mi")
	change(i, p)
	return p
}

// benchStorage has a bound volume for every claim.
type benchStorage struct{ framework.Storage }

func (benchStorage) Claim(namespace, name string) (*corev1.PersistentVolumeClaim, bool) {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}}}
	c.Spec.VolumeName = "volume of " + name
	return c, true
}

func (benchStorage) Volume(name string) (*corev1.PersistentVolume, bool) {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}, true
}
func (benchStorage) CSINode(string) (*storagev1.CSINode, bool) { return nil, false }

// BenchmarkWorkloads decides pods one after the other and assumes each on its node, as the
// scheduler does, but without the API. It reports the decisions per second, and the memory of the
// picture of the cluster with all that is kept beside it.
func BenchmarkWorkloads(b *testing.B) {
	for _, w := range perfWorkloads {
		for _, nodes := range []int{100, 1000, 5000, 50000} {
			if w.most > 0 && nodes > w.most {
				continue
			}
			b.Run(fmt.Sprintf("%s/%d", w.name, nodes), func(b *testing.B) { w.bench(b, nodes) })
		}
	}
}

func (w *workload) bench(b *testing.B, nodes int) {
	before := heapInUse()
	c, classes, profile := w.cluster(nodes), NewClasses(), plugins.Default(corev1.DefaultSchedulerName)
	// As many pods are there as places for them: the oldest leave, as in a cluster with churn.
	room := min(nodes, 2000)
	placed := make([]*framework.PodInfo, 0, room)
	pods := make([]*framework.PodInfo, 2*room)
	for i := range pods {
		pods[i] = framework.NewPodInfo(w.pod(w.pods, "pod", i))
	}
	c.takeSnapshot()
	start := 0
	b.ReportAllocs()
	b.ResetTimer()
	cpu := cpuTime(b)
	for i := 0; b.Loop(); i++ {
		info := pods[i%len(pods)]
		if len(placed) == room {
			c.removePod(placed[i%room].Pod.UID)
		}
		snapshot := c.takeSnapshot()
		start = (start + 1) % nodes
		d := Decide(Input{Snapshot: snapshot, Pod: info, Profile: &profile, Start: start, Pick: uint64(i), Classes: classes})
		if d.Node == "" {
			b.Fatal(d.Message())
		}
		c.assume(info, d.Node)
		if len(placed) < room {
			placed = append(placed, info)
		} else {
			placed[i%room] = info
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(cpuTime(b)-cpu)/1e3/float64(b.N), "cpu-µs/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
	b.ReportMetric(float64(heapInUse()-before)/1e6, "MB")
	runtime.KeepAlive(classes)
	runtime.KeepAlive(c)
}

// cpuTime is the CPU time of the process in nanoseconds, garbage collection included. Unlike the
// time on the wall it hardly depends on other load of the machine.
func cpuTime(b *testing.B) int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkPreemption decides a pod in a full cluster and chooses its victims.
func BenchmarkPreemption(b *testing.B) {
	for _, nodes := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			c, profile := newCluster(nil, nil), plugins.Default(corev1.DefaultSchedulerName)
			classes := NewClasses()
			for i := range nodes {
				name := fmt.Sprint("node", i)
				c.setNode(node(name, "4"))
				for k := range 4 {
					c.setPod(framework.NewPodInfo(pod(fmt.Sprint("low", i, "-", k), "900m", onNode(name))))
				}
			}
			snapshot := c.takeSnapshot()
			b.ReportAllocs()
			cpu := cpuTime(b)
			for i := 0; b.Loop(); i++ {
				info := framework.NewPodInfo(pod("high", "3", withPriority(10), func(p *corev1.Pod) { p.UID = types.UID(fmt.Sprint(i)) }))
				in := Input{Snapshot: snapshot, Pod: info, Profile: &profile, Start: i % nodes, Classes: classes}
				d := Decide(in)
				if d.Node != "" {
					b.Fatal("it fits without preemption")
				}
				if v := Preempt(&in, &d, nil); len(v.Victims) == 0 {
					b.Fatal("no victims")
				}
			}
			b.ReportMetric(float64(cpuTime(b)-cpu)/1e3/float64(b.N), "cpu-µs/op")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
		})
	}
}
