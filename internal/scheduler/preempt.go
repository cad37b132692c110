package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// victims are the pods to evict from one node.
type victims struct {
	node       string
	pods       []*corev1.Pod // highest priority first
	violations int           // number of violated disruption budgets
}

// mostCandidates is the maximum number of nodes to examine. As upstream, it is 10 % of the nodes,
// at least 100.
func mostCandidates(nodes int) int { return max(nodes/10, 100) }

// Preemption is the outcome of the search for pods to evict.
type Preemption struct {
	// Node is the node to nominate; empty if evictions do not help. Victims are the pods to evict
	// there, the most important ones first.
	Node    string
	Victims []*corev1.Pod
	// Message says why there is no Node, in upstream's words.
	Message string
}

// Preempt chooses the node where evictions do the least harm, with upstream's default arguments and
// without extenders. It is pure. d is the decision that refused the pod.
func Preempt(in *Input, d *Decision, budgets []*policyv1.PodDisruptionBudget) Preemption {
	refusals := d.refusalOfEach(in.Snapshot)
	if why := mayNotPreempt(in.Snapshot, in.Pod.Pod, refusals); why != "" {
		return Preemption{Message: "preemption: " + why}
	}
	found, why := candidatesFor(in, mostCandidates(d.Nodes), refusals, budgets)
	if best := leastHarm(found); best != nil {
		return Preemption{Node: best.node, Victims: best.pods}
	}
	return Preemption{Message: why.message(d.Nodes)}
}

// candidatesFor returns the nodes where evictions would help, with their victims; at most most. It
// is pure. It only examines nodes whose refusal could change if pods were removed. The reasons are
// those of the other nodes.
func candidatesFor(in *Input, most int, refusals framework.Refusals, budgets []*policyv1.PodDisruptionBudget) (found []*victims, why reasons) {
	attempt := newPreemption(in, budgets)
	defer attempt.state.End()
	why = reasons{}
	all := attempt.snapshot.Nodes.Len()
	for i := range all {
		node := attempt.snapshot.Nodes.At((in.Start + i) % all)
		if status := refusals.Of(node.Name()); status == nil || status.Code != framework.Unschedulable {
			why["Preemption is not helpful for scheduling"]++
			continue
		}
		v, status := attempt.selectVictims(node)
		if !status.OK() {
			why.add(status)
			continue
		}
		if found = append(found, v); len(found) >= most {
			break
		}
	}
	return found, why
}

// reasons counts the nodes by the reason why preemption does not help there.
type reasons map[string]int

func (r reasons) add(status *framework.Status) {
	for _, reason := range status.Reasons {
		r[reason]++
	}
}

func (r reasons) message(nodes int) string {
	parts := make([]string, 0, len(r))
	for reason, n := range r {
		parts = append(parts, fmt.Sprintf("%d %s", n, reason))
	}
	slices.Sort(parts)
	return fmt.Sprintf("preemption: 0/%d nodes are available: %s.", nodes, strings.Join(parts, ", "))
}

// leastHarm returns the best candidate; nil if there is none.
func leastHarm(candidates []*victims) *victims {
	var best *victims
	for _, v := range candidates {
		if best == nil || lessHarm(v, best) {
			best = v
		}
	}
	return best
}

// mayNotPreempt says why the pod may not preempt, in upstream's words; "" means that it may. A pod
// whose victims are still leaving does not preempt again, unless its node has become impossible or
// fits.
func mayNotPreempt(snapshot *framework.Snapshot, pod *corev1.Pod, refusals framework.Refusals) string {
	if pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy == corev1.PreemptNever {
		return "not eligible due to preemptionPolicy=Never."
	}
	node, ok := snapshot.Node(pod.Status.NominatedNodeName)
	if !ok {
		return ""
	}
	if status := refusals.Of(node.Name()); status == nil || status.Code == framework.UnschedulableAndUnresolvable {
		return ""
	}
	for _, p := range node.Pods {
		if priority(p.Pod) < priority(pod) && leavesByPreemption(p.Pod) {
			return "not eligible due to a terminating pod on the nominated node."
		}
	}
	return ""
}

func leavesByPreemption(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonPreemptionByScheduler
	})
}

// preemption looks for victims on nodes.
type preemption struct {
	snapshot *framework.Snapshot
	pod      *framework.PodInfo
	profile  *framework.Profile
	// nominated are as in Input.
	nominated map[string][]*framework.PodInfo
	budgets   []budget
	state     framework.State
	// filters are set if only local plugins are left to run: their answers about a node do not
	// depend on the snapshot. As upstream, a plugin that skips the pod skips it without the victims
	// too.
	filters []framework.FilterPlugin
}

type budget struct {
	*policyv1.PodDisruptionBudget
	selector labels.Selector
}

