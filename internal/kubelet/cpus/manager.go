package cpus

import (
	"errors"
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/knarr-project/knarr/internal/kubelet/machine"
	"github.com/knarr-project/knarr/internal/kubelet/spec"
	"github.com/knarr-project/knarr/internal/kubelet/topology"
)

// Config configures a Manager. The names and values are those of KubeletConfiguration.
type Config struct {
	Policy  string // default "none"
	Options map[string]string
	// AlphaOptions is the feature gate CPUManagerPolicyAlphaOptions.
	AlphaOptions bool
	// TopologyPolicy is the policy of the topology manager.
	TopologyPolicy string
	Layout         *machine.Layout
	// Reserved are the CPUs that are never exclusive (reservedSystemCPUs). If empty, the manager
	// chooses as many as ReservedMilliCPU needs.
	Reserved machine.CPUSet
	// ReservedMilliCPU is the CPU of systemReserved and kubeReserved, in thousandths of a core.
	ReservedMilliCPU int64
	// StateFile is the path of cpu_manager_state.
	StateFile string
	// Changed is called after the pool has changed. May be nil.
	Changed func()
	// Observe counts an allocation that pins CPUs, or failed to. May be nil.
	Observe func(err error)
	// Aligned reports whether CPUs that must or should be aligned are. May be nil.
	Aligned func(boundary string, is bool)
}

// Boundaries of aligned CPUs.
const (
	BoundaryCore  = "physical_cpu"
	BoundaryCache = "uncore_cache"
)

// Manager owns the assignment of CPUs to containers. It is safe for concurrent use.
type Manager struct {
	Config
	taker
	threadsPerCore int
	reserved       machine.CPUSet

	mu    sync.Mutex
	state state
}

// New restores the assignment from the state file, or begins with all CPUs in the pool.
func New(c Config) (*Manager, error) {
	if c.Policy == "" {
		c.Policy = PolicyNone
	}
	if c.Policy != PolicyNone && c.Policy != PolicyStatic {
		return nil, fmt.Errorf("cpuManagerPolicy: %q is not one of %s, %s", c.Policy, PolicyNone, PolicyStatic)
	}
	o, err := parseOptions(c.Policy, c.Options, c.AlphaOptions, c.TopologyPolicy)
	if err != nil {
		return nil, err
	}
	m := &Manager{Config: c, taker: taker{c.Layout, o}}
	if c.Policy == PolicyStatic {
		m.threadsPerCore = m.threads()
		if err := m.reserve(); err != nil {
			return nil, err
		}
	}
	return m, m.restore()
}

// reserve chooses the CPUs that are never exclusive.
func (m *Manager) reserve() error {
	all := m.layout.All()
	m.reserved = m.Reserved
	if !m.reserved.Within(all) {
		return fmt.Errorf("reservedSystemCPUs: CPUs %s are not online; online are %s", m.reserved.Minus(all), all)
	}
	if m.reserved.Empty() {
		n := int((m.ReservedMilliCPU + 999) / 1000)
		if n == 0 {
			return errors.New(`cpuManagerPolicy static: the policy needs a reserved CPU; set reservedSystemCPUs, or cpu in systemReserved or kubeReserved`)
		}
		packed := taker{m.layout, options{}}
		var ok bool
		if m.reserved, ok = packed.take(all, n); !ok {
			return fmt.Errorf("cpuManagerPolicy static: %d CPUs are reserved, but only %d are online", n, all.Len())
		}
	}
	return nil
}

// restore reads the state file, and refuses one of another policy or machine.
func (m *Manager) restore() error {
	old, err := load(m.StateFile)
	if err != nil {
		return err
	}
	if old == nil && m.Policy == PolicyNone {
		return nil // a node that assigns no CPUs needs no file
	}
	all := m.usablePool()
	if old == nil {
		m.state = state{policy: m.Policy, pool: all, entries: entries{}}
		return m.state.save(m.StateFile)
	}
	remedy := fmt.Sprintf("drain the node, remove %s and start again", m.StateFile)
	if old.policy != m.Policy {
		return fmt.Errorf("cpuManagerPolicy: configured policy %q differs from state checkpoint policy %q; %s", m.Policy, old.policy, remedy)
	}
	m.state = *old
	if m.Policy == PolicyNone {
		return nil
	}
	if old.pool.Empty() && len(old.entries) == 0 {
		m.state.pool = all
		return m.state.save(m.StateFile)
	}
	if known := old.pool.Union(old.taken()); !known.Equal(all) {
		return fmt.Errorf("CPU manager state: the file has CPUs %s, but the node may use %s; %s", known, all, remedy)
	}
	if both := old.pool.And(old.taken()); !both.Empty() {
		return fmt.Errorf("CPU manager state: CPUs %s are exclusive and in the shared pool; %s", both, remedy)
	}
	if lost := m.reserved.And(old.taken()); !lost.Empty() {
		return fmt.Errorf("CPU manager state: reserved CPUs %s are exclusive; %s", lost, remedy)
	}
	if both := old.shared(); !both.Empty() {
		return fmt.Errorf("CPU manager state: CPUs %s belong to two pods; %s", both, remedy)
	}
	return nil
}

