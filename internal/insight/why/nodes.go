package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
)

// Causes of nodes that take no pods, or run them badly.
const (
	causeCordoned    = "node-cordoned"
	causeNotReady    = "node-not-ready"
	causeUnreachable = "node-unreachable"
	causePressure    = "node-pressure"
	causeNetwork     = "node-network"
)

func nodeReady(n *corev1.Node) bool {
	c := nodeCondition(n, corev1.NodeReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

func nodeCondition(n *corev1.Node, t corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == t {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}

// node explains a node by its conditions, its lease and its cordon.
func node(s *Snapshot, n *corev1.Node) (out []Finding) {
	for _, c := range n.Status.Conditions {
		fact := Fact{Text: fmt.Sprintf("condition %s is %s since %s: %s", c.Type, c.Status, age(s.Now.Sub(c.LastTransitionTime.Time)), oneLine(c.Message))}
		f := Finding{Evidence: []Fact{fact}}
		switch {
		case c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown:
			f.Cause, f.Problem = causeUnreachable, "its node agent does not report."
			f.Remedy = "Check the machine, its network and `knarr status` there."
			f.Evidence = append(f.Evidence, leaseFact(s, n)...)
		case c.Type == corev1.NodeReady && c.Status == corev1.ConditionFalse:
			f.Cause, f.Problem, f.Remedy = causeNotReady, "its node agent says that it is not ready.", "Read the log of the node agent."
			if lower := strings.ToLower(c.Message); strings.Contains(lower, "cni") || strings.Contains(lower, "network plugin") {
				f.Cause, f.Problem, f.Remedy = causeNetwork, "its pod network is not set up.", "Install the network plugin, or read its log."
			}
		case c.Type == corev1.NodeNetworkUnavailable && c.Status == corev1.ConditionTrue:
			f.Cause, f.Problem, f.Remedy = causeNetwork, "its network is not set up.", "Read the log of the network plugin or of the route controller."
		case pressure[c.Type] != "" && c.Status == corev1.ConditionTrue:
			f.Cause, f.Problem = causePressure, "it runs short of "+pressure[c.Type]+": it evicts pods and takes fewer new ones."
			f.Remedy = "Free " + pressure[c.Type] + " on the machine, or move pods away."
		default:
			continue
		}
		out = append(out, f)
	}
	if nodeCondition(n, corev1.NodeReady) == nil && s.Now.Sub(n.CreationTimestamp.Time) > time.Minute {
		out = append(out, Finding{Cause: causeUnreachable, Problem: "its node agent has never reported.", Remedy: "Start the node agent on this machine, or delete the Node.", Evidence: leaseFact(s, n)})
	}
	if n.Spec.Unschedulable {
		out = append(out, Finding{Cause: causeCordoned, Problem: "it is cordoned: it takes no new pods.", Remedy: "kubectl uncordon " + n.Name})
	}
	return out
}

var pressure = map[corev1.NodeConditionType]string{
	corev1.NodeMemoryPressure: "memory", corev1.NodeDiskPressure: "disk space", corev1.NodePIDPressure: "process numbers",
}

func leaseFact(s *Snapshot, n *corev1.Node) []Fact {
	lease, presence := get[*coordinationv1.Lease](s, corev1.NamespaceNodeLease, n.Name)
	switch {
	case presence == Absent:
		return []Fact{{Text: "it has no lease"}}
	case presence == Found && lease.Spec.RenewTime != nil:
		ref := refTo(lease)
		return []Fact{{Text: "its lease was renewed " + age(s.Now.Sub(lease.Spec.RenewTime.Time)) + " ago", Object: &ref}}
	}
	return nil
}

// podOnBadNode explains a pod that is not ready because its node is not.
func podOnBadNode(s *Snapshot, p *corev1.Pod) []Finding {
	if p.Spec.NodeName == "" || podOver(p) || p.DeletionTimestamp != nil || podReady(p) {
		return nil
	}
	n, presence := get[*corev1.Node](s, "", p.Spec.NodeName)
	if presence != Found {
		return nil
	}
	found := node(s, n)
	if !slices.ContainsFunc(found, func(f Finding) bool { return f.Cause == causeUnreachable || f.Cause == causeNotReady }) {
		return nil
	}
	return []Finding{linked(causeOnBadNode, "it is on node/"+n.Name+", which is not ready.", Link{Object: refTo(n), Only: []string{causeUnreachable, causeNotReady, causeNetwork}})}
}

const causeOnBadNode = "pod-on-node-not-ready"