func newPreemption(in *Input, budgets []*policyv1.PodDisruptionBudget) *preemption {
	p := &preemption{snapshot: in.Snapshot, pod: in.Pod, profile: in.Profile, nominated: in.Nominated}
	for _, b := range budgets {
		if selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector); err == nil && !selector.Empty() {
			p.budgets = append(p.budgets, budget{b, selector})
		}
	}
	d := Decision{State: framework.State{}}
	p.state = d.State
	filters, allowed := d.preFilter(p.snapshot, p.pod, p.profile)
	if d.Whole == nil && d.Err == nil && allowed == nil &&
		!slices.ContainsFunc(filters, func(f framework.FilterPlugin) bool { return !isLocal(f) }) {
		p.filters = filters
	}
	return p
}

// fits says whether the pod fits on the node in another state: with the nominated pods of the same
// or a higher priority, if there are any, and without them. Preemption must not count on their
// room: it would evict the same pods for many.
func (p *preemption) fits(node *framework.NodeInfo) *framework.Status {
	if expected := higherNominated(p.nominated[node.Name()], p.pod); len(expected) > 0 {
		with := node.Clone()
		for _, e := range expected {
			with.AddPod(e)
		}
		if status := p.fitsOn(with); !status.OK() {
			return status
		}
	}
	return p.fitsOn(node)
}

// fitsOn says whether the pod fits on the node in another state.
func (p *preemption) fitsOn(node *framework.NodeInfo) *framework.Status {
	if p.filters != nil {
		return runFilters(p.state, p.filters, p.pod, node)
	}
	base, _ := p.snapshot.Node(node.Name())
	return fits(p.snapshot.With(node), p.pod, p.profile, node, base)
}

var noVictims = framework.RefuseAlways("No preemption victims found for incoming pod")

// selectVictims removes all pods of lower priority. If the pod then fits, it adds back as many of
// them as possible. Pods whose removal would violate a disruption budget come first, and the most
// important pods first among these. The status says why evictions do not help.
func (p *preemption) selectVictims(node *framework.NodeInfo) (*victims, *framework.Status) {
	var lower []*framework.PodInfo
	for _, other := range node.Pods {
		if priority(other.Pod) < priority(p.pod.Pod) {
			lower = append(lower, other)
		}
	}
	if len(lower) == 0 {
		return nil, noVictims
	}
	room := node.Clone()
	for _, other := range lower {
		room.RemovePod(other)
	}
	if status := p.fits(room); !status.OK() {
		return nil, status
	}
	slices.SortStableFunc(lower, func(a, b *framework.PodInfo) int { return moreImportant(a.Pod, b.Pod) })
	violating, rest := splitByBudgets(lower, p.budgets)
	v := &victims{node: node.Name()}
	for i, group := range [][]*framework.PodInfo{violating, rest} {
		for _, other := range group {
			room.AddPod(other)
			if p.fits(room).OK() {
				continue
			}
			room.RemovePod(other)
			v.pods = append(v.pods, other.Pod)
			if i == 0 {
				v.violations++
			}
		}
	}
	slices.SortStableFunc(v.pods, moreImportant)
	if len(v.pods) == 0 {
		return nil, noVictims // only the expected pods were in the way
	}
	return v, nil
}

// moreImportant orders by priority, then by start time.
func moreImportant(a, b *corev1.Pod) int {
	if c := cmp.Compare(priority(b), priority(a)); c != 0 {
		return c
	}
	return started(a).Compare(started(b).Time)
}

func started(p *corev1.Pod) *metav1.Time {
	if p.Status.StartTime != nil {
		return p.Status.StartTime
	}
	return &p.CreationTimestamp
}

// splitByBudgets separates the pods whose eviction would violate a PodDisruptionBudget. Each pod
// counts against the allowance of its budgets.
func splitByBudgets(pods []*framework.PodInfo, budgets []budget) (violating, rest []*framework.PodInfo) {
	if len(budgets) == 0 {
		return nil, pods
	}
	allowed := make([]int32, len(budgets))
	for i, b := range budgets {
		allowed[i] = b.Status.DisruptionsAllowed
	}
	for _, p := range pods {
		violates := false
		for i, b := range budgets {
			if b.Namespace != p.Pod.Namespace || !b.selector.Matches(labels.Set(p.Pod.Labels)) {
				continue
			}
			if _, already := b.Status.DisruptedPods[p.Pod.Name]; already {
				continue
			}
			allowed[i]--
			violates = violates || allowed[i] < 0
		}
		if violates {
			violating = append(violating, p)
		} else {
			rest = append(rest, p)
		}
	}
	return violating, rest
}

// lessHarm compares in this order: fewest budget violations, lowest highest priority, lowest sum of
// priorities, fewest pods, latest start of the most important pod.
func lessHarm(a, b *victims) bool {
	sum := func(v *victims) (s int64) {
		for _, p := range v.pods {
			// The shift makes each summand positive. More victims of negative priority are not
			// "less".
			s += int64(priority(p)) + 1<<31
		}
		return s
	}
	if c := cmp.Or(
		cmp.Compare(a.violations, b.violations),
		cmp.Compare(priority(a.pods[0]), priority(b.pods[0])),
		cmp.Compare(sum(a), sum(b)),
		cmp.Compare(len(a.pods), len(b.pods)),
	); c != 0 {
		return c < 0
	}
	return started(b.pods[0]).Time.Before(started(a.pods[0]).Time)
}
