package devices

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Allocate gives devices to all containers of the pod. Containers that have theirs keep them. When
// it returns without an error, the allocations are on disk.
func (m *Manager) Allocate(ctx context.Context, pod *corev1.Pod) error {
	if !m.requests(pod) {
		return nil
	}
	for i := range pod.Spec.InitContainers {
		if err := m.allocateContainer(ctx, pod, &pod.Spec.InitContainers[i]); err != nil {
			return err
		}
	}
	for i := range pod.Spec.Containers {
		if err := m.allocateContainer(ctx, pod, &pod.Spec.Containers[i]); err != nil {
			return err
		}
	}
	return nil
}

// requests reports whether a container of the pod requests devices of a plugin.
func (m *Manager) requests(pod *corev1.Pod) bool {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for name := range list[i].Resources.Limits {
				if m.Manages(string(name)) {
					return true
				}
			}
		}
	}
	return false
}

// allocateContainer gives the container the devices that it requests and does not have.
func (m *Manager) allocateContainer(ctx context.Context, pod *corev1.Pod, c *corev1.Container) error {
	return m.each(pod, c, func(resource string, count int64) error {
		return m.allocateResource(ctx, pod, c, resource, count)
	})
}

// each calls fn with the resources of device plugins that the container requests.
func (m *Manager) each(pod *corev1.Pod, c *corev1.Container, fn func(resource string, count int64) error) error {
	var names []string
	for name, q := range c.Resources.Limits {
		if q.Sign() > 0 && m.Manages(string(name)) && !ByDRA(pod, c.Name, string(name)) {
			names = append(names, string(name))
		}
	}
	slices.Sort(names)
	for _, name := range names {
		count := c.Resources.Limits[corev1.ResourceName(name)]
		if err := fn(name, count.Value()); err != nil {
			return err
		}
	}
	return nil
}

// ByDRA reports whether a driver of dynamic resources provides the container's extended resource
// (KEP-5004).
func ByDRA(pod *corev1.Pod, container, resource string) bool {
	status := pod.Status.ExtendedResourceClaimStatus
	return status != nil && slices.ContainsFunc(status.RequestMappings, func(m corev1.ContainerExtendedResourceRequest) bool {
		return m.ContainerName == container && m.ResourceName == resource
	})
}

// allocateResource gives the container the devices of one resource.
func (m *Manager) allocateResource(ctx context.Context, pod *corev1.Pod, c *corev1.Container, resource string, count int64) error {
	a, err := m.reserve(pod, c, resource, count, nil)
	if err != nil || a.response != nil {
		return err
	}
	p := m.live(resource)
	if p == nil {
		err = noDevices(resource)
	} else if p.options.GetGetPreferredAllocationAvailable() {
		err = m.prefer(ctx, p, a, pod, c, count)
	}
	var response *pluginapi.ContainerAllocateResponse
	if err == nil {
		response, err = p.allocate(ctx, a.devices)
	}
	if err == nil {
		m.mu.Lock()
		a.response = response
		m.mu.Unlock()
		err = m.save()
	}
	if err != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.drop(pod.UID, c.Name, resource, a)
	}
	return err
}

func noDevices(resource string) error {
	return fmt.Errorf("no healthy devices present; cannot allocate unhealthy devices %s", resource)
}

// Reserve chooses devices for a container without asking the plugin. nodes are the NUMA nodes that
// the devices should be on; nil means any. Allocate completes the allocation.
func (m *Manager) Reserve(pod *corev1.Pod, c *corev1.Container, nodes []int) error {
	return m.each(pod, c, func(resource string, count int64) error {
		_, err := m.reserve(pod, c, resource, count, nodes)
		return err
	})
}

// reserve returns the container's allocation. If there is none, it chooses devices. No other
// container gets them then.
func (m *Manager) reserve(pod *corev1.Pod, c *corev1.Container, resource string, count int64, nodes []int) (*allocation, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if have := m.pods[pod.UID][c.Name][resource]; have != nil {
		if int64(len(have.devices)) != count {
			return nil, fmt.Errorf("pod %q container %q changed request for resource %q from %d to %d", pod.UID, c.Name, resource, len(have.devices), count)
		}
		return have, nil
	}
	o, err := m.offer(pod, c, resource, count, nodes)
	if err != nil {
		return nil, err
	}
	a := &allocation{wanted: nodes}
	m.take(a, resource, o.choose(nil))
	if m.pods[pod.UID] == nil {
		m.pods[pod.UID] = containers{}
	}
	if m.pods[pod.UID][c.Name] == nil {
		m.pods[pod.UID][c.Name] = map[string]*allocation{}
	}
	m.pods[pod.UID][c.Name][resource] = a
	return a, nil
}

// take sets the devices of an allocation. The caller holds m.mu.
func (m *Manager) take(a *allocation, resource string, ids []string) {
	a.devices, a.nodes = ids, map[string][]int{}
	for _, id := range ids {
		a.nodes[id] = m.resources[resource].devices[id].nodes
	}
}

