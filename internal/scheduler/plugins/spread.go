package plugins

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// topologySpread spreads the pods of a group over domains (KEP-895, with minDomains, node inclusion
// policies and matchLabelKeys). Pods without constraints of their own prefer to spread over hosts
// and zones.
type topologySpread struct{ plugin }

type constraint struct {
	maxSkew          int
	key              string
	selector         labels.Selector
	minDomains       int
	honorAffinity    bool
	honorTaints      bool
	selfMatch        int
	count            map[string]int // number of matching pods by domain
	domains          sets.Set[string]
	leastInAnyDomain int
}

func constraints(pod *framework.PodInfo, snapshot *framework.Snapshot, action corev1.UnsatisfiableConstraintAction) ([]*constraint, error) {
	var out []*constraint
	for _, c := range pod.Pod.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable != action {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
		if err != nil {
			return nil, err
		}
		for _, key := range c.MatchLabelKeys {
			if value, ok := pod.Pod.Labels[key]; ok {
				requirement, err := labels.NewRequirement(key, "in", []string{value})
				if err != nil {
					return nil, err
				}
				selector = selector.Add(*requirement)
			}
		}
		n := &constraint{maxSkew: int(c.MaxSkew), key: c.TopologyKey, selector: selector, minDomains: 1, honorAffinity: true}
		if c.MinDomains != nil {
			n.minDomains = int(*c.MinDomains)
		}
		if c.NodeAffinityPolicy != nil {
			n.honorAffinity = *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor
		}
		if c.NodeTaintsPolicy != nil {
			n.honorTaints = *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor
		}
		out = append(out, n)
	}
	if len(pod.Pod.Spec.TopologySpreadConstraints) == 0 && action == corev1.ScheduleAnyway && snapshot.Selectors != nil {
		if selector := snapshot.Selectors(pod.Pod); selector != nil && !selector.Empty() {
			out = append(out,
				&constraint{maxSkew: 3, key: corev1.LabelHostname, selector: selector, minDomains: 1, honorAffinity: true},
				&constraint{maxSkew: 5, key: corev1.LabelTopologyZone, selector: selector, minDomains: 1, honorAffinity: true})
		}
	}
	return out, nil
}

// fill counts the matching pods in each domain, among the nodes that the constraint's policies
// include.
func (c *constraint) fill(pod *framework.PodInfo, nodes []*framework.NodeInfo) {
	c.count, c.domains = map[string]int{}, sets.New[string]()
	if c.selector.Matches(labels.Set(pod.Pod.Labels)) {
		c.selfMatch = 1
	}
	for _, node := range nodes {
		value, ok := node.Node.Labels[c.key]
		if !ok || !c.includes(pod, node) {
			continue
		}
		c.domains.Insert(value)
		for _, other := range node.Pods {
			if other.Pod.Namespace == pod.Pod.Namespace && other.Pod.DeletionTimestamp == nil && c.selector.Matches(labels.Set(other.Pod.Labels)) {
				c.count[value]++
			}
		}
	}
	c.leastInAnyDomain = math.MaxInt
	for value := range c.domains {
		c.leastInAnyDomain = min(c.leastInAnyDomain, c.count[value])
	}
	if c.domains.Len() < c.minDomains {
		c.leastInAnyDomain = 0
	}
}

func (c *constraint) includes(pod *framework.PodInfo, node *framework.NodeInfo) bool {
	if c.honorAffinity {
		if match, err := pod.NodeAffinity.Match(node.Node); err != nil || !match {
			return false
		}
	}
	if c.honorTaints {
		return taintToleration{}.Filter(nil, pod, node).OK()
	}
	return true
}

func (topologySpread) PreFilter(state framework.State, pod *framework.PodInfo, snapshot *framework.Snapshot) (sets.Set[string], *framework.Status) {
	hard, err := constraints(pod, snapshot, corev1.DoNotSchedule)
	if err != nil {
		return nil, framework.RefuseAlways(err.Error())
	}
	if len(hard) == 0 {
		return nil, &framework.Status{Code: framework.Skip}
	}
	included := withAllKeys(snapshot.Nodes, hard)
	for _, c := range hard {
		c.fill(pod, included)
	}
	state["PodTopologySpread"] = hard
	return nil, nil
}

// withAllKeys returns the nodes that have the topology keys of all constraints; other nodes do not
// count.
func withAllKeys(nodes []*framework.NodeInfo, list []*constraint) []*framework.NodeInfo {
	var out []*framework.NodeInfo
	for _, n := range nodes {
		all := true
		for _, c := range list {
			_, ok := n.Node.Labels[c.key]
			all = all && ok
		}
		if all {
			out = append(out, n)
		}
	}
	return out
}

func (topologySpread) Filter(state framework.State, _ *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	hard, _ := state["PodTopologySpread"].([]*constraint)
	for _, c := range hard {
		value, ok := node.Node.Labels[c.key]
		if !ok {
			return framework.RefuseAlways("node(s) didn't match pod topology spread constraints (missing required label)")
		}
		if c.count[value]+c.selfMatch-c.leastInAnyDomain > c.maxSkew {
			return framework.Refuse("node(s) didn't match pod topology spread constraints")
		}
	}
	return nil
}

func (topologySpread) RequeueOn() framework.Events {
	return framework.NodeAdded | framework.NodeLabels | framework.NodeDeleted | framework.NodeTaints | framework.PodAssigned | framework.PodRemoved | framework.SelfChanged
}

func (topologySpread) PreScore(state framework.State, pod *framework.PodInfo, snapshot *framework.Snapshot, _ []*framework.NodeInfo) *framework.Status {
	soft, err := constraints(pod, snapshot, corev1.ScheduleAnyway)
	if err != nil {
		return framework.Fail(err)
	}
	for _, c := range soft {
		c.fill(pod, snapshot.Nodes)
	}
	state["PodTopologySpread/score"] = soft
	return nil
}

// Score is the number of matching pods in the node's domains, weighted by the logarithm of the
// number of domains. The weight keeps keys with few domains from dominating. Less is better;
// Normalize reverses it.
func (topologySpread) Score(state framework.State, _ *framework.PodInfo, node *framework.NodeInfo) (int64, *framework.Status) {
	soft, _ := state["PodTopologySpread/score"].([]*constraint)
	var sum float64
	for _, c := range soft {
		if value, ok := node.Node.Labels[c.key]; ok {
			sum += float64(c.count[value])*math.Log(float64(c.domains.Len()+2)) + float64(c.maxSkew-1)
		}
	}
	return int64(math.Round(sum)), nil
}

func (topologySpread) Normalize(state framework.State, _ *framework.PodInfo, _ []*framework.NodeInfo, scores []int64) {
	least, most := scores[0], scores[0]
	for _, s := range scores {
		least, most = min(least, s), max(most, s)
	}
	for i, s := range scores {
		if most == 0 {
			scores[i] = framework.MaxNodeScore
			continue
		}
		scores[i] = framework.MaxNodeScore * (most + least - s) / most
	}
}
