package plugins

import (
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// topologySpread spreads the pods of a group over domains (KEP-895, with minDomains, node inclusion
// policies and matchLabelKeys). Pods without constraints of their own prefer to spread over hosts
// and zones. The snapshot counts the pods.
type topologySpread struct{ plugin }

var (
	noDomain = refusal("PodTopologySpread", framework.UnschedulableAndUnresolvable, "node(s) didn't match pod topology spread constraints (missing required label)")
	tooMany  = refusal("PodTopologySpread", framework.Unschedulable, "node(s) didn't match pod topology spread constraints")
)

// constraint is a constraint of an incoming pod with the counts of the matching pods.
type constraint struct {
	maxSkew       int64
	key           string
	selector      labels.Selector
	minDomains    int
	honorAffinity bool
	honorTaints   bool
	framework.Counts

	// of hard constraints: the largest number of pods in a domain that may get one more
	most   int64
	weight float64 // of soft constraints: the logarithm of the number of domains
}

func (c *constraint) group() *framework.TopologyCount { return &c.ByKey[0] }

// matches reports whether the pod is of the group. As upstream, an empty selector selects no pod.
func (c *constraint) matches(pod *corev1.Pod) bool {
	return !c.selector.Empty() && c.selector.Matches(labels.Set(pod.Labels))
}

// constraints returns the pod's constraints with this action. defaults means that they are not the
// pod's own.
func constraints(pod *framework.PodInfo, snapshot *framework.Snapshot, action corev1.UnsatisfiableConstraintAction) (out []*constraint, defaults bool, err error) {
	own := pod.Pod.Spec.TopologySpreadConstraints
	for i := range own {
		if own[i].WhenUnsatisfiable != action {
			continue
		}
		c, err := newConstraint(pod.Pod, &own[i])
		if err != nil {
			return nil, false, err
		}
		out = append(out, c)
	}
	if len(own) == 0 && action == corev1.ScheduleAnyway && snapshot.Selectors != nil {
		if selector := snapshot.Selectors(pod.Pod); selector != nil && !selector.Empty() {
			out = append(out,
				&constraint{maxSkew: 3, key: corev1.LabelHostname, selector: selector, minDomains: 1, honorAffinity: true},
				&constraint{maxSkew: 5, key: corev1.LabelTopologyZone, selector: selector, minDomains: 1, honorAffinity: true})
		}
	}
	return out, len(own) == 0, nil
}

func newConstraint(pod *corev1.Pod, c *corev1.TopologySpreadConstraint) (*constraint, error) {
	selector, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
	if err != nil {
		return nil, err
	}
	for _, key := range c.MatchLabelKeys {
		if value, ok := pod.Labels[key]; ok {
			requirement, err := labels.NewRequirement(key, "in", []string{value})
			if err != nil {
				return nil, err
			}
			selector = selector.Add(*requirement)
		}
	}
	n := &constraint{maxSkew: int64(c.MaxSkew), key: c.TopologyKey, selector: selector, minDomains: 1, honorAffinity: true}
	if c.MinDomains != nil {
		n.minDomains = int(*c.MinDomains)
	}
	if c.NodeAffinityPolicy != nil {
		n.honorAffinity = *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor
	}
	if c.NodeTaintsPolicy != nil {
		n.honorTaints = *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor
	}
	return n, nil
}

// count counts the matching pods on the nodes that the policies include and that have all the keys.
func (c *constraint) count(pod *framework.PodInfo, snapshot *framework.Snapshot, keys []string) {
	namespace := pod.Pod.Namespace
	c.Counts = snapshot.Count(framework.Selection{
		ID: c.id(pod, keys), Keys: []string{c.key},
		Matches: func(other *framework.PodInfo) bool {
			return other.Pod.Namespace == namespace && other.Pod.DeletionTimestamp == nil && c.matches(other.Pod)
		},
		Includes: func(node *corev1.Node) bool { return hasAll(node, keys) && c.includes(pod, node) },
	})
}

// id names what count depends on. The separators appear neither in keys of labels nor in selectors.
func (c *constraint) id(pod *framework.PodInfo, keys []string) string {
	id := make([]byte, 0, 256)
	id = append(append(id, "spread;"...), pod.Pod.Namespace...)
	id = append(append(append(id, ';'), c.key...), ';')
	id = append(append(append(id, strings.Join(keys, " ")...), ';'), c.selector.String()...)
	if c.honorAffinity {
		id = appendNodeAffinity(append(id, ";affinity"...), pod.Pod)
	}
	if c.honorTaints {
		id = appendTolerations(append(id, ";taints"...), pod.Pod.Spec.Tolerations)
	}
	return string(id)
}

func (c *constraint) includes(pod *framework.PodInfo, node *corev1.Node) bool {
	if c.honorAffinity {
		if match, err := pod.NodeAffinity.Match(node); err != nil || !match {
			return false
		}
	}
	return !c.honorTaints || untolerated(pod, node) == nil
}

func hasAll(node *corev1.Node, keys []string) bool {
	for _, key := range keys {
		if _, ok := node.Labels[key]; !ok {
			return false
		}
	}
	return true
}

// keysOf returns the topology keys that a node needs in order to count.
func keysOf(list []*constraint) []string {
	keys := make([]string, len(list))
	for i, c := range list {
		keys[i] = c.key
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func (topologySpread) PreFilter(state framework.State, pod *framework.PodInfo, snapshot *framework.Snapshot) (sets.Set[string], *framework.Status) {
	hard, _, err := constraints(pod, snapshot, corev1.DoNotSchedule)
	if err != nil {
		return nil, framework.RefuseAlways(err.Error())
	}
	if len(hard) == 0 {
		return nil, skip
	}
	keys := keysOf(hard)
	for _, c := range hard {
		c.count(pod, snapshot, keys)
		var least, self int64
		if c.Domains(0) >= max(c.minDomains, 1) {
			least = c.Least(0)
		}
		if c.selector.Matches(labels.Set(pod.Pod.Labels)) {
			self = 1
		}
		c.most = c.maxSkew - self + least
	}
	state["PodTopologySpread"] = hard
	return nil, nil
}

func (topologySpread) Filter(state framework.State, _ *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	hard, _ := state["PodTopologySpread"].([]*constraint)
	for _, c := range hard {
		n, ok := c.group().On(node)
		if !ok {
			return noDomain
		}
		if n > c.most {
			return tooMany
		}
	}
	return nil
}

func (topologySpread) RequeueOn() framework.Events {
	return framework.NodeAdded | framework.NodeLabels | framework.NodeDeleted | framework.NodeTaints | framework.PodAssigned | framework.PodRemoved | framework.SelfChanged
}

// spreading is what PreScore found out.
type spreading struct {
	soft []*constraint
	// required are the keys that a node needs in order to be scored.
	required []string
}

func (topologySpread) PreScore(state framework.State, pod *framework.PodInfo, snapshot *framework.Snapshot, feasible []*framework.NodeInfo) *framework.Status {
	soft, defaults, err := constraints(pod, snapshot, corev1.ScheduleAnyway)
	if err != nil {
		return framework.Fail(err)
	}
	if len(soft) == 0 {
		return skip
	}
	s := &spreading{soft: soft}
	if !defaults { // the default ones also spread over hosts without a zone
		s.required = keysOf(soft)
	}
	for _, c := range soft {
		c.count(pod, snapshot, s.required)
	}
	scored := feasible
	if slices.ContainsFunc(feasible, func(n *framework.NodeInfo) bool { return !s.scored(n) }) {
		scored = slices.DeleteFunc(slices.Clone(feasible), func(n *framework.NodeInfo) bool { return !s.scored(n) })
	}
	for _, c := range soft {
		c.weight = math.Log(float64(c.domains(scored) + 2))
	}
	state["PodTopologySpread/score"] = s
	return nil
}

// scored reports whether the node has the required keys.
func (s *spreading) scored(node *framework.NodeInfo) bool {
	if len(s.required) > 0 {
		for _, c := range s.soft {
			if _, ok := c.group().On(node); !ok {
				return false
			}
		}
	}
	return true
}

// domains counts the domains of the nodes that are scored. Each host is one. Nodes without the key
// are one too, as upstream.
func (c *constraint) domains(scored []*framework.NodeInfo) int {
	if c.key == corev1.LabelHostname {
		return len(scored)
	}
	return c.group().Values(scored)
}

// Score is the number of matching pods in the node's domains, weighted by the logarithm of the
// number of domains. The weight keeps keys with few domains from dominating. Less is better;
// Normalize reverses it.
func (topologySpread) Score(state framework.State, _ *framework.PodInfo, node *framework.NodeInfo) (int64, *framework.Status) {
	s, ok := state["PodTopologySpread/score"].(*spreading)
	if !ok {
		return 0, nil
	}
	var sum float64
	for _, c := range s.soft {
		n, ok := c.group().On(node)
		switch {
		case !ok && len(s.required) > 0:
			return 0, nil
		case !ok:
			continue
		}
		if c.key == corev1.LabelHostname {
			n = c.OnNode(node)
		}
		sum += float64(n)*c.weight + float64(c.maxSkew-1)
	}
	return int64(math.Round(sum)), nil
}

// Normalize gives 0 to nodes without the required keys.
func (topologySpread) Normalize(state framework.State, _ *framework.PodInfo, nodes []*framework.NodeInfo, scores []int64) {
	s, ok := state["PodTopologySpread/score"].(*spreading)
	if !ok {
		return
	}
	least, most := int64(math.MaxInt64), int64(0)
	for i, score := range scores {
		if s.scored(nodes[i]) {
			least, most = min(least, score), max(most, score)
		}
	}
	for i, score := range scores {
		switch {
		case !s.scored(nodes[i]):
			scores[i] = 0
		case most == 0:
			scores[i] = framework.MaxNodeScore
		default:
			scores[i] = framework.MaxNodeScore * (most + least - score) / most
		}
	}
}
