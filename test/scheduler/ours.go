package scheduler

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/knarr-project/knarr/internal/scheduler"
	"github.com/knarr-project/knarr/internal/scheduler/framework"
	"github.com/knarr-project/knarr/internal/scheduler/plugins"
)

// Ours returns the verdict of knarr's scheduler with its default profile.
func Ours(c *Case) *Verdict {
	v := &Verdict{Refused: map[string]string{}, Scores: map[string]map[string]int64{}, Victims: map[string][]string{}}
	if len(c.Pod.Spec.SchedulingGates) > 0 {
		v.Gated = true // Scheduler.isSchedulable
		return v
	}
	profile := plugins.Default(corev1.DefaultSchedulerName)
	in := scheduler.Input{Snapshot: snapshotOf(c), Pod: framework.NewPodInfo(c.Pod), Profile: &profile, Nominated: map[string][]*framework.PodInfo{}, Classes: scheduler.NewClasses(), Explain: true}
	for _, p := range append([]*corev1.Pod{c.Pod}, c.Pods...) {
		if nominated(p) {
			node := p.Status.NominatedNodeName
			in.Nominated[node] = append(in.Nominated[node], framework.NewPodInfo(p))
		}
	}
	devices := newRack(c)
	in.Snapshot.Devices = func() (framework.Devices, error) { return devices, nil }
	if v.Gated = waitsForClaims(&profile, devices, c.Pod); v.Gated {
		return v // Scheduler.isSchedulable
	}
	devices.fill(func() { scheduler.Decide(in) })
	d := scheduler.Decide(in)
	twice := scheduler.Decide(in) // with the answers of the first decision
	if d.Node != twice.Node || d.Score != twice.Score || d.Message() != twice.Message() {
		v.Error = "the second decision differs: " + twice.Node + " " + twice.Message()
		return v
	}
	switch {
	case d.Err != nil:
		v.Error = d.Err.Error()
		return v
	case d.Node == "":
		refuse(v, &in, &d, c)
		return v
	}
	v.Best, v.Score = []string{d.Node}, d.Score
	if d.Feasible > 1 {
		v.Scores = scores(&in, &d)
	}
	if c.Pod.Status.NominatedNodeName != "" {
		// The nominated node may have made a look at the others unnecessary.
		free := c.Pod.DeepCopy()
		free.Status.NominatedNodeName = ""
		in.Pod = framework.NewPodInfo(free)
		if d = scheduler.Decide(in); d.Err != nil {
			return v // a plugin fails on a node that was not looked at
		}
	}
	v.Devices = devicesOf(&in, &d)
	for node, status := range d.Refusals.All() {
		v.Refused[node] = lineOf(status)
	}
	return v
}

// refuse notes the refusals, the message and what preemption does.
func refuse(v *Verdict, in *scheduler.Input, d *scheduler.Decision, c *Case) {
	v.Message = d.Message()
	if d.Nodes == 0 {
		return
	}
	if d.Whole != nil {
		v.Everywhere = lineOf(d.Whole)
	}
	for node, status := range d.Refusals.All() {
		v.Refused[node] = lineOf(status)
	}
	v.InTheWay = claimsInTheWay(d)
	found := scheduler.Preempt(in, d, c.Budgets)
	if found.Node == "" {
		// The plugin DynamicResources speaks first.
		said := "no new claims to deallocate"
		if d.State[framework.DynamicResources] != nil {
			said = "still not schedulable"
		}
		v.Message += " " + said + ", " + found.Message
		return
	}
	v.Preempts = []string{found.Node}
	for _, p := range found.Victims {
		v.Victims[found.Node] = append(v.Victims[found.Node], p.Name)
	}
}

// lineOf formats a status. The exclusion of a node by PreFilter has no plugin: it joins several.
func lineOf(s *framework.Status) string {
	plugin := s.Plugin
	if len(s.Reasons) == 1 && strings.HasPrefix(s.Reasons[0], "node(s) didn't satisfy plugin") {
		plugin = ""
	}
	return refusal(fwk.Code(s.Code).String(), plugin, s.Reasons)
}

// scores runs the score plugins for the feasible nodes, as Decide does: it reports only the sum.
func scores(in *scheduler.Input, d *scheduler.Decision) map[string]map[string]int64 {
	feasible := feasibleIn(in, d)
	skipped, out := map[string]bool{}, map[string]map[string]int64{}
	for _, p := range in.Profile.PreScores {
		skipped[p.Name()] = p.PreScore(d.State, in.Pod, in.Snapshot, feasible).Skipped()
	}
	for _, p := range in.Profile.Scores {
		if skipped[p.Name()] {
			continue
		}
		values := make([]int64, len(feasible))
		for i, node := range feasible {
			values[i], _ = p.Score(d.State, in.Pod, node)
		}
		if n, ok := p.ScorePlugin.(framework.NormalizePlugin); ok {
			n.Normalize(d.State, in.Pod, feasible, values)
		}
		out[p.Name()] = map[string]int64{}
		for i, node := range feasible {
			out[p.Name()][node.Name()] = values[i] * p.Weight
		}
	}
	zeros(out)
	return out
}

func feasibleIn(in *scheduler.Input, d *scheduler.Decision) (feasible []*framework.NodeInfo) {
	refused := maps.Collect(d.Refusals.All())
	for _, node := range in.Snapshot.Nodes.All() {
		if refused[node.Name()] == nil {
			feasible = append(feasible, node)
		}
	}
	return feasible
}

func snapshotOf(c *Case) *framework.Snapshot {
	var nodes []*framework.NodeInfo
	for _, n := range c.Nodes {
		info := framework.NewNodeInfo(n)
		for _, p := range c.Pods {
			if p.Spec.NodeName == n.Name {
				info.AddPod(framework.NewPodInfo(p))
			}
		}
		nodes = append(nodes, info)
	}
	namespaceLabels := func(name string) labels.Set {
		for _, ns := range c.Namespaces {
			if ns.Name == name {
				return ns.Labels
			}
		}
		return nil
	}
	s := framework.NewSnapshot(nodes, namespaceLabels, func(pod *corev1.Pod) labels.Selector { return selectorOf(c, pod) })
	s.Storage = func() (framework.Storage, error) { return &shelf{c}, nil }
	return s
}

// selectorOf joins the selectors of the pod's Services and its ReplicaSet, as the scheduler's Views
// do.
func selectorOf(c *Case, pod *corev1.Pod) labels.Selector {
	out := labels.NewSelector()
	for _, s := range c.Services {
		if s.Namespace == pod.Namespace && len(s.Spec.Selector) > 0 && labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(pod.Labels)) {
			requirements, _ := labels.SelectorFromSet(s.Spec.Selector).Requirements()
			out = out.Add(requirements...)
		}
	}
	owner := ptr.Deref(metav1.GetControllerOf(pod), metav1.OwnerReference{})
	for _, rs := range c.ReplicaSets {
		if rs.Namespace == pod.Namespace && owner.Kind == "ReplicaSet" && owner.Name == rs.Name {
			selector, _ := metav1.LabelSelectorAsSelector(rs.Spec.Selector)
			requirements, _ := selector.Requirements()
			out = out.Add(requirements...)
		}
	}
	if out.Empty() {
		return nil
	}
	return out
}
