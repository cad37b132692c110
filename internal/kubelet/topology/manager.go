package topology

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Config configures a Manager. The names and values are those of KubeletConfiguration.
type Config struct {
	Policy  string            // default "none"
	Scope   string            // default "container"
	Options map[string]string // prefer-closest-numa-nodes, max-allowable-numa-nodes
	// Distances maps each NUMA node of the machine to its distances to all nodes.
	Distances map[int]map[int]int
	Log       *slog.Logger
	// Observe reports each admission and its duration; refused means that the policy refused the
	// pod. May be nil.
	Observe func(took time.Duration, refused bool)
	// Aligned reports, with single-numa-node, whether a container's resources are on one NUMA node.
	// May be nil.
	Aligned func(scope string, is bool)
	Now     func() time.Time
}

// Manager decides on which NUMA nodes the containers of a pod get their resources. It is safe for
// concurrent use.
type Manager struct {
	Config
	merger merger

	mu        sync.Mutex
	providers []Provider
}

// New makes a manager. Add tells it the providers.
func New(c Config) (*Manager, error) {
	if c.Policy == "" {
		c.Policy = PolicyNone
	}
	if c.Scope == "" {
		c.Scope = ScopeContainer
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if err := errors.Join(oneOf("topologyManagerPolicy", c.Policy, policies), oneOf("topologyManagerScope", c.Scope, scopes)); err != nil {
		return nil, err
	}
	o, err := parseOptions(c.Options)
	if err != nil {
		return nil, err
	}
	m := &Manager{Config: c}
	for id := range c.Distances {
		if id < 0 || id > MaxNode {
			return nil, fmt.Errorf("NUMA node %d: ids above %d are not supported", id, MaxNode)
		}
		m.merger.all |= Nodes(id)
	}
	if n := len(c.Distances); c.Policy != PolicyNone && n > o.maxNodes {
		return nil, fmt.Errorf("topologyManagerPolicy %s: the machine has %d NUMA nodes, more than the %d of max-allowable-numa-nodes", c.Policy, n, o.maxNodes)
	}
	if o.closest {
		m.merger.near = c.Distances
	}
	return m, nil
}

// Add adds a provider. Providers are asked in the order in which they were added.
func (m *Manager) Add(p Provider) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.providers = append(m.providers, p)
}

// Admit allocates the resources of all containers of the pod. On an error nothing stays allocated.
func (m *Manager) Admit(pod *corev1.Pod) *Refusal {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.providers) == 0 {
		return nil
	}
	begin := m.Now()
	r, refused := m.admit(pod)
	if r != nil {
		m.release(pod.UID)
	}
	if m.Observe != nil && m.Policy != PolicyNone {
		m.Observe(m.Now().Sub(begin), refused)
	}
	return r
}

func (m *Manager) admit(pod *corev1.Pod) (r *Refusal, refused bool) {
	whole := Hint{}
	if m.Policy != PolicyNone && m.Scope == ScopePod {
		var ok bool
		if whole, ok = m.merger.decide(m.Policy, m.ask(func(p Provider) Hints { return p.PodHints(pod) })); !ok {
			m.aligned(false)
			return m.refuse(pod, "", whole), true
		}
	}
	for c := range containers(pod) {
		affinity := whole
		if m.Policy != PolicyNone && m.Scope == ScopeContainer {
			var ok bool
			if affinity, ok = m.merger.decide(m.Policy, m.ask(func(p Provider) Hints { return p.Hints(pod, c) })); !ok {
				m.aligned(false)
				return m.refuse(pod, c.Name, affinity), true
			}
		}
		for _, p := range m.providers {
			if err := p.Allocate(pod, c, affinity); err != nil {
				return refusal(err), false
			}
		}
		m.aligned(true)
	}
	return nil, false
}

// aligned reports an alignment that the policy guarantees.
func (m *Manager) aligned(is bool) {
	if m.Aligned != nil && m.Policy == PolicySingleNUMANode {
		m.Aligned(m.Scope, is)
	}
}

func (m *Manager) ask(fn func(Provider) Hints) []Hints {
	all := make([]Hints, 0, len(m.providers))
	for _, p := range m.providers {
		all = append(all, fn(p))
	}
	return all
}

func (m *Manager) refuse(pod *corev1.Pod, container string, best Hint) *Refusal {
	m.Log.Info("the NUMA policy refuses a pod", "pod", pod.Namespace+"/"+pod.Name, "container", container, "policy", m.Policy, "bestNodes", best.Nodes)
	return &Refusal{ReasonAffinity, "Resources cannot be allocated with Topology locality"}
}

func refusal(err error) *Refusal {
	var r *Refusal
	if errors.As(err, &r) {
		return r
	}
	return &Refusal{ReasonUnexpected, fmt.Sprintf("Allocate failed due to %v, which is unexpected", err)}
}

// Release takes back the pod's resources.
func (m *Manager) Release(pod types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.release(pod)
}

// Sweep takes back the resources of all pods that are not alive.
func (m *Manager) Sweep(alive func(pod types.UID) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.providers {
		for _, pod := range p.Pods() {
			if !alive(pod) {
				p.Release(pod)
			}
		}
	}
}

func (m *Manager) release(pod types.UID) {
	for _, p := range m.providers {
		p.Release(pod)
	}
}

// containers iterates over the pod's init containers and regular containers, in order of their
// start.
func containers(pod *corev1.Pod) func(yield func(*corev1.Container) bool) {
	return func(yield func(*corev1.Container) bool) {
		for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}
