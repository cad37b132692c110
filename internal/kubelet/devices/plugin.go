package devices

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/knarr-project/knarr/internal/kubelet/plugins"
)

const (
	optionsTimeout = 10 * time.Second
	// allocateTimeout is the deadline of calls that choose and prepare devices.
	allocateTimeout = 2 * time.Minute
	preStartTimeout = pluginapi.KubeletPreStartContainerRPCTimeoutInSecs * time.Second
	// maxID limits the length of a device's name.
	maxID = 253
)

// plugin is a connection to the plugin of one resource.
type plugin struct {
	resource   string
	socket     string
	options    *pluginapi.DevicePluginOptions
	connection *grpc.ClientConn
	client     pluginapi.DevicePluginClient
	cancel     context.CancelFunc
	done       chan struct{} // closed when the stream has ended
}

// connect starts to use a plugin in place of an earlier one. If options is nil, the plugin is asked
// for them. The plugin's stream ends with life.
func (m *Manager) connect(ctx, life context.Context, resource, socket string, options *pluginapi.DevicePluginOptions) (*plugin, error) {
	connection, err := plugins.Dial(socket)
	if err != nil {
		return nil, fmt.Errorf("device plugin of %s: %w", resource, err)
	}
	p := &plugin{resource: resource, socket: socket, options: options, connection: connection, client: pluginapi.NewDevicePluginClient(connection), done: make(chan struct{})}
	if options == nil {
		ctx, cancel := context.WithTimeout(ctx, optionsTimeout)
		defer cancel()
		if p.options, err = p.client.GetDevicePluginOptions(ctx, &pluginapi.Empty{}); err != nil {
			connection.Close()
			return nil, fmt.Errorf("device plugin of %s: GetDevicePluginOptions: %w", resource, err)
		}
	}
	life, p.cancel = context.WithCancel(life)
	m.mu.Lock()
	r := m.resources[resource]
	if r == nil {
		r = &resourceState{devices: map[string]device{}}
		m.resources[resource] = r
	}
	before := r.plugin
	r.plugin, r.stopped, r.removed = p, time.Time{}, false
	m.mu.Unlock()
	if before != nil {
		before.cancel()
	}
	m.Log.Info("device plugin registered", "resource", resource, "socket", socket)
	go m.follow(life, p)
	return p, nil
}

// follow reads the plugin's devices until its stream ends.
func (m *Manager) follow(ctx context.Context, p *plugin) {
	defer close(p.done)
	defer p.connection.Close()
	stream, err := p.client.ListAndWatch(ctx, &pluginapi.Empty{})
	for err == nil {
		var list *pluginapi.ListAndWatchResponse
		if list, err = stream.Recv(); err == nil {
			m.update(p, list.Devices)
		}
	}
	if ctx.Err() == nil {
		m.Log.Warn("a device plugin's stream has ended; its devices are unhealthy", "resource", p.resource, "error", err)
	}
	p.cancel()
	m.stop(p)
}

// update replaces the devices of the plugin's resource.
func (m *Manager) update(p *plugin, list []*pluginapi.Device) {
	devices := map[string]device{}
	for _, d := range list {
		if d.GetID() == "" || len(d.ID) > maxID {
			m.Log.Warn("a device without a valid name is ignored", "resource", p.resource, "length", len(d.GetID()), "limit", maxID)
			continue
		}
		var nodes []int
		for _, node := range d.GetTopology().GetNodes() {
			nodes = append(nodes, int(node.GetID()))
		}
		slices.Sort(nodes)
		devices[d.ID] = device{healthy: d.Health == pluginapi.Healthy, nodes: slices.Compact(nodes)}
	}
	m.replace(p, func(r *resourceState) { r.devices = devices })
}

// stop notes that the plugin has ended. Its devices are unhealthy.
func (m *Manager) stop(p *plugin) {
	m.replace(p, func(r *resourceState) {
		r.devices = maps.Clone(r.devices)
		for id, d := range r.devices {
			d.healthy = false
			r.devices[id] = d
		}
		r.stopped = m.Now()
	})
}

// replace changes the state of the plugin's resource, unless another plugin has taken over. It
// reports what has changed.
func (m *Manager) replace(p *plugin, change func(*resourceState)) {
	m.mu.Lock()
	r := m.resources[p.resource]
	if r == nil || r.plugin != p {
		m.mu.Unlock()
		return
	}
	before := r.devices
	change(r)
	var names bool // the set of devices has changed
	var touched []types.UID
	for id, d := range r.devices {
		b, ok := before[id]
		names = names || !ok
		if ok && b.healthy == d.healthy {
			continue
		}
		touched = append(touched, m.holders(p.resource, id)...)
	}
	for id := range before {
		if _, ok := r.devices[id]; !ok {
			names = true
			touched = append(touched, m.holders(p.resource, id)...)
		}
	}
	m.mu.Unlock()
	if names {
		if err := m.save(); err != nil {
			m.Log.Warn("cannot write the checkpoint of devices", "error", err)
		}
	}
	m.changed()
	if len(touched) > 0 && m.Touched != nil {
		m.Touched(touched)
	}
}

// holders returns the pods that hold a device. The caller holds m.mu.
func (m *Manager) holders(resource, id string) []types.UID {
	var out []types.UID
	for uid, byContainer := range m.pods {
		for _, byResource := range byContainer {
			if a := byResource[resource]; a != nil && slices.Contains(a.devices, id) {
				out = append(out, uid)
				break
			}
		}
	}
	return out
}

// live returns the resource's plugin if it works.
func (m *Manager) live(resource string) *plugin {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.resources[resource]; r != nil && r.stopped.IsZero() {
		return r.plugin
	}
	return nil
}

// allocate asks the plugin to prepare devices for a container.
func (p *plugin) allocate(ctx context.Context, devices []string) (*pluginapi.ContainerAllocateResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, allocateTimeout)
	defer cancel()
	answer, err := p.client.Allocate(ctx, &pluginapi.AllocateRequest{ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: devices}}})
	if err != nil {
		return nil, err
	}
	if n := len(answer.ContainerResponses); n != 1 {
		return nil, fmt.Errorf("device plugin of %s answered Allocate for one container with %d responses", p.resource, n)
	}
	if answer.ContainerResponses[0] == nil {
		return nil, errors.New("device plugin answered Allocate with an empty response")
	}
	return answer.ContainerResponses[0], nil
}

// prefer asks the plugin for the devices that it would choose.
func (p *plugin) prefer(ctx context.Context, available, must []string, count int) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, allocateTimeout)
	defer cancel()
	answer, err := p.client.GetPreferredAllocation(ctx, &pluginapi.PreferredAllocationRequest{ContainerRequests: []*pluginapi.ContainerPreferredAllocationRequest{{
		AvailableDeviceIDs: available, MustIncludeDeviceIDs: must, AllocationSize: int32(count),
	}}})
	if err != nil {
		return nil, err
	}
	if len(answer.ContainerResponses) != 1 {
		return nil, nil // the plugin has no preference
	}
	return answer.ContainerResponses[0].GetDeviceIDs(), nil
}

// preStart tells the plugin that a container with the devices is about to start.
func (p *plugin) preStart(ctx context.Context, devices []string) error {
	ctx, cancel := context.WithTimeout(ctx, preStartTimeout)
	defer cancel()
	_, err := p.client.PreStartContainer(ctx, &pluginapi.PreStartContainerRequest{DevicesIds: devices})
	return err
}