// shared returns the CPUs that two pods have.
func (s *state) shared() machine.CPUSet {
	var seen, twice machine.CPUSet
	for _, containers := range s.entries {
		var own machine.CPUSet
		for _, set := range containers {
			own = own.Union(set)
		}
		twice, seen = twice.Union(seen.And(own)), seen.Union(own)
	}
	return twice
}

// usablePool is the pool while nothing is exclusive. With strict-cpu-reservation, containers do not
// run on reserved CPUs.
func (m *Manager) usablePool() machine.CPUSet {
	if m.strict {
		return m.layout.All().Minus(m.reserved)
	}
	return m.layout.All()
}

// Static reports whether containers can have exclusive CPUs.
func (m *Manager) Static() bool { return m.Policy == PolicyStatic }

// Set returns the CPUs on which the container runs. exclusive is false for those of the shared
// pool. Under the policy "none" the set is empty: the container runs on all CPUs.
func (m *Manager) Set(pod types.UID, container string) (set machine.CPUSet, exclusive bool) {
	if !m.Static() {
		return machine.CPUSet{}, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if set, ok := m.state.entries[pod][container]; ok {
		return set, true
	}
	return m.state.pool, false
}

// Exclusive reports whether any container of the pod has exclusive CPUs.
func (m *Manager) Exclusive(pod types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.state.entries[pod]) > 0
}

// Allocatable is the set of CPUs that can be exclusive.
func (m *Manager) Allocatable() machine.CPUSet { return m.layout.All().Minus(m.reserved) }

// PoolSize is the number of CPUs in the shared pool without the reserved ones, and exclusive the
// number of exclusive CPUs.
func (m *Manager) PoolSize() (pool, exclusive int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.pool.Minus(m.reserved).Len(), m.state.taken().Len()
}

// PerNode counts the exclusive CPUs of each NUMA node.
func (m *Manager) PerNode() map[int]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[int]int{}
	for id := range m.layout.Nodes {
		out[id] = 0
	}
	for _, cpu := range m.state.taken().List() {
		out[m.layout.CPUs[cpu].Node]++
	}
	return out
}

// wanted is the number of exclusive CPUs for a container: its request, if that is a whole number
// and the pod is Guaranteed. Pods with pod-level resources get none.
func wanted(pod *corev1.Pod, c *corev1.Container) int {
	if spec.QOS(pod) != corev1.PodQOSGuaranteed || resourcehelper.IsPodLevelResourcesSet(pod) {
		return 0
	}
	q := c.Resources.Requests.Cpu()
	if limit := c.Resources.Limits.Cpu(); q.Cmp(*limit) != 0 || q.MilliValue()%1000 != 0 {
		return 0
	}
	return int(min(q.Value(), machine.MaxCPU+1))
}

// wantedByPod is the number of exclusive CPUs that the whole pod needs at once. Init containers end
// before the others start, so these take over their CPUs.
func wantedByPod(pod *corev1.Pod) int {
	sidecars, inits := 0, 0
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		n := wanted(pod, c)
		if spec.IsSidecar(c) {
			sidecars += n
			inits = max(inits, sidecars)
		} else {
			inits = max(inits, sidecars+n)
		}
	}
	mains := sidecars
	for i := range pod.Spec.Containers {
		mains += wanted(pod, &pod.Spec.Containers[i])
	}
	return max(inits, mains)
}

