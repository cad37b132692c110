package plugins

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// The hints of this file say whether a change may end a plugin's refusal, as upstream's
// QueueingHintFns. A hint may be too generous, but a pod that a hint keeps waiting must not fit.

// nodesOf returns the nodes of a change; both are nil if it is about another kind.
func nodesOf(c *framework.Change) (old, now *corev1.Node) {
	old, _ = c.Old.(*corev1.Node)
	now, _ = c.New.(*corev1.Node)
	return old, now
}

// podsOf returns the bound pods of a change; both are nil if it is about another kind.
func podsOf(c *framework.Change) (old, now *framework.PodInfo) {
	old, _ = c.Old.(*framework.PodInfo)
	now, _ = c.New.(*framework.PodInfo)
	return old, now
}

// becomes reports whether a node meets a condition that it did not meet before.
func becomes(c *framework.Change, meets func(*corev1.Node) bool) bool {
	old, now := nodesOf(c)
	return now != nil && meets(now) && (old == nil || !meets(old))
}

func (nodeUnschedulable) Helps(_ *framework.PodInfo, c *framework.Change) bool {
	return becomes(c, func(n *corev1.Node) bool { return !n.Spec.Unschedulable })
}

func (p taintToleration) Helps(pod *framework.PodInfo, c *framework.Change) bool {
	return becomes(c, func(n *corev1.Node) bool { return p.Filter(nil, pod, &framework.NodeInfo{Node: n}).OK() })
}

func (p nodeAffinity) Helps(pod *framework.PodInfo, c *framework.Change) bool {
	return becomes(c, func(n *corev1.Node) bool { return p.Filter(nil, pod, &framework.NodeInfo{Node: n}).OK() })
}

func (p *addedAffinity) Helps(pod *framework.PodInfo, c *framework.Change) bool {
	return becomes(c, func(n *corev1.Node) bool { return p.Filter(nil, pod, &framework.NodeInfo{Node: n}).OK() })
}

// Helps needs a free port: the pod that ends has one of the pod's ports, or the node is new.
func (nodePorts) Helps(pod *framework.PodInfo, c *framework.Change) bool {
	gone, _ := podsOf(c)
	if gone == nil {
		return true
	}
	return slices.ContainsFunc(gone.Ports, func(freed framework.HostPort) bool {
		return slices.ContainsFunc(pod.Ports, freed.Conflicts)
	})
}

// Helps needs more of a requested resource, on a node that is large enough for the pod.
func (resourcesFit) Helps(pod *framework.PodInfo, c *framework.Change) bool {
	oldPod, pods := podsOf(c)
	if pods != nil && oldPod != nil {
		return moreOf(&pod.Requests, &pods.Requests, &oldPod.Requests)
	}
	old, now := nodesOf(c)
	if now == nil {
		return true
	}
	have := framework.ResourcesOf(now.Status.Allocatable)
	if old == nil {
		return enough(&pod.Requests, &have)
	}
	had := framework.ResourcesOf(old.Status.Allocatable)
	return enough(&pod.Requests, &have) && moreOf(&pod.Requests, &had, &have)
}

// Helps ignores the resources that do not count.
func (f *configuredFit) Helps(pod *framework.PodInfo, c *framework.Change) bool {
	return f.resourcesFit.Helps(f.without(pod), c)
}

// moreOf reports whether a requested resource grows from before to after.
func moreOf(requests, before, after *framework.Resources) bool {
	if requests.MilliCPU > 0 && after.MilliCPU > before.MilliCPU || requests.Memory > 0 && after.Memory > before.Memory ||
		requests.EphemeralStorage > 0 && after.EphemeralStorage > before.EphemeralStorage || after.Pods > before.Pods {
		return true
	}
	for name, want := range requests.Scalar {
		if want > 0 && after.Scalar[name] > before.Scalar[name] {
			return true
		}
	}
	return false
}

func enough(requests, have *framework.Resources) bool {
	if requests.MilliCPU > have.MilliCPU || requests.Memory > have.Memory || requests.EphemeralStorage > have.EphemeralStorage || have.Pods < 1 {
		return false
	}
	for name, want := range requests.Scalar {
		if want > have.Scalar[name] {
			return false
		}
	}
	return true
}

