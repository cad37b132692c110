package framework

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Snapshot is the cluster at the time of one decision. It is immutable: Next and With make changed
// copies.
type Snapshot struct {
	Nodes  NodeList       // with zones alternating
	byName map[string]int // shared by snapshots of the same nodes
	// NamespaceLabels returns a namespace's labels, for namespace selectors.
	NamespaceLabels func(namespace string) labels.Set
	// Selectors returns the selectors of the Services and workloads of a pod, for default
	// spreading.
	Selectors func(pod *corev1.Pod) labels.Selector
	// Storage returns the cluster's volumes. The first pod with claims opens them. It is nil where
	// there are no volumes.
	Storage func() (Storage, error)
	// Devices returns the dynamic resources. The first pod with resource claims opens them. It is
	// nil where there are none.
	Devices func() (Devices, error)

	mark Mark
	// base is the snapshot of the cluster from which With made this one; nil for a snapshot of the
	// cluster.
	base *Snapshot
}

// NewSnapshot begins a history of the cluster. It takes ownership of the slice.
func NewSnapshot(nodes []*NodeInfo, namespaceLabels func(string) labels.Set, selectors func(*corev1.Pod) labels.Selector) *Snapshot {
	for i, n := range nodes {
		if n.at != i { // it may be part of another snapshot, with another index
			moved := *n
			moved.at = i
			nodes[i] = &moved
		}
	}
	s := &Snapshot{Nodes: NewNodeList(nodes), byName: make(map[string]int, len(nodes)), NamespaceLabels: namespaceLabels, Selectors: selectors}
	for i, n := range nodes {
		s.byName[n.Name()] = i
	}
	s.mark.history = &history{}
	return s
}

// IndexOf finds the index of a node by its name.
func (s *Snapshot) IndexOf(name string) (int, bool) {
	i, ok := s.byName[name]
	return i, ok
}

// Node finds a node by name.
func (s *Snapshot) Node(name string) (*NodeInfo, bool) {
	i, ok := s.byName[name]
	if !ok {
		return nil, false
	}
	return s.Nodes.At(i), true
}

// Next returns the cluster's next snapshot, in which some nodes changed. It takes ownership of
// them. Only the owner of the cluster calls it, on the latest snapshot. It ignores nodes that the
// snapshot does not have.
func (s *Snapshot) Next(nodes ...*NodeInfo) *Snapshot {
	changes := s.changes(nodes)
	next := *s
	next.Nodes = s.Nodes.with(changes)
	next.mark.length = s.mark.history.append(changes, s.Nodes.Len())
	return &next
}

// With supposes other pods on some nodes, as preemption does. It takes ownership of the nodes, and
// ignores nodes that the snapshot does not have.
func (s *Snapshot) With(nodes ...*NodeInfo) *Snapshot {
	with := *s
	with.Nodes = s.Nodes.suppose(s.changes(nodes))
	if with.base == nil {
		with.base = s
	}
	return &with
}

func (s *Snapshot) changes(nodes []*NodeInfo) []nodeChange {
	changes := make([]nodeChange, 0, len(nodes))
	for _, n := range nodes {
		if n.Node == nil {
			continue
		}
		if i, ok := s.byName[n.Name()]; ok {
			n.at = i
			changes = append(changes, nodeChange{i, n})
		}
	}
	return changes
}