// reusable returns the CPUs of the pod's init containers that no later container has taken over.
func (m *Manager) reusable(pod *corev1.Pod) machine.CPUSet {
	var free, held machine.CPUSet
	for name, set := range m.state.entries[pod.UID] {
		if endsFirst(pod, name) {
			free = free.Union(set)
		} else {
			held = held.Union(set)
		}
	}
	return free.Minus(held)
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

// free is the set of CPUs that can become exclusive.
func (m *Manager) free() machine.CPUSet { return m.state.pool.Minus(m.reserved) }

// Allocate implements topology.Provider.
func (m *Manager) Allocate(pod *corev1.Pod, c *corev1.Container, affinity topology.Hint) error {
	n := wanted(pod, c)
	if !m.Static() || n == 0 {
		return nil
	}
	m.mu.Lock()
	_, has := m.state.entries[pod.UID][c.Name]
	var err error
	if !has {
		err = m.allocate(pod, c, n, affinity.Nodes)
		if m.Observe != nil {
			m.Observe(err)
		}
		m.reportAlignment(m.state.entries[pod.UID][c.Name], err)
	}
	m.mu.Unlock()
	if !has && err == nil && m.Changed != nil {
		m.Changed()
	}
	return err
}

// reportAlignment reports the alignment that the options ask for. The uncore cache is a preference,
// so only a success counts.
func (m *Manager) reportAlignment(set machine.CPUSet, err error) {
	if m.Aligned == nil {
		return
	}
	var refused *topology.Refusal
	if m.fullCores && (err == nil || errors.As(err, &refused) && refused.Reason == reasonAlignment) {
		m.Aligned(BoundaryCore, err == nil)
	}
	if err != nil || !m.alignByCache {
		return
	}
	caches := map[int]bool{}
	for _, c := range m.layout.CPUs {
		if set.Has(c.ID) {
			caches[c.Cache] = true
		}
	}
	if len(caches) == 1 {
		m.Aligned(BoundaryCache, true)
	}
}

func (m *Manager) allocate(pod *corev1.Pod, c *corev1.Container, n int, nodes topology.NodeSet) error {
	reuse := m.reusable(pod)
	if err := m.alignment(n, m.free().Union(reuse)); err != nil {
		return err
	}
	set, ok := m.choose(n, reuse, nodes)
	if !ok {
		return fmt.Errorf("not enough cpus available to satisfy request: requested=%d, available=%d", n, m.free().Union(reuse).Len())
	}
	next := state{policy: m.state.policy, pool: m.state.pool.Minus(set), entries: maps.Clone(m.state.entries)}
	containers := maps.Clone(m.state.entries[pod.UID])
	if containers == nil {
		containers = map[string]machine.CPUSet{}
	}
	containers[c.Name] = set
	next.entries[pod.UID] = containers
	if err := next.save(m.StateFile); err != nil {
		return err
	}
	m.state = next
	return nil
}

// alignment refuses a request that does not fill whole cores, with full-pcpus-only.
func (m *Manager) alignment(n int, free machine.CPUSet) error {
	if !m.fullCores {
		return nil
	}
	if n%m.threadsPerCore != 0 {
		return &topology.Refusal{Reason: reasonAlignment, Message: fmt.Sprintf("SMT Alignment Error: requested %d cpus not multiple cpus per core = %d", n, m.threadsPerCore)}
	}
	if whole := m.wholeCores(free).Len(); whole < n {
		return &topology.Refusal{Reason: reasonAlignment, Message: fmt.Sprintf(
			"SMT Alignment Error: not enough free physical CPUs: available physical CPUs = %d, requested CPUs = %d, CPUs per core = %d", whole, n, m.threadsPerCore)}
	}
	return nil
}

// reasonAlignment is the reason of pods that full-pcpus-only refuses.
const reasonAlignment = "SMTAlignmentError"

// choose picks n CPUs: first the pod's reusable ones, then those of the affinity's nodes, then any.
func (m *Manager) choose(n int, reuse machine.CPUSet, nodes topology.NodeSet) (machine.CPUSet, bool) {
	free := m.free().Union(reuse)
	near := free
	if nodes != 0 {
		near = free.And(m.cpusOf(m.widen(nodes)))
	}
	var out machine.CPUSet
	for _, from := range []machine.CPUSet{reuse.And(near), near, free} {
		from = m.usable(from.Minus(out))
		part, ok := m.take(from, min(n-out.Len(), from.Len()))
		if !ok {
			return machine.CPUSet{}, false
		}
		if out = out.Union(part); out.Len() == n {
			return out, true
		}
	}
	return machine.CPUSet{}, false
}

// widen adds the other nodes of the same sockets, with align-by-socket.
func (m *Manager) widen(nodes topology.NodeSet) topology.NodeSet {
	if !m.alignBySocket {
		return nodes
	}
	sockets := m.socketsOf(nodes)
	for _, c := range m.layout.CPUs {
		if sockets[c.Socket] {
			nodes |= topology.Nodes(c.Node)
		}
	}
	return nodes
}

func (m *Manager) socketsOf(nodes topology.NodeSet) map[int]bool {
	out := map[int]bool{}
	for _, c := range m.layout.CPUs {
		if nodes.Has(c.Node) {
			out[c.Socket] = true
		}
	}
	return out
}

func (m *Manager) cpusOf(nodes topology.NodeSet) machine.CPUSet {
	var out machine.CPUSet
	for _, id := range nodes.IDs() {
		out = out.Union(m.layout.Nodes[id].CPUs)
	}
	return out
}

// Release implements topology.Provider.
func (m *Manager) Release(pod types.UID) {
	m.mu.Lock()
	containers, ok := m.state.entries[pod]
	if ok {
		next := state{policy: m.state.policy, pool: m.state.pool, entries: maps.Clone(m.state.entries)}
		delete(next.entries, pod)
		for _, set := range containers {
			next.pool = next.pool.Union(set)
		}
		m.state = next
		// A lost write only means that the pod's entry is released again after a restart.
		_ = next.save(m.StateFile)
	}
	m.mu.Unlock()
	if ok && m.Changed != nil {
		m.Changed()
	}
}

// Pods implements topology.Provider.
func (m *Manager) Pods() []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []types.UID
	for pod := range m.state.entries {
		out = append(out, pod)
	}
	return out
}
