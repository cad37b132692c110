package memory

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/knarr-project/knarr/internal/kubelet/machine"
	"github.com/knarr-project/knarr/internal/kubelet/spec"
	"github.com/knarr-project/knarr/internal/kubelet/topology"
)

// Names of policies (KubeletConfiguration, memoryManagerPolicy).
const (
	PolicyNone   = "None"
	PolicyStatic = "Static"
)

// Config configures a Manager. The names and values are those of KubeletConfiguration.
type Config struct {
	Policy string // default "None"
	Layout *machine.Layout
	// Reserved is reservedMemory; NodeReserved is what the node's allocatable leaves out.
	Reserved     []kubeletconfig.MemoryReservation
	NodeReserved corev1.ResourceList
	// StateFile is the path of memory_manager_state.
	StateFile string
	// Observe counts an allocation that pins memory, or failed to. May be nil.
	Observe func(err error)
}

// Manager owns the assignment of memory to containers. It is safe for concurrent use.
type Manager struct {
	Config
	empty map[int]*nodeState

	mu    sync.Mutex
	all   blocks
	nodes map[int]*nodeState // empty with all blocks
}

// New restores the assignment from the state file, or begins without blocks.
func New(c Config) (*Manager, error) {
	if c.Policy == "" {
		c.Policy = PolicyNone
	}
	if c.Policy != PolicyNone && c.Policy != PolicyStatic {
		return nil, fmt.Errorf("memoryManagerPolicy: %q is not one of %s, %s", c.Policy, PolicyNone, PolicyStatic)
	}
	m := &Manager{Config: c, all: blocks{}}
	if c.Policy == PolicyStatic {
		if len(c.Reserved) == 0 {
			return nil, errors.New("memoryManagerPolicy Static: the policy needs reservedMemory")
		}
		if err := checkReserved(c.Reserved, c.NodeReserved); err != nil {
			return nil, err
		}
		var err error
		if m.empty, err = emptyMachine(c.Layout, c.Reserved); err != nil {
			return nil, err
		}
	}
	return m, m.restore()
}

// restore reads the state file, and refuses one of another policy or machine.
func (m *Manager) restore() error {
	old, err := load(m.StateFile)
	if err != nil {
		return err
	}
	remedy := fmt.Sprintf("drain the node, remove %s and start again", m.StateFile)
	if old != nil && old.PolicyName != m.Policy {
		return fmt.Errorf("memoryManagerPolicy: configured policy %q differs from state checkpoint policy %q; %s", m.Policy, old.PolicyName, remedy)
	}
	if old != nil {
		m.all = old.Entries
	}
	if m.nodes, err = fill(m.empty, m.all); err != nil {
		return fmt.Errorf("memory manager state: %w; %s", err, remedy)
	}
	if old == nil && m.Policy == PolicyNone {
		return nil // a node that assigns no memory needs no file
	}
	if old == nil {
		return save(m.StateFile, file{PolicyName: m.Policy, MachineState: m.nodes})
	}
	for id, n := range old.MachineState {
		for name, t := range n.Memory {
			if now := m.nodes[id]; now == nil || now.Memory[name] == nil || now.Memory[name].Allocatable != t.Allocatable {
				return fmt.Errorf("memory manager state: NUMA node %d had %d bytes of %s to allocate, which has changed; %s", id, t.Allocatable, name, remedy)
			}
		}
	}
	return nil
}

// Static reports whether containers can be bound to memory.
func (m *Manager) Static() bool { return m.Policy == PolicyStatic }

// Nodes returns the NUMA nodes whose memory the container may use; empty means all.
func (m *Manager) Nodes(pod types.UID, container string) topology.NodeSet {
	m.mu.Lock()
	defer m.mu.Unlock()
	var s topology.NodeSet
	for _, b := range m.all[string(pod)][container] {
		s |= b.nodes()
	}
	return s
}

// Block is an amount of memory or huge pages on NUMA nodes, in bytes.
type Block struct {
	Type  corev1.ResourceName
	Size  uint64
	Nodes []int
}

// Blocks returns the memory that a container is bound to.
func (m *Manager) Blocks(pod types.UID, container string) (out []Block) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.all[string(pod)][container] {
		out = append(out, Block{b.Type, b.Size, slices.Clone(b.Affinity)})
	}
	return out
}

