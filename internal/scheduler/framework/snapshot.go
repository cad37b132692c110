package framework

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Snapshot is the cluster at the time of one decision. It is immutable: With makes a changed copy.
type Snapshot struct {
	Nodes  []*NodeInfo    // with zones alternating
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
	// anyAffinity and anyAntiAffinity are the nodes with pods that have such terms.
	anyAffinity, anyAntiAffinity []*NodeInfo
}

// NewSnapshot takes ownership of nodes.
func NewSnapshot(nodes []*NodeInfo, namespaceLabels func(string) labels.Set, selectors func(*corev1.Pod) labels.Selector) *Snapshot {
	s := &Snapshot{Nodes: nodes, byName: make(map[string]int, len(nodes)), NamespaceLabels: namespaceLabels, Selectors: selectors}
	for i, n := range nodes {
		s.byName[n.Name()] = i
	}
	s.findAffinity()
	return s
}

// Node finds a node by name.
func (s *Snapshot) Node(name string) (*NodeInfo, bool) {
	i, ok := s.byName[name]
	if !ok {
		return nil, false
	}
	return s.Nodes[i], true
}

// NodesWithAffinity returns the nodes with pods that have affinity terms of any kind.
func (s *Snapshot) NodesWithAffinity() []*NodeInfo { return s.anyAffinity }

// NodesWithAntiAffinity returns the nodes with pods that have required anti-affinity.
func (s *Snapshot) NodesWithAntiAffinity() []*NodeInfo { return s.anyAntiAffinity }

// With returns the snapshot with some nodes replaced. It ignores nodes that it does not have.
func (s *Snapshot) With(nodes ...*NodeInfo) *Snapshot {
	with := *s
	with.Nodes = slices.Clone(s.Nodes)
	affine := false
	for _, n := range nodes {
		if n.Node == nil {
			continue
		}
		if i, ok := s.byName[n.Name()]; ok {
			affine = affine || hasAffinity(with.Nodes[i]) || hasAffinity(n)
			with.Nodes[i] = n
		}
	}
	if affine {
		with.findAffinity()
	}
	return &with
}

func hasAffinity(n *NodeInfo) bool { return len(n.WithAffinity) > 0 || len(n.WithAntiAffinity) > 0 }

// findAffinity computes the nodes with pods that have affinity terms. The lists do not change
// afterwards, so snapshots share them.
func (s *Snapshot) findAffinity() {
	s.anyAffinity, s.anyAntiAffinity = nil, nil
	for _, n := range s.Nodes {
		if len(n.WithAffinity) > 0 {
			s.anyAffinity = append(s.anyAffinity, n)
		}
		if len(n.WithAntiAffinity) > 0 {
			s.anyAntiAffinity = append(s.anyAntiAffinity, n)
		}
	}
}
