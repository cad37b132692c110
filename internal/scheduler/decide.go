package scheduler

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// Decision is the node for a pod, or the reasons why there is none.
type Decision struct {
	// Node is the chosen node; empty if no node is feasible.
	Node string
	// State passes the plugins' results on to Reserve and PreBind.
	State framework.State
	// Skipped are the plugins that have nothing to do for the pod.
	Skipped sets.Set[string]
	// Refusals has the refusal of each node by its name. Nodes that PreFilter excluded share one
	// status.
	Refusals map[string]*framework.Status
	// Whole is set when a PreFilter plugin refused the pod on all nodes.
	Whole *framework.Status
	// Err is the failure of a plugin. It is not a refusal: the pod is tried again after a backoff.
	Err error
	// Nodes is the number of nodes in the snapshot.
	Nodes int
}

// minNodesToFind is the number of nodes up to which all are filtered. In a larger cluster a share
// is enough, as upstream: 50 % minus 1 % per 125 nodes, at least 5 %, and at least 100 nodes.
const minNodesToFind = 100

func nodesToFind(all int) int {
	if all <= minNodesToFind {
		return all
	}
	percent := max(50-all/125, 5)
	return max(all*percent/100, minNodesToFind)
}

// Input is all that a decision depends on.
type Input struct {
	Snapshot *framework.Snapshot
	Pod      *framework.PodInfo
	Profile  *framework.Profile
	// Nominated are the pods for which preemption has made room, by the name of the node.
	Nominated map[string][]*framework.PodInfo
	// Start is the index of the first node to look at. A caller that advances it spreads the work
	// over all nodes.
	Start int
	// Pick chooses among the nodes with the highest score.
	Pick uint64
	// Observe is called after each extension point that ran, with its name and status. The caller
	// may take the time there. It does not affect the decision; nil observes nothing.
	Observe func(extensionPoint, status string)
}

func (in *Input) observe(extensionPoint string, d *Decision) {
	if in.Observe != nil {
		in.Observe(extensionPoint, d.status())
	}
}

// Decide chooses a node for the pod. It is pure: the same Input gives the same Decision.
func Decide(in Input) Decision {
	d := Decision{
		State: framework.State{}, Refusals: map[string]*framework.Status{},
		Nodes: len(in.Snapshot.Nodes),
	}
	filters, allowed := d.preFilter(in.Snapshot, in.Pod, in.Profile)
	in.observe("PreFilter", &d)
	if d.Whole != nil || d.Err != nil {
		return d
	}
	feasible := d.filter(&in, filters, allowed)
	in.observe("Filter", &d)
	switch {
	case d.Err != nil || len(feasible) == 0:
	case len(feasible) == 1:
		d.Node = feasible[0].Name()
	default:
		d.score(&in, feasible)
		in.observe("Score", &d)
	}
	return d
}

// preFilter runs the PreFilter plugins. It returns the Filter plugins that are left to run, and the
// nodes that the plugins allow; nil allows all.
func (d *Decision) preFilter(snapshot *framework.Snapshot, pod *framework.PodInfo, profile *framework.Profile) (
	[]framework.FilterPlugin, sets.Set[string],
) {
	var allowed sets.Set[string]
	d.Skipped = sets.New[string]()
	for _, p := range profile.PreFilters {
		only, status := p.PreFilter(d.State, pod, snapshot)
		switch {
		case status.Skipped():
			d.Skipped.Insert(p.Name())
		case status.Rejected():
			status.Plugin = p.Name()
			d.Whole = status
			return nil, nil
		case !status.OK():
			d.Err = fmt.Errorf("plugin %s: %w", p.Name(), status.Err)
			return nil, nil
		}
		if only != nil {
			if allowed == nil {
				allowed = only
			} else {
				allowed = allowed.Intersection(only)
			}
		}
	}
	filters := make([]framework.FilterPlugin, 0, len(profile.Filters))
	for _, f := range profile.Filters {
		if !d.Skipped.Has(f.Name()) {
			filters = append(filters, f)
		}
	}
	return filters, allowed
}

// filter returns the feasible nodes, no more than nodesToFind, and notes why it refused the others.
func (d *Decision) filter(in *Input, filters []framework.FilterPlugin, allowed sets.Set[string]) []*framework.NodeInfo {
	all := len(in.Snapshot.Nodes)
	wanted := nodesToFind(all)
	// A pod goes to its nominated node if it still fits there (KEP-1923).
	node, ok := in.Snapshot.Node(in.Pod.Pod.Status.NominatedNodeName)
	if ok && (allowed == nil || allowed.Has(node.Name())) && d.fitsOn(in, filters, node).OK() {
		return []*framework.NodeInfo{node}
	}
	feasible := make([]*framework.NodeInfo, 0, wanted)
	for i := range all {
		node := in.Snapshot.Nodes[(in.Start+i)%all]
		if allowed != nil && !allowed.Has(node.Name()) {
			d.Refusals[node.Name()] = &framework.Status{
				Code: framework.UnschedulableAndUnresolvable, Plugin: "NodeAffinity",
				Reasons: []string{"node(s) didn't satisfy plugin(s) [NodeAffinity]"},
			}
			continue
		}
		status := d.fitsOn(in, filters, node)
		switch {
		case status.OK():
			if feasible = append(feasible, node); len(feasible) >= wanted {
				return feasible
			}
		case status.Rejected():
			d.Refusals[node.Name()] = status
		default:
			d.Err = fmt.Errorf("plugin %s on node %s: %w", status.Plugin, node.Name(), status.Err)
			return nil
		}
	}
	return feasible
}

