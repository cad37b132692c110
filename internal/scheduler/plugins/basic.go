// Package plugins has the built-in scheduling plugins, which are upstream's default profile: one
// file for each concern. Every plugin is a pure function of the snapshot and the pod. Names,
// reasons and weights are upstream's.
package plugins

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

type plugin string

func (p plugin) Name() string { return string(p) }

// Statuses are shared: they do not change.
var (
	// skip says that a plugin does not apply to the pod.
	skip = &framework.Status{Code: framework.Skip}

	otherName        = refusal("NodeName", framework.UnschedulableAndUnresolvable, "node(s) didn't match the requested node name")
	cordoned         = refusal("NodeUnschedulable", framework.UnschedulableAndUnresolvable, "node(s) were unschedulable")
	hasTaint         = refusal("TaintToleration", framework.UnschedulableAndUnresolvable, "node(s) had untolerated taint(s)")
	portTaken        = refusal("NodePorts", framework.Unschedulable, "node(s) didn't have free ports for the requested pod ports")
	conflictingNames = refusal("NodeAffinity", framework.UnschedulableAndUnresolvable, "pod affinity terms conflict")
	notSelected      = refusal("NodeAffinity", framework.UnschedulableAndUnresolvable, "node(s) didn't match Pod's node affinity/selector")
)

func refusal(plugin string, code framework.Code, reason string) *framework.Status {
	return &framework.Status{Code: code, Plugin: plugin, Reasons: []string{reason}}
}

// nodeName refuses all nodes but the one in the pod's spec.
type nodeName struct{ plugin }

func (nodeName) Filter(_ framework.State, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	if want := pod.Pod.Spec.NodeName; want != "" && want != node.Name() {
		return otherName
	}
	return nil
}

func (nodeName) RequeueOn() framework.Events { return framework.NodeAdded }

// nodeUnschedulable refuses cordoned nodes.
type nodeUnschedulable struct{ plugin }

func (nodeUnschedulable) Filter(_ framework.State, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	if !node.Node.Spec.Unschedulable {
		return nil
	}
	cordon := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	if tolerates(pod.Pod.Spec.Tolerations, &cordon) {
		return nil
	}
	return cordoned
}

func (nodeUnschedulable) RequeueOn() framework.Events {
	return framework.NodeAdded | framework.NodeTaints | framework.SelfChanged
}

// taintToleration refuses nodes with taints that the pod does not tolerate. PreferNoSchedule taints
// lower the score.
type taintToleration struct{ plugin }

func tolerates(tolerations []corev1.Toleration, taint *corev1.Taint) bool {
	for i := range tolerations {
		if tolerations[i].ToleratesTaint(quiet, taint, true) {
			return true
		}
	}
	return false
}

func (taintToleration) Filter(_ framework.State, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	if untolerated(pod, node.Node) != nil {
		return hasTaint
	}
	return nil
}

// untolerated returns a taint that keeps the pod off the node; nil if there is none.
func untolerated(pod *framework.PodInfo, node *corev1.Node) *corev1.Taint {
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if taint.Effect != corev1.TaintEffectPreferNoSchedule && !tolerates(pod.Pod.Spec.Tolerations, taint) {
			return taint
		}
	}
	return nil
}

func (taintToleration) RequeueOn() framework.Events {
	return framework.NodeAdded | framework.NodeTaints | framework.SelfChanged
}

func (taintToleration) Score(_ framework.State, pod *framework.PodInfo, node *framework.NodeInfo) (int64, *framework.Status) {
	var untolerated int64
	for i := range node.Node.Spec.Taints {
		taint := &node.Node.Spec.Taints[i]
		if taint.Effect == corev1.TaintEffectPreferNoSchedule && !tolerates(pod.Pod.Spec.Tolerations, taint) {
			untolerated++
		}
	}
	return untolerated, nil
}

func (taintToleration) Normalize(_ framework.State, _ *framework.PodInfo, _ []*framework.NodeInfo, scores []int64) {
	scale(scores, true)
}

