package cpus

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/kubelet/machine"
	"github.com/knarr-project/knarr/internal/kubelet/topology"
)

const resourceName = string(corev1.ResourceCPU)

// Hints implements topology.Provider.
func (m *Manager) Hints(pod *corev1.Pod, c *corev1.Container) topology.Hints {
	n := wanted(pod, c)
	if !m.Static() || n == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if set, ok := m.state.entries[pod.UID][c.Name]; ok {
		return m.known(set, n)
	}
	return topology.Hints{resourceName: m.hints(n, m.reusable(pod))}
}

// PodHints implements topology.Provider.
func (m *Manager) PodHints(pod *corev1.Pod) topology.Hints {
	n := wantedByPod(pod)
	if !m.Static() || n == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if containers := m.state.entries[pod.UID]; len(containers) > 0 {
		var all machine.CPUSet
		for _, set := range containers {
			all = all.Union(set)
		}
		return m.known(all, all.Len())
	}
	return topology.Hints{resourceName: m.hints(n, machine.CPUSet{})}
}

// known returns the hint of CPUs that are allocated already. No hint fits if their number differs
// from the request.
func (m *Manager) known(set machine.CPUSet, n int) topology.Hints {
	if set.Len() != n {
		return topology.Hints{resourceName: {}}
	}
	return topology.Hints{resourceName: {{Nodes: m.nodesOf(set), Preferred: true}}}
}

func (m *Manager) nodesOf(set machine.CPUSet) topology.NodeSet {
	var nodes topology.NodeSet
	for _, id := range set.List() {
		nodes |= topology.Nodes(m.layout.CPUs[id].Node)
	}
	return nodes
}

// hints lists all sets of NUMA nodes that have n free CPUs and all reusable ones. Preferred are the
// sets with as few nodes as an empty machine needs; with align-by-socket, those within the fewest
// sockets.
func (m *Manager) hints(n int, reuse machine.CPUSet) []topology.Hint {
	free := m.free().Union(reuse)
	least, leastSockets := m.fewest(n)
	list := []topology.Hint{}
	m.all().Subsets(func(s topology.NodeSet) {
		cpus := m.cpusOf(s)
		if !reuse.Within(cpus) || m.usable(free.And(cpus)).Len() < n {
			return
		}
		h := topology.Hint{Nodes: s, Preferred: s.Len() == least}
		if m.alignBySocket {
			h.Preferred = len(m.socketsOf(s)) == leastSockets
		}
		list = append(list, h)
	})
	return list
}

// fewest is the number of NUMA nodes, and of sockets, that n CPUs need on an empty machine.
func (m *Manager) fewest(n int) (nodes, sockets int) {
	nodes, sockets = m.all().Len(), len(m.socketsOf(m.all()))
	m.all().Subsets(func(s topology.NodeSet) {
		if m.cpusOf(s).Len() >= n {
			nodes, sockets = min(nodes, s.Len()), min(sockets, len(m.socketsOf(s)))
		}
	})
	return nodes, sockets
}

func (m *Manager) all() topology.NodeSet {
	var s topology.NodeSet
	for id := range m.layout.Nodes {
		s |= topology.Nodes(id)
	}
	return s
}
