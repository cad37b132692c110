package scheduler

import (
	"cmp"
	"slices"

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

// preempt chooses the node where evictions do the least harm; nil if there is none. It is pure. It
// only examines nodes whose refusal could change if pods were removed.
func preempt(snapshot *framework.Snapshot, pod *framework.PodInfo, profile *framework.Profile, d *Decision, budgets []*policyv1.PodDisruptionBudget) *victims {
	if d.Whole != nil && d.Whole.Code == framework.UnschedulableAndUnresolvable || !mayPreempt(snapshot, pod.Pod) {
		return nil
	}
	var best *victims
	tried := 0
	for _, node := range snapshot.Nodes {
		status := d.Refusals[node.Name()]
		if status == nil && d.Whole == nil || status != nil && status.Code != framework.Unschedulable {
			continue
		}
		v := selectVictims(snapshot, pod, profile, node, budgets)
		if v == nil {
			continue
		}
		if best == nil || lessHarm(v, best) {
			best = v
		}
		if tried++; tried >= mostCandidates(len(snapshot.Nodes)) {
			break
		}
	}
	return best
}

// mayPreempt reports whether the pod's policy allows preemption. A pod whose victims are still
// leaving does not preempt again.
func mayPreempt(snapshot *framework.Snapshot, pod *corev1.Pod) bool {
	if pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy == corev1.PreemptNever {
		return false
	}
	node, ok := snapshot.Node(pod.Status.NominatedNodeName)
	if !ok {
		return true
	}
	for _, p := range node.Pods {
		if p.Pod.DeletionTimestamp != nil && priority(p.Pod) < priority(pod) {
			return false
		}
	}
	return true
}

// selectVictims removes all pods of lower priority. If the pod then fits, it adds back as many of
// them as possible. Pods whose removal would violate a disruption budget come first, and the most
// important pods first among these.
func selectVictims(snapshot *framework.Snapshot, pod *framework.PodInfo, profile *framework.Profile, node *framework.NodeInfo, budgets []*policyv1.PodDisruptionBudget) *victims {
	room := node.Clone()
	var lower []*framework.PodInfo
	for _, p := range node.Pods {
		if priority(p.Pod) < priority(pod.Pod) {
			lower = append(lower, p)
			room.RemovePod(p)
		}
	}
	if len(lower) == 0 || !fits(snapshot.With(room), pod, profile, room).OK() {
		return nil
	}
	slices.SortStableFunc(lower, func(a, b *framework.PodInfo) int { return moreImportant(a.Pod, b.Pod) })
	violating, rest := splitByBudgets(lower, budgets)
	v := &victims{node: node.Name()}
	for i, group := range [][]*framework.PodInfo{violating, rest} {
		for _, p := range group {
			with := room.Clone()
			with.AddPod(p)
			if fits(snapshot.With(with), pod, profile, with).OK() {
				room = with
				continue
			}
			v.pods = append(v.pods, p.Pod)
			if i == 0 {
				v.violations++
			}
		}
	}
	slices.SortStableFunc(v.pods, moreImportant)
	if len(v.pods) == 0 {
		return nil
	}
	return v
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
func splitByBudgets(pods []*framework.PodInfo, budgets []*policyv1.PodDisruptionBudget) (violating, rest []*framework.PodInfo) {
	allowed := make([]int32, len(budgets))
	for i, b := range budgets {
		allowed[i] = b.Status.DisruptionsAllowed
	}
	for _, p := range pods {
		violates := false
		for i, b := range budgets {
			selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
			if b.Namespace != p.Pod.Namespace || err != nil || selector.Empty() || !selector.Matches(labels.Set(p.Pod.Labels)) {
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
