package devices

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/kubelet/spec"
	"github.com/knarr-project/knarr/internal/kubelet/topology"
)

// provider gives hints about the NUMA nodes of devices.
type provider struct{ m *Manager }

// Provider returns the manager's part in the placement on NUMA nodes.
func (m *Manager) Provider() topology.Provider { return provider{m} }

// Hints implements topology.Provider.
func (p provider) Hints(pod *corev1.Pod, c *corev1.Container) topology.Hints {
	hints := topology.Hints{}
	// The error is always nil.
	_ = p.m.each(pod, c, func(resource string, count int64) error {
		hints[resource] = p.m.hints(pod, c, resource, count)
		return nil
	})
	if len(hints) == 0 {
		return nil
	}
	return hints
}

// PodHints implements topology.Provider.
func (p provider) PodHints(pod *corev1.Pod) topology.Hints {
	counts := p.m.podCounts(pod)
	if len(counts) == 0 {
		return nil
	}
	hints := topology.Hints{}
	for resource, count := range counts {
		hints[resource] = p.m.hints(pod, nil, resource, count)
	}
	return hints
}

// Allocate implements topology.Provider. The plugin is asked later, by the pod's worker.
func (p provider) Allocate(pod *corev1.Pod, c *corev1.Container, affinity topology.Hint) error {
	if affinity.Nodes == 0 {
		return p.m.Reserve(pod, c, nil)
	}
	return p.m.Reserve(pod, c, affinity.Nodes.IDs())
}

// Release implements topology.Provider.
func (p provider) Release(pod types.UID) {
	if err := p.m.Release(pod); err != nil {
		p.m.Log.Warn("cannot write the checkpoint of devices", "error", err)
	}
}

// Pods implements topology.Provider.
func (p provider) Pods() []types.UID {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	return slices.Collect(maps.Keys(p.m.pods))
}

// podCounts returns the most devices that the pod holds at once, by resource.
func (m *Manager) podCounts(pod *corev1.Pod) map[string]int64 {
	kept, most := map[string]int64{}, map[string]int64{}
	count := func(c *corev1.Container, stays bool) {
		// The error is always nil.
		_ = m.each(pod, c, func(resource string, n int64) error {
			most[resource] = max(most[resource], kept[resource]+n)
			if stays {
				kept[resource] += n
			}
			return nil
		})
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		count(c, spec.IsSidecar(c))
	}
	for i := range pod.Spec.Containers {
		count(&pod.Spec.Containers[i], true)
	}
	return most
}

// hints returns the sets of NUMA nodes that have enough free devices. It returns nil if no device
// is on a NUMA node, and an empty list if there are too few. c is nil for the whole pod.
func (m *Manager) hints(pod *corev1.Pod, c *corev1.Container, resource string, count int64) []topology.Hint {
	m.mu.Lock()
	defer m.mu.Unlock()
	if have := m.reserved(pod, c, resource); have != nil {
		return m.heldHints(have)
	}
	var free map[string]bool
	if c == nil {
		c = &corev1.Container{}
	}
	if o, err := m.offer(pod, c, resource, count, nil); err == nil {
		free = map[string]bool{}
		for _, id := range o.available() {
			free[id] = true
		}
	}
	var all topology.NodeSet
	r := m.resources[resource]
	for _, d := range r.devices {
		all |= topology.Nodes(d.nodes...)
	}
	if all == 0 {
		return nil
	}
	hints := []topology.Hint{}
	fewest := all.Len()
	all.Subsets(func(set topology.NodeSet) {
		healthy, usable := int64(0), int64(0)
		for id, d := range r.devices {
			if !d.healthy || topology.Nodes(d.nodes...)&set == 0 {
				continue
			}
			healthy++
			if free[id] {
				usable++
			}
		}
		if healthy >= count {
			fewest = min(fewest, set.Len())
		}
		if usable >= count {
			hints = append(hints, topology.Hint{Nodes: set})
		}
	})
	for i := range hints {
		hints[i].Preferred = hints[i].Nodes.Len() == fewest
	}
	return hints
}

// reserved returns what the container has, or what all containers of the pod have. The caller holds
// m.mu.
func (m *Manager) reserved(pod *corev1.Pod, c *corev1.Container, resource string) []*allocation {
	var out []*allocation
	for name, byResource := range m.pods[pod.UID] {
		if a := byResource[resource]; a != nil && (c == nil || c.Name == name) {
			out = append(out, a)
		}
	}
	return out
}

// heldHints returns the only hint for devices that are chosen already: their nodes.
func (m *Manager) heldHints(held []*allocation) []topology.Hint {
	var set topology.NodeSet
	for _, a := range held {
		for _, nodes := range a.nodes {
			set |= topology.Nodes(nodes...)
		}
	}
	if set == 0 {
		return nil
	}
	return []topology.Hint{{Nodes: set, Preferred: true}}
}