// Helps needs a pod that comes near, or one that leaves and was in the way.
func (interPodAffinity) Helps(pod *framework.PodInfo, c *framework.Change) bool {
	if old, now := nodesOf(c); old != nil || now != nil {
		return keysChange(pod, old, now)
	}
	old, now := podsOf(c)
	near := func(o *framework.PodInfo) bool { return mayMatchAll(pod.RequiredAffinity, o) }
	away := func(o *framework.PodInfo) bool {
		return len(pod.RequiredAntiAffinity) > 0 && mayMatchAll(pod.RequiredAntiAffinity, o) ||
			slices.ContainsFunc(o.RequiredAntiAffinity, func(t framework.Term) bool { return mayMatch(&t, pod) })
	}
	switch {
	case old != nil && now != nil:
		return !near(old) && near(now) || away(old) && !away(now)
	case now != nil:
		return near(now)
	case old != nil:
		return away(old)
	default:
		return true
	}
}

// keysChange reports whether a node gets, loses or changes a topology key of the pod's terms.
func keysChange(pod *framework.PodInfo, old, now *corev1.Node) bool {
	switch {
	case now == nil:
		return false
	case old == nil:
		return true
	}
	for _, terms := range [][]framework.Term{pod.RequiredAffinity, pod.RequiredAntiAffinity} {
		for i := range terms {
			if key := terms[i].TopologyKey; old.Labels[key] != now.Labels[key] {
				return true
			}
		}
	}
	// Without terms of its own, the pod is kept away by those of others.
	return len(pod.RequiredAffinity)+len(pod.RequiredAntiAffinity) == 0
}

// mayMatch ignores the labels of namespaces: a namespace selector may match.
func mayMatch(t *framework.Term, o *framework.PodInfo) bool {
	return (t.NamespaceSelector != nil || t.Namespaces[o.Pod.Namespace]) && t.Selector.Matches(labels.Set(o.Pod.Labels))
}

func mayMatchAll(terms []framework.Term, o *framework.PodInfo) bool {
	for i := range terms {
		if !mayMatch(&terms[i], o) {
			return false
		}
	}
	return len(terms) > 0
}

// Helps needs a pod that counts for a constraint, or a node that makes or changes a domain.
func (topologySpread) Helps(pod *framework.PodInfo, c *framework.Change) bool {
	constraints := pod.Pod.Spec.TopologySpreadConstraints
	if len(constraints) == 0 {
		return true // the default ones, which depend on Services
	}
	if old, now := nodesOf(c); old != nil || now != nil {
		return domainsChange(constraints, old, now)
	}
	old, now := podsOf(c)
	counts := func(o *framework.PodInfo, c *corev1.TopologySpreadConstraint) bool {
		selector, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
		return o != nil && o.Pod.Namespace == pod.Pod.Namespace && (err != nil || selector.Matches(labels.Set(o.Pod.Labels)))
	}
	return old == nil && now == nil || slices.ContainsFunc(constraints, func(c corev1.TopologySpreadConstraint) bool {
		if old != nil && now != nil {
			return counts(old, &c) != counts(now, &c)
		}
		return counts(old, &c) || counts(now, &c)
	})
}

func domainsChange(constraints []corev1.TopologySpreadConstraint, old, now *corev1.Node) bool {
	hasAll := func(n *corev1.Node) bool {
		return n != nil && !slices.ContainsFunc(constraints, func(c corev1.TopologySpreadConstraint) bool {
			_, ok := n.Labels[c.TopologyKey]
			return !ok
		})
	}
	if old == nil || now == nil || !hasAll(old) || !hasAll(now) {
		return hasAll(old) != hasAll(now)
	}
	return !equality.Semantic.DeepEqual(old.Spec.Taints, now.Spec.Taints) || slices.ContainsFunc(constraints, func(c corev1.TopologySpreadConstraint) bool {
		return old.Labels[c.TopologyKey] != now.Labels[c.TopologyKey]
	})
}
