package devices

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// removalGrace is how long a resource keeps its capacity without a plugin.
const removalGrace = 5 * time.Minute

// Config configures a Manager. All functions may be nil.
type Config struct {
	// Dir holds the registration socket, the plugins' sockets and the checkpoint.
	Dir string
	// Changed is called when the node's resources have changed.
	Changed func()
	// Touched is called with the pods whose devices have changed their health.
	Touched func([]types.UID)
	Log     *slog.Logger
	Now     func() time.Time // default time.Now
}

// Manager knows the devices of the node and the containers that hold them. It is safe for
// concurrent use.
type Manager struct {
	Config

	// mu guards the fields below. It is not held during calls of plugins.
	mu        sync.Mutex
	resources map[string]*resourceState
	pods      map[types.UID]containers
	// fresh means that there was no checkpoint at the start.
	fresh bool

	// saving serializes writes of the checkpoint.
	saving sync.Mutex
}

// containers maps a container's name and a resource to the allocation.
type containers map[string]map[string]*allocation

// allocation is the devices of one resource that a container holds. response is nil while the
// plugin is asked.
type allocation struct {
	devices  []string
	wanted   []int            // NUMA nodes that the devices should be on; nil if any will do
	nodes    map[string][]int // NUMA nodes at the time of the allocation, by device
	response *pluginapi.ContainerAllocateResponse
}

// resourceState is what the plugin of one resource has reported.
type resourceState struct {
	devices map[string]device
	// plugin is nil if none has registered since the start.
	plugin *plugin
	// stopped is the end of the plugin's stream; zero while it lasts.
	stopped time.Time
	// removed means that the resource has lost its capacity.
	removed bool
}

type device struct {
	healthy bool
	nodes   []int // NUMA nodes, sorted
}

// New makes a Manager and reads its checkpoint. A checkpoint that cannot be read is put aside and
// logged: running containers keep their devices, but the manager does not know of them.
func New(c Config) *Manager {
	if c.Now == nil {
		c.Now = time.Now
	}
	m := &Manager{Config: c, resources: map[string]*resourceState{}, pods: map[types.UID]containers{}}
	m.load()
	return m
}

// Used reports whether a plugin has registered or an allocation exists.
func (m *Manager) Used() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.resources)+len(m.pods) > 0
}

// Fresh reports whether the manager has started without a checkpoint. Counts of devices from before
// then mean nothing.
func (m *Manager) Fresh() bool { return m.fresh }

// Capacity returns the numbers of devices by resource: all of them, and the healthy ones.
func (m *Manager) Capacity() (capacity, allocatable corev1.ResourceList) {
	m.mu.Lock()
	defer m.mu.Unlock()
	capacity, allocatable = corev1.ResourceList{}, corev1.ResourceList{}
	for name, r := range m.resources {
		if !r.stopped.IsZero() && !r.removed && m.Now().Sub(r.stopped) > removalGrace {
			r.devices, r.removed = map[string]device{}, true
			m.Log.Info("a device plugin did not come back; the resource has no capacity any more", "resource", name)
		}
		healthy := 0
		for _, d := range r.devices {
			if d.healthy {
				healthy++
			}
		}
		capacity[corev1.ResourceName(name)] = *resource.NewQuantity(int64(len(r.devices)), resource.DecimalSI)
		allocatable[corev1.ResourceName(name)] = *resource.NewQuantity(int64(healthy), resource.DecimalSI)
	}
	return capacity, allocatable
}

// Manages reports whether the resource belongs to a device plugin.
func (m *Manager) Manages(resource string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.resources[resource] != nil
}

// Holds reports whether the pod has devices of the resource already.
func (m *Manager) Holds(pod types.UID, resource string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, byResource := range m.pods[pod] {
		if byResource[resource] != nil {
			return true
		}
	}
	return false
}

// Release frees the devices of a pod whose containers have all ended.
func (m *Manager) Release(pod types.UID) error {
	m.mu.Lock()
	_, held := m.pods[pod]
	delete(m.pods, pod)
	m.mu.Unlock()
	if !held {
		return nil
	}
	return m.save()
}

// Retain frees the devices of all pods for which keep returns false.
func (m *Manager) Retain(keep func(types.UID) bool) error {
	m.mu.Lock()
	pods := slices.Collect(maps.Keys(m.pods))
	m.mu.Unlock()
	pods = slices.DeleteFunc(pods, keep)
	m.mu.Lock()
	for _, uid := range pods {
		delete(m.pods, uid)
	}
	m.mu.Unlock()
	if len(pods) == 0 {
		return nil
	}
	return m.save()
}

// Health returns the health of the container's devices for its status, by resource.
func (m *Manager) Health(pod types.UID, container string) []corev1.ResourceStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []corev1.ResourceStatus
	byResource := m.pods[pod][container]
	for _, name := range slices.Sorted(maps.Keys(byResource)) {
		status := corev1.ResourceStatus{Name: corev1.ResourceName(name)}
		for _, id := range byResource[name].devices {
			health := corev1.ResourceHealthStatusUnknown
			if r := m.resources[name]; r != nil {
				if d, ok := r.devices[id]; ok && d.healthy {
					health = corev1.ResourceHealthStatusHealthy
				} else if ok {
					health = corev1.ResourceHealthStatusUnhealthy
				}
			}
			status.Resources = append(status.Resources, corev1.ResourceHealth{ResourceID: corev1.ResourceID(id), Health: health})
		}
		out = append(out, status)
	}
	return out
}

func (m *Manager) changed() {
	if m.Changed != nil {
		m.Changed()
	}
}