// nodePorts refuses nodes where one of the pod's host ports is taken.
type nodePorts struct{ plugin }

func (nodePorts) PreFilter(_ framework.State, pod *framework.PodInfo, _ *framework.Snapshot) (sets.Set[string], *framework.Status) {
	if len(pod.Ports) == 0 {
		return nil, skip
	}
	return nil, nil
}

func (nodePorts) Filter(_ framework.State, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	for _, want := range pod.Ports {
		for _, other := range node.Pods {
			for _, taken := range other.Ports {
				if want.Conflicts(taken) {
					return portTaken
				}
			}
		}
	}
	return nil
}

func (nodePorts) RequeueOn() framework.Events { return framework.NodeAdded | framework.PodRemoved }

// nodeAffinity checks the node selector and the node affinity.
type nodeAffinity struct{ plugin }

func (nodeAffinity) PreFilter(_ framework.State, pod *framework.PodInfo, _ *framework.Snapshot) (sets.Set[string], *framework.Status) {
	spec := &pod.Pod.Spec
	if spec.NodeSelector == nil && (spec.Affinity == nil || spec.Affinity.NodeAffinity == nil ||
		spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil) {
		return nil, skip
	}
	named := namedNodes(pod.Pod)
	if named != nil && len(named) == 0 {
		return nil, conflictingNames
	}
	return named, nil
}

// namedNodes returns the nodes that the required affinity names in matchFields, as that of
// DaemonSet pods does. It is nil if some term names none, and empty if each contradicts itself.
func namedNodes(pod *corev1.Pod) sets.Set[string] {
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	var named sets.Set[string]
	for _, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		var names sets.Set[string]
		for _, f := range term.MatchFields {
			switch {
			case f.Key != metav1.ObjectNameField || f.Operator != corev1.NodeSelectorOpIn:
			case names == nil:
				names = sets.New(f.Values...)
			default:
				names = names.Intersection(sets.New(f.Values...))
			}
		}
		if names == nil {
			return nil
		}
		named = named.Union(names)
	}
	return named
}

func (nodeAffinity) Filter(_ framework.State, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	// The library is slower: it would compile the selector and look up the label for each
	// requirement.
	for label, value := range pod.Pod.Spec.NodeSelector {
		if is, ok := node.Node.Labels[label]; !ok || is != value {
			return notSelected
		}
	}
	if a := pod.Pod.Spec.Affinity; a == nil || a.NodeAffinity == nil {
		return nil
	}
	// A term with an error matches no node.
	if match, _ := pod.NodeAffinity.Match(node.Node); !match {
		return notSelected
	}
	return nil
}

func (nodeAffinity) RequeueOn() framework.Events {
	return framework.NodeAdded | framework.NodeLabels | framework.SelfChanged
}

func (nodeAffinity) Score(_ framework.State, pod *framework.PodInfo, node *framework.NodeInfo) (int64, *framework.Status) {
	affinity := pod.Pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil {
		return 0, nil
	}
	var sum int64
	for _, preferred := range affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
		match, err := schedulinghelper.MatchNodeSelectorTerms(node.Node, &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{preferred.Preference}})
		if err != nil {
			return 0, framework.Fail(err)
		}
		if match {
			sum += int64(preferred.Weight)
		}
	}
	return sum, nil
}

func (nodeAffinity) Normalize(_ framework.State, _ *framework.PodInfo, _ []*framework.NodeInfo, scores []int64) {
	scale(scores, false)
}

// scale scales scores to 0..MaxNodeScore in proportion to the largest; reverse makes the largest 0.
func scale(scores []int64, reverse bool) {
	var most int64
	for _, s := range scores {
		most = max(most, s)
	}
	for i, s := range scores {
		if most > 0 {
			s = s * framework.MaxNodeScore / most
		}
		if reverse {
			s = framework.MaxNodeScore - s
		}
		scores[i] = s
	}
}
