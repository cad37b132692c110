package scheduler

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
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
	Skipped Names
	// Silent are the plugins with no score for the pod.
	Silent Names
	// Refused is the number of refused nodes. Refusals has the reason of each, if no node was found
	// or Input.Explain is set.
	Refused  int
	Refusals Refusals
	// Whole is set when a PreFilter plugin refused the pod on all nodes.
	Whole *framework.Status
	// Err is the failure of a plugin. It is not a refusal: the pod is tried again after a backoff.
	Err error
	// Nodes is the number of nodes in the snapshot; Feasible is the number of those that were found
	// to fit.
	Nodes, Feasible int
	// Score is the chosen node's, and Next the best other node with its score. They are set if
	// there was a choice.
	Score, NextScore int64
	Next             string
}

// Names are the names of plugins.
type Names []string

// Has reports whether the name is one of them. There are few: a map would cost more.
func (n Names) Has(name string) bool { return slices.Contains(n, name) }

// minNodesToFind is the number of nodes up to which all are filtered. In a larger cluster a share
// is enough, as upstream: 50 % minus 1 % per 125 nodes, at least 5 %, and at least 100 nodes.
const minNodesToFind = 100

func nodesToFind(all int, percent int32) int {
	if all <= minNodesToFind {
		return all
	}
	if percent == 0 {
		percent = int32(max(50-all/125, 5))
	}
	return max(all*int(percent)/100, minNodesToFind)
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
	// Explain asks for the refusals, also if a node is found.
	Explain bool
	// Observe is called after each extension point that ran, with its name and status. The caller
	// may take the time there. It does not affect the decision; nil observes nothing.
	Observe func(extensionPoint, status string)
	// Classes keeps answers of earlier decisions. It saves time and does not affect the decision;
	// nil keeps nothing.
	Classes *Classes
	// Extension asks extenders; nil if there are none.
	Extension Extension
}

func (in *Input) observe(extensionPoint string, d *Decision) {
	if in.Observe != nil {
		in.Observe(extensionPoint, d.status())
	}
}

// Decide chooses a node for the pod. It is pure: the same Input gives the same Decision.
func Decide(in Input) Decision {
	d := Decision{State: framework.State{}, Nodes: in.Snapshot.Nodes.Len(), Refusals: Refusals{snapshot: in.Snapshot}}
	if d.Nodes > 0 {
		in.Start %= d.Nodes
	}
	s := search{in: &in, d: &d}
	s.filters, s.allowed = d.preFilter(in.Snapshot, in.Pod, in.Profile)
	in.observe("PreFilter", &d)
	if d.Whole != nil || d.Err != nil {
		return d
	}
	s.useClass()
	feasible := s.filter()
	if s.class != nil && s.class.failed { // the failure may not matter: its node may not be scored
		in.Classes = nil
		d.State.End()
		return Decide(in)
	}
	feasible = s.extend(feasible)
	d.Feasible, d.Refused = len(feasible), d.Refusals.Len()+s.refused
	in.observe("Filter", &d)
	switch {
	case d.Err != nil || len(feasible) == 0:
		return d
	case len(feasible) == 1:
		d.Node = in.Snapshot.Nodes.At(int(feasible[0])).Name()
	default:
		s.score(feasible)
		in.observe("Score", &d)
	}
	if !in.Explain {
		d.Refusals = Refusals{}
	}
	return d
}