// fitsOn runs the filters for one node: as it is, and with its nominated pods of the same or a
// higher priority.
func (d *Decision) fitsOn(in *Input, filters []framework.FilterPlugin, node *framework.NodeInfo) *framework.Status {
	status := runFilters(d.State, filters, in.Pod, node)
	if expected := higherNominated(in.Nominated[node.Name()], in.Pod); status.OK() && len(expected) > 0 {
		status = filterWithNominated(in, node, expected)
	}
	return status
}

func runFilters(state framework.State, filters []framework.FilterPlugin, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	for _, f := range filters {
		if status := f.Filter(state, pod, node); !status.OK() {
			status.Plugin = f.Name()
			return status
		}
	}
	return nil
}

// higherNominated returns the nominated pods of the same or a higher priority: the pod must not
// take their room.
func higherNominated(expected []*framework.PodInfo, pod *framework.PodInfo) []*framework.PodInfo {
	var out []*framework.PodInfo
	for _, e := range expected {
		if e.Pod.UID != pod.Pod.UID && priority(e.Pod) >= priority(pod.Pod) {
			out = append(out, e)
		}
	}
	return out
}

// filterWithNominated runs the filters as if the nominated pods were already on the node.
func filterWithNominated(in *Input, node *framework.NodeInfo, expected []*framework.PodInfo) *framework.Status {
	with := node.Clone()
	for _, e := range expected {
		with.AddPod(e)
	}
	return fits(in.Snapshot.With(with), in.Pod, in.Profile, with)
}

// fits runs PreFilter and Filter for one node of a snapshot.
func fits(snapshot *framework.Snapshot, pod *framework.PodInfo, profile *framework.Profile, node *framework.NodeInfo) *framework.Status {
	d := Decision{State: framework.State{}}
	filters, allowed := d.preFilter(snapshot, pod, profile)
	switch {
	case d.Err != nil:
		return framework.Fail(d.Err)
	case d.Whole != nil:
		return d.Whole
	case allowed != nil && !allowed.Has(node.Name()):
		return framework.RefuseAlways("node(s) didn't satisfy plugin(s) [NodeAffinity]")
	}
	return runFilters(d.State, filters, pod, node)
}

// score sets the node: the best by the sum of the weighted scores.
func (d *Decision) score(in *Input, feasible []*framework.NodeInfo) {
	silent := sets.New[string]()
	for _, p := range in.Profile.PreScores {
		switch status := p.PreScore(d.State, in.Pod, in.Snapshot, feasible); {
		case status.Skipped():
			silent.Insert(p.Name())
		case !status.OK():
			d.Err = fmt.Errorf("plugin %s: %w", p.Name(), status.Err)
			return
		}
	}
	sums := make([]int64, 2*len(feasible))
	total, scores := sums[:len(feasible)], sums[len(feasible):]
	for _, p := range in.Profile.Scores {
		if silent.Has(p.Name()) {
			continue
		}
		for i, node := range feasible {
			s, status := p.Score(d.State, in.Pod, node)
			if !status.OK() {
				d.Err = fmt.Errorf("plugin %s on node %s: %w", p.Name(), node.Name(), status.Err)
				return
			}
			scores[i] = s
		}
		if n, ok := p.ScorePlugin.(framework.NormalizePlugin); ok {
			n.Normalize(d.State, in.Pod, feasible, scores)
		}
		for i, s := range scores {
			total[i] += s * p.Weight
		}
	}
	d.Node = feasible[pickBest(total, in.Pick)].Name()
}

// pickBest returns the index of one of the highest scores.
func pickBest(scores []int64, pick uint64) int {
	best, equals := slices.Max(scores), uint64(0)
	for _, s := range scores {
		if s == best {
			equals++
		}
	}
	i := slices.Index(scores, best)
	for skip := pick % equals; skip > 0; skip-- {
		i += 1 + slices.Index(scores[i+1:], best)
	}
	return i
}

// Message says how many nodes were refused for each reason, in upstream's words.
func (d *Decision) Message() string {
	if d.Err != nil {
		return d.Err.Error()
	}
	if d.Nodes == 0 {
		return "no nodes available to schedule pods"
	}
	prefix := fmt.Sprintf("0/%d nodes are available", d.Nodes)
	if d.Whole != nil {
		return prefix + ": " + strings.Join(d.Whole.Reasons, ", ") + "."
	}
	count := map[string]int{}
	for _, status := range d.Refusals {
		for _, reason := range status.Reasons {
			count[reason]++
		}
	}
	parts := make([]string, 0, len(count))
	for reason, n := range count {
		parts = append(parts, fmt.Sprintf("%d %s", n, reason))
	}
	sort.Strings(parts)
	return prefix + ": " + strings.Join(parts, ", ") + "."
}

// RefusedBy returns the plugins that refused the pod on any node. Their events decide when the pod
// is tried again.
func (d *Decision) RefusedBy() sets.Set[string] {
	by := sets.New[string]()
	if d.Whole != nil {
		by.Insert(d.Whole.Plugin)
	}
	for _, status := range d.Refusals {
		by.Insert(status.Plugin)
	}
	return by
}