// Allocatable returns what containers can be bound to, for each NUMA node.
func (m *Manager) Allocatable() (out []Block) {
	for _, id := range slices.Sorted(maps.Keys(m.empty)) {
		n := m.empty[id]
		for _, name := range slices.Sorted(maps.Keys(n.Memory)) {
			if t := n.Memory[name]; t.Allocatable > 0 {
				out = append(out, Block{name, t.Allocatable, []int{id}})
			}
		}
	}
	return out
}

// request lists a container's memory and huge pages, if it can be bound to nodes. Pods with
// pod-level resources are not.
func (m *Manager) request(pod *corev1.Pod, containers ...*corev1.Container) map[corev1.ResourceName]uint64 {
	if !m.Static() || spec.QOS(pod) != corev1.PodQOSGuaranteed || resourcehelper.IsPodLevelResourcesSet(pod) {
		return nil
	}
	out := map[corev1.ResourceName]uint64{}
	for _, c := range containers {
		for name, q := range c.Resources.Requests {
			if isMemory(name) && q.Value() > 0 {
				out[name] += uint64(q.Value())
			}
		}
	}
	return out
}

// podRequest is what the whole pod needs at once. Init containers end before the others start.
func (m *Manager) podRequest(pod *corev1.Pod) map[corev1.ResourceName]uint64 {
	out, sidecars := map[corev1.ResourceName]uint64{}, []*corev1.Container{}
	raise := func(list []*corev1.Container) {
		for name, size := range m.request(pod, list...) {
			out[name] = max(out[name], size)
		}
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		raise(append(slices.Clip(sidecars), c))
		if spec.IsSidecar(c) {
			sidecars = append(sidecars, c)
		}
	}
	for i := range pod.Spec.Containers {
		sidecars = append(sidecars, &pod.Spec.Containers[i])
	}
	raise(sidecars)
	return out
}

// Hints implements topology.Provider.
func (m *Manager) Hints(pod *corev1.Pod, c *corev1.Container) topology.Hints {
	request := m.request(pod, c)
	if len(request) == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if list, ok := m.all[string(pod.UID)][c.Name]; ok {
		return known(list)
	}
	return m.hints(pod, request)
}

// PodHints implements topology.Provider.
func (m *Manager) PodHints(pod *corev1.Pod) topology.Hints {
	request := m.podRequest(pod)
	if len(request) == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []block
	for _, own := range m.all[string(pod.UID)] {
		list = append(list, own...)
	}
	if len(list) > 0 {
		return known(list)
	}
	return m.hints(pod, request)
}

// known returns the hints of blocks that are allocated already.
func known(list []block) topology.Hints {
	nodes := map[string]topology.NodeSet{}
	for _, b := range list {
		nodes[string(b.Type)] |= b.nodes()
	}
	out := topology.Hints{}
	for name, s := range nodes {
		out[name] = []topology.Hint{{Nodes: s, Preferred: true}}
	}
	return out
}

// hints lists, for each resource, the sets of nodes that have room for all of them. Preferred are
// the sets with as few nodes as an empty machine needs.
func (m *Manager) hints(pod *corev1.Pod, request map[corev1.ResourceName]uint64) topology.Hints {
	least := map[corev1.ResourceName]int{}
	var fitting []topology.NodeSet
	m.everyNode().Subsets(func(s topology.NodeSet) {
		fits := joins(m.nodes, s)
		for name, size := range request {
			if sum(m.empty, s, name, allocatableOf) >= size && (least[name] == 0 || s.Len() < least[name]) {
				least[name] = s.Len()
			}
			fits = fits && sum(m.nodes, s, name, freeOf)+m.reusable(pod, s, name) >= size
		}
		if fits {
			fitting = append(fitting, s)
		}
	})
	out := topology.Hints{}
	for name := range request {
		list := []topology.Hint{}
		for _, s := range fitting {
			list = append(list, topology.Hint{Nodes: s, Preferred: s.Len() == least[name]})
		}
		out[string(name)] = list
	}
	return out
}

func (m *Manager) everyNode() topology.NodeSet {
	return topology.Nodes(slices.Collect(maps.Keys(m.nodes))...)
}

// reusable is the size of the blocks on exactly these nodes that the pod's init containers leave to
// later containers.
func (m *Manager) reusable(pod *corev1.Pod, s topology.NodeSet, name corev1.ResourceName) uint64 {
	size := uint64(0)
	for container, list := range m.all[string(pod.UID)] {
		for _, b := range list {
			if b.Type == name && b.nodes() == s && endsFirst(pod, container) {
				size += b.Size
			}
		}
	}
	return size
}

