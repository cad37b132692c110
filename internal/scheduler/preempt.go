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

// victims is what must go from a node to make room.
type victims struct {
	node       string
	pods       []*corev1.Pod // highest priority first
	violations int           // of disruption budgets
}

// mostCandidates bounds how many nodes are tried in detail (upstream: 10 % of the nodes, at least 100).
func mostCandidates(nodes int) int { return max(nodes/10, 100) }

// preempt finds the node where the least harm makes room for the pod, or nil. It is pure. Only nodes whose refusal
// could be resolved by removing pods of lower priority are tried.
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

// mayPreempt: the pod must want to, and must not already be waiting for pods that it made leave.
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

// selectVictims removes all pods of lower priority, sees whether the pod fits, then gives back as many as it can:
// first those whose removal would violate a disruption budget, the most important ones first.
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

// moreImportant orders by priority, then by how long the pod has run.
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

// splitByBudgets separates the pods whose removal would violate a PodDisruptionBudget, counting each budget's
// allowance down.
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

// lessHarm: fewest budget violations, then the lowest highest priority, the lowest sum of priorities, the fewest pods,
// and at last the one whose most important victim started latest.
func lessHarm(a, b *victims) bool {
	sum := func(v *victims) (s int64) {
		for _, p := range v.pods {
			// Shifted to be positive, so that more victims of negative priority are not "less".
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
