package framework

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Snapshot is the cluster as one decision sees it. Immutable: With makes another one.
type Snapshot struct {
	Nodes  []*NodeInfo // in a fair order: zones take turns
	byName map[string]int
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
		if len(n.WithAffinity) > 0 {
			s.anyAffinity = append(s.anyAffinity, n)
		}
		if len(n.WithAntiAffinity) > 0 {
			s.anyAntiAffinity = append(s.anyAntiAffinity, n)
		}
	}
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

// With is the snapshot with one node replaced.
func (s *Snapshot) With(node *NodeInfo) *Snapshot {
	nodes := make([]*NodeInfo, len(s.Nodes))
	copy(nodes, s.Nodes)
	nodes[s.byName[node.Name()]] = node
	with := NewSnapshot(nodes, s.NamespaceLabels, s.Selectors)
	with.Storage, with.Devices = s.Storage, s.Devices
	return with
}