// endsFirst reports whether the container is an init container that ends before others start.
func endsFirst(pod *corev1.Pod, name string) bool {
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.Name == name {
			return !spec.IsSidecar(c)
		}
	}
	return false
}

// Allocate implements topology.Provider.
func (m *Manager) Allocate(pod *corev1.Pod, c *corev1.Container, affinity topology.Hint) error {
	request := m.request(pod, c)
	if len(request) == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.all[string(pod.UID)][c.Name]; ok {
		return nil
	}
	err := m.allocate(pod, c, request, affinity)
	if m.Observe != nil {
		m.Observe(err)
	}
	return err
}

func (m *Manager) allocate(pod *corev1.Pod, c *corev1.Container, request map[corev1.ResourceName]uint64, affinity topology.Hint) error {
	on, err := m.place(m.hints(pod, request), affinity)
	if err != nil {
		return err
	}
	next := maps.Clone(m.all)
	own := map[string][]block{}
	for name, list := range m.all[string(pod.UID)] {
		own[name] = slices.Clone(list)
	}
	next[string(pod.UID)] = own
	var list []block
	for _, name := range slices.Sorted(maps.Keys(request)) {
		list = append(list, block{Affinity: on.IDs(), Type: name, Size: request[name]})
		takeOver(pod, own, on, name, request[name])
	}
	own[c.Name] = list
	return m.commit(next)
}

// takeOver shrinks the blocks of init containers by what a later container reuses.
func takeOver(pod *corev1.Pod, own map[string][]block, on topology.NodeSet, name corev1.ResourceName, size uint64) {
	for _, container := range slices.Sorted(maps.Keys(own)) {
		for i := range own[container] {
			if b := &own[container][i]; b.Type == name && b.nodes() == on && endsFirst(pod, container) {
				part := min(b.Size, size)
				b.Size, size = b.Size-part, size-part
			}
		}
	}
}

// place chooses the nodes of an allocation: the affinity if it fits, else the best set that
// contains it.
func (m *Manager) place(all topology.Hints, affinity topology.Hint) (topology.NodeSet, error) {
	best := topology.Hint{}
	first := true
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list := all[name]
		if first { // the lists of all resources have the same sets
			for _, h := range list {
				for _, other := range all {
					h.Preferred = h.Preferred && preferred(other, h.Nodes)
				}
				if h.Nodes&affinity.Nodes != affinity.Nodes {
					continue
				}
				if best.Nodes == 0 || h.Preferred && !best.Preferred || h.Preferred == best.Preferred && h.Nodes.Len() < best.Nodes.Len() {
					best = h
				}
			}
			first = false
		}
	}
	switch {
	case best.Nodes == 0:
		return 0, errors.New("[memorymanager] no set of NUMA nodes has enough memory for the container")
	case affinity.Nodes != 0 && affinity.Preferred && !best.Preferred:
		return 0, errors.New("[memorymanager] failed to find the extended preferred hint")
	}
	return best.Nodes, nil
}

func preferred(list []topology.Hint, s topology.NodeSet) bool {
	for _, h := range list {
		if h.Nodes == s {
			return h.Preferred
		}
	}
	return false
}

// commit makes the blocks count, if they fit and the state file has them.
func (m *Manager) commit(next blocks) error {
	nodes, err := fill(m.empty, next)
	if err != nil {
		return err
	}
	if err := save(m.StateFile, file{PolicyName: m.Policy, MachineState: nodes, Entries: next}); err != nil {
		return err
	}
	m.all, m.nodes = next, nodes
	return nil
}

// Release implements topology.Provider.
func (m *Manager) Release(pod types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.all[string(pod)]; !ok {
		return
	}
	next := maps.Clone(m.all)
	delete(next, string(pod))
	if m.commit(next) == nil {
		return
	}
	// The file could not be written. The pod's entry is released again after a restart.
	if nodes, err := fill(m.empty, next); err == nil {
		m.all, m.nodes = next, nodes
	}
}

// Pods implements topology.Provider.
func (m *Manager) Pods() []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []types.UID
	for pod := range m.all {
		out = append(out, types.UID(pod))
	}
	return out
}