// preFilter runs the PreFilter plugins. It returns the Filter plugins that are left to run, and the
// nodes that the plugins allow; nil allows all.
func (d *Decision) preFilter(snapshot *framework.Snapshot, pod *framework.PodInfo, profile *framework.Profile) (
	[]framework.FilterPlugin, sets.Set[string],
) {
	var allowed sets.Set[string]
	var restricting []string
	d.Skipped = make(Names, 0, len(profile.PreFilters))
	for _, p := range profile.PreFilters {
		only, status := p.PreFilter(d.State, pod, snapshot)
		switch {
		case status.Skipped():
			d.Skipped = append(d.Skipped, p.Name())
			continue
		case status.Rejected():
			d.Whole = from(p, status)
			return nil, nil
		case !status.OK():
			d.Err = fmt.Errorf("running PreFilter plugin %q: %w", p.Name(), status.Err)
			return nil, nil
		}
		if only == nil {
			continue
		}
		restricting = append(restricting, p.Name())
		if allowed == nil {
			allowed = only
		} else {
			allowed = allowed.Intersection(only)
		}
		if len(allowed) == 0 {
			d.Whole = excludedEverywhere(restricting)
			return nil, nil
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

// from returns the status with the plugin's name.
func from(p framework.Plugin, status *framework.Status) *framework.Status {
	if status.Plugin == p.Name() {
		return status
	}
	named := *status
	named.Plugin = p.Name()
	return &named
}

// search looks for the feasible nodes and the best of them.
type search struct {
	in      *Input
	d       *Decision
	filters []framework.FilterPlugin // that are left to run
	allowed sets.Set[string]
	// class has the answers of the pod's class; nil if there are none. Then filters has only the
	// plugins without an answer.
	class   *class
	silent  Names // plugins whose PreScore had nothing to do
	refused int   // number of nodes that the class refused, and that are not in d.Refusals
}

// filter returns the indexes of the feasible nodes, no more than nodesToFind, and notes why it
// refused the others.
func (s *search) filter() []int32 {
	nodes := &s.in.Snapshot.Nodes
	all := nodes.Len()
	wanted := nodesToFind(all, s.in.Profile.PercentageOfNodesToScore)
	// A pod goes to its nominated node if it still fits there (KEP-1923).
	if i, ok := s.in.Snapshot.IndexOf(s.in.Pod.Pod.Status.NominatedNodeName); ok &&
		(s.allowed == nil || s.allowed.Has(nodes.At(i).Name())) && s.fitsOn(i).OK() {
		return []int32{int32(i)}
	}
	if s.allowed != nil {
		return s.filterAllowed(wanted)
	}
	// An extender may refuse the rest of the nodes. Then the refusals of all nodes are needed.
	if s.class != nil && len(s.filters) == 0 && len(s.in.Nominated) == 0 && !s.in.Explain && s.in.Extension == nil {
		return s.filterByClass(wanted)
	}
	feasible := s.in.Classes.scratch(wanted)
	for i := range all {
		at := s.in.Start + i
		if at >= all {
			at -= all
		}
		if !s.look(at, &feasible) {
			return nil
		}
		if len(feasible) >= wanted {
			break
		}
	}
	return feasible
}

// filterAllowed looks only at the nodes that PreFilter plugins allow, in the order of the search.
func (s *search) filterAllowed(wanted int) []int32 {
	all := s.in.Snapshot.Nodes.Len()
	s.d.Refusals.allowed = s.allowed
	order := make([]int, 0, len(s.allowed))
	for name := range s.allowed {
		if i, ok := s.in.Snapshot.IndexOf(name); ok {
			order = append(order, (i-s.in.Start+all)%all)
		}
	}
	slices.Sort(order)
	var feasible []int32
	for _, i := range order {
		if !s.look((s.in.Start+i)%all, &feasible) {
			return nil
		}
		if len(feasible) >= wanted {
			break
		}
	}
	return feasible
}

// look adds a node to the feasible ones or to the refusals. It returns false if a plugin failed.
func (s *search) look(i int, feasible *[]int32) bool {
	status := s.fitsOn(i)
	switch {
	case status.OK():
		*feasible = append(*feasible, int32(i))
	case status.Rejected():
		s.d.Refusals.add(i, status)
	default:
		s.fail(i, status)
		return false
	}
	return true
}

// fail ends the decision: a plugin failed for a node.
func (s *search) fail(i int, status *framework.Status) {
	s.d.Err = fmt.Errorf("running %q filter plugin: %w", status.Plugin, status.Err)
}

// fitsOn runs the filters for one node: with its nominated pods of the same or a higher priority,
// if there are any, and as it is.
func (s *search) fitsOn(i int) *framework.Status {
	node := s.in.Snapshot.Nodes.At(i)
	if len(s.in.Nominated) > 0 {
		if expected := higherNominated(s.in.Nominated[node.Name()], s.in.Pod); len(expected) > 0 {
			if status := filterWithNominated(s.in, node, expected); !status.OK() {
				s.noteClaims(status, node)
				return status
			}
		}
	}
	if s.class != nil {
		if status := s.class.answer(i, s); status != nil {
			return status
		}
	}
	return runFilters(s.d.State, s.filters, s.in.Pod, node)
}

// noteClaims lets DynamicResources note in the decision's state which claims keep the pod from the
// node: the state in which it refused the node is gone. It does not look at the pods of a node.
func (s *search) noteClaims(status *framework.Status, node *framework.NodeInfo) {
	for _, f := range s.filters {
		if f.Name() == status.Plugin && f.Name() == framework.DynamicResources {
			f.Filter(s.d.State, s.in.Pod, node)
		}
	}
}

func runFilters(state framework.State, filters []framework.FilterPlugin, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	for _, f := range filters {
		if status := f.Filter(state, pod, node); !status.OK() {
			return from(f, status)
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
	return fits(in.Snapshot.With(with), in.Pod, in.Profile, with, node)
}

// fits runs PreFilter and Filter for one node of a snapshot, which was changed from base.
func fits(snapshot *framework.Snapshot, pod *framework.PodInfo, profile *framework.Profile, node, base *framework.NodeInfo) *framework.Status {
	d := Decision{State: framework.State{}}
	defer d.State.End()
	filters, allowed := d.preFilter(snapshot, pod, profile)
	switch {
	case d.Err != nil:
		return framework.Fail(d.Err)
	case d.Whole != nil:
		return d.Whole
	case allowed != nil && !allowed.Has(node.Name()):
		return framework.RefuseAlways("node(s) didn't satisfy plugin(s) [NodeAffinity]")
	}
	for _, p := range profile.PreFilters {
		if t, ok := p.(framework.TrialPlugin); ok && !d.Skipped.Has(p.Name()) {
			if status := tell(t, d.State, pod, node, base); !status.OK() {
				return from(p, status)
			}
		}
	}
	return runFilters(d.State, filters, pod, node)
}

// tell tells a plugin which pods a trial has added to a node, or removed from it.
func tell(p framework.TrialPlugin, state framework.State, pod *framework.PodInfo, node, base *framework.NodeInfo) *framework.Status {
	for _, removed := range without(base.Pods, node.Pods) {
		if status := p.RemovePod(state, pod, removed, node); !status.OK() {
			return status
		}
	}
	for _, added := range without(node.Pods, base.Pods) {
		if status := p.AddPod(state, pod, added, node); !status.OK() {
			return status
		}
	}
	return nil
}

// without returns the pods that are not among others.
func without(pods, others []*framework.PodInfo) (out []*framework.PodInfo) {
	has := make(map[types.UID]bool, len(others))
	for _, p := range others {
		has[p.Pod.UID] = true
	}
	for _, p := range pods {
		if !has[p.Pod.UID] {
			out = append(out, p)
		}
	}
	return out
}

// score sets the node: the best by the sum of the weighted scores.
func (s *search) score(feasible []int32) {
	nodes := s.nodesAt(feasible, s.in.Classes.nodesOf(len(feasible)))
	ok := s.preScore(nodes)
	s.in.observe("PreScore", s.d)
	if !ok {
		return
	}
	total, scores := s.in.Classes.sums(len(feasible))
	if s.class != nil {
		s.class.addScores(s, feasible, nodes, total, scores)
	}
	for _, p := range s.in.Profile.Scores {
		if s.silent.Has(p.Name()) || s.class.scores(p) {
			continue
		}
		for i, node := range nodes {
			score, status := p.Score(s.d.State, s.in.Pod, node)
			if !status.OK() {
				s.d.Err = fmt.Errorf("plugin %s on node %s: %w", p.Name(), node.Name(), status.Err)
				return
			}
			scores[i] = score
		}
		if n, ok := p.ScorePlugin.(framework.NormalizePlugin); ok {
			n.Normalize(s.d.State, s.in.Pod, nodes, scores)
		}
		for i, score := range scores {
			total[i] += score * p.Weight
		}
	}
	s.in.addScores(nodes, total)
	s.d.Silent = s.silent
	s.d.choose(nodes, total, s.in.Pick)
}

// preScore runs the PreScore plugins, but for those of the class, which have run. It returns false
// if one failed.
func (s *search) preScore(nodes []*framework.NodeInfo) bool {
	for _, p := range s.in.Profile.PreScores {
		if s.class != nil && isLocal(p) {
			continue
		}
		switch status := p.PreScore(s.d.State, s.in.Pod, s.in.Snapshot, nodes); {
		case status.Skipped():
			s.silent = append(s.silent, p.Name())
		case !status.OK():
			s.d.Err = fmt.Errorf("plugin %s: %w", p.Name(), status.Err)
			return false
		}
	}
	return true
}

// choose sets the node with the highest score, and the next one.
func (d *Decision) choose(nodes []*framework.NodeInfo, total []int64, pick uint64) {
	chosen := pickBest(total, pick)
	d.Node, d.Score = nodes[chosen].Name(), total[chosen]
	next := -1
	for i := range total {
		if i != chosen && (next < 0 || total[i] > total[next]) {
			next = i
		}
	}
	d.Next, d.NextScore = nodes[next].Name(), total[next]
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

// Note says how the node was chosen, in a line for traces.
func (d *Decision) Note(took time.Duration) string {
	text := make([]byte, 0, 128)
	if d.Next != "" {
		text = fmt.Appendf(text, "score %d, next %s %d; ", d.Score, d.Next, d.NextScore)
	}
	return string(fmt.Appendf(text, "%d of %d nodes fit, %d refused; took %v", d.Feasible, d.Nodes, d.Refused, took.Round(time.Microsecond)))
}

// Message says how many nodes were refused for each reason, in upstream's words.
func (d *Decision) Message() string {
	if d.Err != nil {
		return d.Err.Error()
	}
	if d.Nodes == 0 {
		return "no nodes available to schedule pods"
	}
	if d.Whole != nil {
		return fmt.Sprintf("0/%d nodes are available: %s.", d.Nodes, strings.Join(d.Whole.Reasons, ", "))
	}
	return messageOf(d.Nodes, d.Refusals.counts())
}

// messageOf says how many of all nodes were refused for each reason. refused has the number of
// nodes of each refusal.
func messageOf(all int, refused map[*framework.Status]int) string {
	count := map[string]int{}
	for status, nodes := range refused {
		for _, reason := range status.Reasons {
			count[reason] += nodes
		}
	}
	parts := make([]string, 0, len(count))
	for reason, n := range count {
		parts = append(parts, fmt.Sprintf("%d %s", n, reason))
	}
	sort.Strings(parts)
	return fmt.Sprintf("0/%d nodes are available: %s.", all, strings.Join(parts, ", "))
}

// RefusedBy returns the plugins that refused the pod on any node. Their events decide when the pod
// is tried again.
func (d *Decision) RefusedBy() sets.Set[string] {
	by := sets.New[string]()
	if d.Whole != nil {
		by.Insert(d.Whole.Plugin)
	}
	for status := range d.Refusals.counts() {
		by.Insert(status.Plugin)
	}
	return by
}
