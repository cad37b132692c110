package scheduler

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// cluster is the scheduler's picture of the nodes and their pods, assumed pods included. One
// goroutine owns it. It copies a NodeInfo before a change, so snapshots stay unchanged.
type cluster struct {
	// Node is nil for a node that has pods but is not known yet.
	nodes map[string]*framework.NodeInfo
	where map[types.UID]placed
	// assumed are the pods that are decided, but not yet seen as bound.
	assumed map[types.UID]*framework.PodInfo
	// order lists the nodes with zones alternating; nil if it must be computed again.
	order    []string
	snapshot *framework.Snapshot // the latest one
	// edited are the nodes that changed since the latest snapshot. All other NodeInfos are part of
	// a snapshot and must be cloned before a change.
	edited map[string]bool

	namespaceLabels func(string) labels.Set
	selectors       func(*corev1.Pod) labels.Selector
	storage         func() (framework.Storage, error)
	devices         func() (framework.Devices, error)
}

type placed struct {
	node string
	info *framework.PodInfo
}

func newCluster(namespaceLabels func(string) labels.Set, selectors func(*corev1.Pod) labels.Selector) *cluster {
	return &cluster{
		nodes: map[string]*framework.NodeInfo{}, where: map[types.UID]placed{}, assumed: map[types.UID]*framework.PodInfo{},
		edited: map[string]bool{}, namespaceLabels: namespaceLabels, selectors: selectors,
	}
}

// edit returns the NodeInfo for a change.
func (c *cluster) edit(name string) *framework.NodeInfo {
	n := c.nodes[name]
	switch {
	case n == nil:
		n = framework.NewNodeInfo(nil)
	case c.edited[name]:
		return n
	default:
		n = n.Clone()
	}
	c.nodes[name] = n
	c.edited[name] = true
	return n
}

// setNode adds or replaces a node. It returns the events that may matter to waiting pods.
func (c *cluster) setNode(node *corev1.Node) framework.Events {
	n := c.edit(node.Name)
	old := n.Node
	n.SetNode(node)
	if old == nil {
		c.order = nil
		return framework.NodeAdded
	}
	var e framework.Events
	if !maps.Equal(old.Labels, node.Labels) {
		c.order = nil
		e |= framework.NodeLabels
	}
	if old.Spec.Unschedulable != node.Spec.Unschedulable || !equality.Semantic.DeepEqual(old.Spec.Taints, node.Spec.Taints) {
		e |= framework.NodeTaints
	}
	if !equality.Semantic.DeepEqual(old.Status.Allocatable, node.Status.Allocatable) {
		e |= framework.NodeAllocatable
	}
	if !slices.Equal(old.Status.DeclaredFeatures, node.Status.DeclaredFeatures) {
		e |= framework.NodeFeatures
	}
	return e
}

func (c *cluster) removeNode(name string) {
	c.order = nil
	n := c.edit(name)
	n.SetNode(nil)
	if len(n.Pods) == 0 {
		delete(c.nodes, name)
	}
}

// setPod counts a bound pod on its node. It replaces an assumed one.
func (c *cluster) setPod(info *framework.PodInfo) {
	c.removePod(info.Pod.UID)
	name := info.Pod.Spec.NodeName
	c.edit(name).AddPod(info)
	c.where[info.Pod.UID] = placed{name, info}
}

// assume counts a pod on a node before its binding is written.
func (c *cluster) assume(info *framework.PodInfo, node string) {
	c.edit(node).AddPod(info)
	c.where[info.Pod.UID] = placed{node, info}
	c.assumed[info.Pod.UID] = info
}

// confirm ends the assumption of a pod that its binding did not change otherwise; old is the pod
// before the binding. The pod keeps its PodInfo, so its node does not change. confirm reports
// whether the pod counts.
func (c *cluster) confirm(old, pod *corev1.Pod) bool {
	info, ok := c.assumed[pod.UID]
	if !ok || info.Pod != old || c.where[pod.UID].node != pod.Spec.NodeName || old.DeletionTimestamp != pod.DeletionTimestamp ||
		!maps.Equal(old.Labels, pod.Labels) {
		return false
	}
	delete(c.assumed, pod.UID)
	return true
}

// removePod removes a pod from its node, and reports whether it was on one.
func (c *cluster) removePod(uid types.UID) bool {
	at, ok := c.where[uid]
	if !ok {
		return false
	}
	delete(c.where, uid)
	delete(c.assumed, uid)
	n := c.edit(at.node)
	n.RemovePod(at.info)
	if n.Node == nil && len(n.Pods) == 0 {
		delete(c.nodes, at.node)
	}
	return true
}

// lift takes a pod off its node until putBack is called.
func (c *cluster) lift(pod *corev1.Pod) (putBack func()) {
	at, ok := c.where[pod.UID]
	if !ok {
		return func() {}
	}
	_, assumed := c.assumed[pod.UID]
	c.removePod(pod.UID)
	return func() {
		if assumed {
			c.assume(at.info, at.node)
		} else {
			c.setPod(at.info)
		}
	}
}

// takeSnapshot returns the current snapshot.
func (c *cluster) takeSnapshot() *framework.Snapshot {
	switch {
	case c.order == nil:
		c.order = c.alternatingZones()
		nodes := make([]*framework.NodeInfo, len(c.order))
		for i, name := range c.order {
			nodes[i] = c.nodes[name]
		}
		c.snapshot = framework.NewSnapshot(nodes, c.namespaceLabels, c.selectors)
	case len(c.edited) > 0: // usually one: the node on which the last pod was assumed
		changed := make([]*framework.NodeInfo, 0, len(c.edited))
		for name := range c.edited {
			if n := c.nodes[name]; n != nil {
				changed = append(changed, n)
			}
		}
		c.snapshot = c.snapshot.Next(changed...)
	default:
		return c.snapshot
	}
	c.snapshot.Storage, c.snapshot.Devices = c.storage, c.devices
	if len(c.edited) > 64 { // a map that was large stays slow to walk
		c.edited = map[string]bool{}
	}
	clear(c.edited)
	return c.snapshot
}

// namespacesChanged makes the next snapshot count pods again where labels of namespaces matter.
func (c *cluster) namespacesChanged() {
	if c.snapshot != nil {
		c.snapshot.NamespacesChanged()
	}
}

// alternatingZones lists the nodes so that zones alternate: a search that stops early has seen all
// zones.
func (c *cluster) alternatingZones() []string {
	zones := map[string][]string{}
	for name, n := range c.nodes {
		if n.Node != nil {
			zone := n.Node.Labels[corev1.LabelTopologyRegion] + "/" + n.Node.Labels[corev1.LabelTopologyZone]
			zones[zone] = append(zones[zone], name)
		}
	}
	names := slices.Sorted(maps.Keys(zones))
	for _, zone := range names {
		slices.Sort(zones[zone])
	}
	out := make([]string, 0, len(c.nodes))
	for i := 0; ; i++ {
		before := len(out)
		for _, zone := range names {
			if i < len(zones[zone]) {
				out = append(out, zones[zone][i])
			}
		}
		if len(out) == before {
			return out
		}
	}
}
