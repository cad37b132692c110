package plugins

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// addedAffinity is NodeAffinity with an affinity that counts for all pods.
type addedAffinity struct {
	nodeAffinity
	required  *nodeaffinity.NodeSelector // nil: none
	preferred *nodeaffinity.PreferredSchedulingTerms
}

func newNodeAffinity(args runtime.Object, _ framework.Handle) (framework.Plugin, error) {
	base := nodeAffinity{"NodeAffinity"}
	a, ok := args.(*configv1.NodeAffinityArgs)
	if !ok || a.AddedAffinity == nil {
		return base, nil
	}
	p := &addedAffinity{nodeAffinity: base}
	var err error
	if required := a.AddedAffinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		if p.required, err = nodeaffinity.NewNodeSelector(required); err != nil {
			return nil, fmt.Errorf("addedAffinity: %w", err)
		}
	}
	if preferred := a.AddedAffinity.PreferredDuringSchedulingIgnoredDuringExecution; len(preferred) > 0 {
		if p.preferred, err = nodeaffinity.NewPreferredSchedulingTerms(preferred); err != nil {
			return nil, fmt.Errorf("addedAffinity: %w", err)
		}
	}
	return p, nil
}

func (p *addedAffinity) PreFilter(state framework.State, pod *framework.PodInfo, snapshot *framework.Snapshot) (sets.Set[string], *framework.Status) {
	nodes, status := p.nodeAffinity.PreFilter(state, pod, snapshot)
	if status.Skipped() && p.required != nil {
		return nil, nil
	}
	return nodes, status
}

func (p *addedAffinity) Filter(state framework.State, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	if p.required != nil && !p.required.Match(node.Node) {
		return framework.RefuseAlways("node(s) didn't match scheduler-enforced node affinity")
	}
	return p.nodeAffinity.Filter(state, pod, node)
}

func (p *addedAffinity) Score(state framework.State, pod *framework.PodInfo, node *framework.NodeInfo) (int64, *framework.Status) {
	score, status := p.nodeAffinity.Score(state, pod, node)
	if status.OK() && p.preferred != nil {
		score += p.preferred.Score(node.Node)
	}
	return score, status
}

// listedSpread is PodTopologySpread with default constraints from the configuration.
type listedSpread struct {
	topologySpread
	defaults []corev1.TopologySpreadConstraint
}

func newSpread(args runtime.Object, _ framework.Handle) (framework.Plugin, error) {
	base := topologySpread{"PodTopologySpread"}
	a, ok := args.(*configv1.PodTopologySpreadArgs)
	if !ok || a.DefaultingType != configv1.ListDefaulting {
		return base, nil
	}
	return &listedSpread{base, a.DefaultConstraints}, nil
}

func (p *listedSpread) PreFilter(state framework.State, pod *framework.PodInfo, snapshot *framework.Snapshot) (sets.Set[string], *framework.Status) {
	if pod = p.constrained(pod, snapshot); pod == nil {
		return nil, &framework.Status{Code: framework.Skip}
	}
	return p.topologySpread.PreFilter(state, pod, snapshot)
}

func (p *listedSpread) PreScore(state framework.State, pod *framework.PodInfo, snapshot *framework.Snapshot, nodes []*framework.NodeInfo) *framework.Status {
	if pod = p.constrained(pod, snapshot); pod == nil {
		return &framework.Status{Code: framework.Skip}
	}
	return p.topologySpread.PreScore(state, pod, snapshot, nodes)
}

// constrained returns the pod with the default constraints if it has none of its own. It is nil if
// no constraint applies.
func (p *listedSpread) constrained(pod *framework.PodInfo, snapshot *framework.Snapshot) *framework.PodInfo {
	if len(pod.Pod.Spec.TopologySpreadConstraints) > 0 {
		return pod
	}
	if len(p.defaults) == 0 || snapshot.Selectors == nil {
		return nil
	}
	selector := snapshot.Selectors(pod.Pod)
	if selector == nil || selector.Empty() {
		return nil
	}
	with, object := *pod, *pod.Pod
	object.Spec.TopologySpreadConstraints = make([]corev1.TopologySpreadConstraint, len(p.defaults))
	for i, c := range p.defaults {
		c.LabelSelector = asLabelSelector(selector)
		object.Spec.TopologySpreadConstraints[i] = c
	}
	with.Pod = &object
	return &with
}

// asLabelSelector converts the selectors of Services and workloads.
func asLabelSelector(selector labels.Selector) *metav1.LabelSelector {
	operators := map[selection.Operator]metav1.LabelSelectorOperator{
		selection.In: metav1.LabelSelectorOpIn, selection.Equals: metav1.LabelSelectorOpIn, selection.DoubleEquals: metav1.LabelSelectorOpIn,
		selection.NotIn: metav1.LabelSelectorOpNotIn, selection.NotEquals: metav1.LabelSelectorOpNotIn,
		selection.Exists: metav1.LabelSelectorOpExists, selection.DoesNotExist: metav1.LabelSelectorOpDoesNotExist,
	}
	requirements, _ := selector.Requirements()
	out := &metav1.LabelSelector{}
	for _, r := range requirements {
		out.MatchExpressions = append(out.MatchExpressions, metav1.LabelSelectorRequirement{Key: r.Key(), Operator: operators[r.Operator()], Values: r.Values().List()})
	}
	return out
}

func newInterPodAffinity(args runtime.Object, _ framework.Handle) (framework.Plugin, error) {
	p := interPodAffinity{plugin: "InterPodAffinity", hardWeight: 1}
	if a, ok := args.(*configv1.InterPodAffinityArgs); ok {
		p.hardWeight, p.ignoreExisting = int64(*a.HardPodAffinityWeight), a.IgnorePreferredTermsOfExistingPods
	}
	return p, nil
}

func newDynamicResources(args runtime.Object, _ framework.Handle) (framework.Plugin, error) {
	p := dynamicResources{framework.DynamicResources, allocationTimeout, &deviceAnswers{}}
	if a, ok := args.(*configv1.DynamicResourcesArgs); ok {
		p.timeout = a.FilterTimeout.Duration
	}
	return p, nil
}