// prefer asks the plugin for its choice and changes the reserved devices to it, as far as they are
// free and on the wanted NUMA nodes.
func (m *Manager) prefer(ctx context.Context, p *plugin, a *allocation, pod *corev1.Pod, c *corev1.Container, count int64) error {
	offered := func() (*offer, error) {
		if m.pods[pod.UID][c.Name][p.resource] != a {
			return nil, fmt.Errorf("the pod has ended")
		}
		// Offer the reserved devices again.
		delete(m.pods[pod.UID][c.Name], p.resource)
		defer func() { m.pods[pod.UID][c.Name][p.resource] = a }()
		if m.used(p.resource).Difference(m.reusable(pod, c, p.resource)).HasAny(a.devices...) {
			return nil, nil // a later container is going to reuse them: there is no choice any more
		}
		return m.offer(pod, c, p.resource, count, a.wanted)
	}
	m.mu.Lock()
	o, err := offered()
	m.mu.Unlock()
	if err != nil || o == nil {
		return err
	}
	preferred, err := p.prefer(ctx, o.available(), o.must(), int(count))
	if err != nil {
		return fmt.Errorf("GetPreferredAllocation of %s: %w", p.resource, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if o, err = offered(); err != nil || o == nil {
		return err
	}
	m.take(a, p.resource, o.choose(preferred))
	return nil
}

// drop takes a new allocation back. The caller holds m.mu.
func (m *Manager) drop(pod types.UID, container, resource string, a *allocation) {
	if m.pods[pod][container][resource] != a {
		return // the pod was released meanwhile
	}
	delete(m.pods[pod][container], resource)
	if len(m.pods[pod][container]) == 0 {
		delete(m.pods[pod], container)
	}
	if len(m.pods[pod]) == 0 {
		delete(m.pods, pod)
	}
}

// offer is the choice of devices for a container.
type offer struct {
	// reused devices belong to an init container of the pod that has ended by then. They are taken
	// first.
	reused []string
	// aligned, others and unplaced devices are free: on the wanted NUMA nodes, on others, on none.
	aligned, others, unplaced []string
	count                     int
}

func (o *offer) available() []string {
	return slices.Concat(o.reused, o.aligned, o.others, o.unplaced)
}

// must returns the devices that the container gets in any case.
func (o *offer) must() []string { return o.reused[:min(len(o.reused), o.count)] }

// choose picks count devices. Preferred ones come first within each group.
func (o *offer) choose(preferred []string) []string {
	wanted := sets.New(preferred...)
	var chosen []string
	for _, group := range [][]string{o.reused, o.aligned, o.others, o.unplaced} {
		for _, first := range []bool{true, false} {
			for _, id := range group {
				if len(chosen) < o.count && wanted.Has(id) == first {
					chosen = append(chosen, id)
				}
			}
		}
	}
	slices.Sort(chosen)
	return chosen
}

// offer returns the devices that the container may get. The caller holds m.mu.
func (m *Manager) offer(pod *corev1.Pod, c *corev1.Container, resource string, count int64, nodes []int) (*offer, error) {
	r := m.resources[resource]
	healthy := 0
	for _, d := range r.devices {
		if d.healthy {
			healthy++
		}
	}
	if healthy == 0 {
		return nil, noDevices(resource)
	}
	used, reusable := m.used(resource), m.reusable(pod, c, resource)
	o := &offer{}
	for id, d := range r.devices {
		switch {
		case !d.healthy:
		case reusable.Has(id):
			o.reused = append(o.reused, id)
		case used.Has(id):
		case len(d.nodes) == 0:
			o.unplaced = append(o.unplaced, id)
		case nodes == nil || slices.ContainsFunc(d.nodes, func(n int) bool { return slices.Contains(nodes, n) }):
			o.aligned = append(o.aligned, id)
		default:
			o.others = append(o.others, id)
		}
	}
	for _, group := range [][]string{o.reused, o.aligned, o.others, o.unplaced} {
		slices.Sort(group)
	}
	if n := int64(len(o.available())); n < count {
		return nil, fmt.Errorf("requested number of devices unavailable for %s. Requested: %d, Available: %d", resource, count, n)
	}
	o.count = int(count)
	return o, nil
}

// used returns the resource's devices that any container holds. The caller holds m.mu.
func (m *Manager) used(resource string) sets.Set[string] {
	used := sets.New[string]()
	for _, byContainer := range m.pods {
		for _, byResource := range byContainer {
			if a := byResource[resource]; a != nil {
				used.Insert(a.devices...)
			}
		}
	}
	return used
}

// reusable returns the devices of init containers that have ended when the container starts,
// unless another container of the pod holds them too. Sidecars keep running and keep their devices.
// The caller holds m.mu.
func (m *Manager) reusable(pod *corev1.Pod, c *corev1.Container, resource string) sets.Set[string] {
	reusable := sets.New[string]()
	held := m.pods[pod.UID]
	for i := range pod.Spec.InitContainers {
		before := &pod.Spec.InitContainers[i]
		if before.Name == c.Name {
			return reusable
		}
		if a := held[before.Name][resource]; a == nil {
			continue
		} else if before.RestartPolicy != nil && *before.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			reusable.Delete(a.devices...)
		} else {
			reusable.Insert(a.devices...)
		}
	}
	for i := range pod.Spec.Containers {
		if a := held[pod.Spec.Containers[i].Name][resource]; a != nil {
			reusable.Delete(a.devices...)
		}
	}
	return reusable
}
