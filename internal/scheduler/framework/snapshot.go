package framework

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Snapshot is the cluster as one decision sees it. Immutable: With makes another one.
type Snapshot struct {
	Nodes  []*NodeInfo    // in a fair order: zones take turns
	byName map[string]int // shared by snapshots of the same nodes
	// NamespaceLabels gives a namespace's labels, for namespace selectors.
	NamespaceLabels func(namespace string) labels.Set
	// Selectors gives the selectors of the Services and workloads that a pod belongs to, for default spreading.
	Selectors func(pod *corev1.Pod) labels.Selector
	// Storage is what is known of volumes, opened when a pod with claims is seen first; nil where there is nothing to know.
	Storage func() (Storage, error)
	// Devices is what is known of dynamic resources, opened when a pod with resource claims is seen first; nil as above.
	Devices func() (Devices, error)
	// anyAffinity and anyAntiAffinity are the nodes that have pods with such terms.
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

// NodesWithAffinity are the nodes that have pods with affinity terms of any sort.
func (s *Snapshot) NodesWithAffinity() []*NodeInfo { return s.anyAffinity }

// NodesWithAntiAffinity are the nodes that have pods with required anti-affinity.
func (s *Snapshot) NodesWithAntiAffinity() []*NodeInfo { return s.anyAntiAffinity }

// With is the snapshot with some nodes replaced; those that it does not have are left out.
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

// findAffinity looks for the nodes that have pods with affinity terms. The lists that it makes are not changed any more, so snapshots share them.
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
