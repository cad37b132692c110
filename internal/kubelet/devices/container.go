package devices

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/knarr-project/knarr/internal/kubelet/spec"
)

// Container returns what a container needs to use its devices, just before it is created. Plugins
// that ask for it are told of the start. The result is nil if the container has no devices.
func (m *Manager) Container(ctx context.Context, pod *corev1.Pod, c *corev1.Container) (*spec.Devices, error) {
	// A container that an earlier process started may lack its allocation.
	if err := m.allocateContainer(ctx, pod, c); err != nil {
		return nil, err
	}
	held := m.held(pod.UID, c.Name)
	if len(held) == 0 {
		return nil, nil
	}
	out := &spec.Devices{Annotations: map[string]string{}}
	envs, paths, nodes := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(held)) {
		a := held[name]
		if p := m.live(name); p != nil && p.options.GetPreStartRequired() {
			if err := p.preStart(ctx, a.devices); err != nil {
				return nil, fmt.Errorf("PreStartContainer of %s: %w", name, err)
			}
		}
		merge(out, a.response, envs, paths, nodes)
	}
	return out, nil
}

// merge adds a plugin's answer. Of two answers for the same thing, the first one counts.
func merge(out *spec.Devices, r *pluginapi.ContainerAllocateResponse, envs, paths, nodes map[string]bool) {
	first := func(seen map[string]bool, key string) bool {
		if seen[key] {
			return false
		}
		seen[key] = true
		return true
	}
	for _, key := range slices.Sorted(maps.Keys(r.GetEnvs())) {
		if first(envs, key) {
			out.Envs = append(out.Envs, &runtimeapi.KeyValue{Key: key, Value: []byte(r.Envs[key])})
		}
	}
	for _, mount := range r.GetMounts() {
		if first(paths, mount.GetContainerPath()) {
			out.Mounts = append(out.Mounts, &runtimeapi.Mount{ContainerPath: mount.ContainerPath, HostPath: mount.HostPath, Readonly: mount.ReadOnly})
		}
	}
	for _, d := range r.GetDevices() {
		if first(nodes, d.GetContainerPath()) {
			out.Devices = append(out.Devices, &runtimeapi.Device{ContainerPath: d.ContainerPath, HostPath: d.HostPath, Permissions: d.Permissions})
		}
	}
	for key, value := range r.GetAnnotations() {
		if _, ok := out.Annotations[key]; !ok {
			out.Annotations[key] = value
		}
	}
	for _, d := range r.GetCdiDevices() {
		out.AddCDI(d.GetName())
	}
}

// held returns the container's complete allocations.
func (m *Manager) held(pod types.UID, container string) map[string]*allocation {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]*allocation{}
	for name, a := range m.pods[pod][container] {
		if a.response != nil {
			copied := *a
			out[name] = &copied
		}
	}
	return out
}

// Group is devices of one resource on the same NUMA nodes.
type Group struct {
	Resource string
	Devices  []string
	Nodes    []int
}

// Held returns the container's devices for the pod-resources API.
func (m *Manager) Held(pod types.UID, container string) []Group {
	var out []Group
	held := m.held(pod, container)
	for _, name := range slices.Sorted(maps.Keys(held)) {
		out = append(out, groups(name, held[name].devices, func(id string) []int { return held[name].nodes[id] })...)
	}
	return out
}

// Allocatable returns all healthy devices for the pod-resources API.
func (m *Manager) Allocatable() []Group {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Group
	for _, name := range slices.Sorted(maps.Keys(m.resources)) {
		r := m.resources[name]
		var ids []string
		for id, d := range r.devices {
			if d.healthy {
				ids = append(ids, id)
			}
		}
		slices.Sort(ids)
		out = append(out, groups(name, ids, func(id string) []int { return r.devices[id].nodes })...)
	}
	return out
}

// groups puts devices with the same NUMA nodes together.
func groups(resource string, ids []string, nodes func(string) []int) []Group {
	var out []Group
	index := map[string]int{}
	for _, id := range ids {
		at := nodes(id)
		key := fmt.Sprint(at)
		i, ok := index[key]
		if !ok {
			i = len(out)
			index[key] = i
			out = append(out, Group{Resource: resource, Nodes: at})
		}
		out[i].Devices = append(out[i].Devices, id)
	}
	return out
}
