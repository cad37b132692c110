package fake

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// DevicePlugin is a device plugin. It serves the devices of one resource.
type DevicePlugin struct {
	pluginapi.UnimplementedDevicePluginServer
	Resource string
	Options  *pluginapi.DevicePluginOptions
	// Answer returns the answer to Allocate for these devices; nil is one environment variable.
	Answer func(ids []string) (*pluginapi.ContainerAllocateResponse, error)
	// Prefer returns the preferred devices.
	Prefer func(available, must []string, count int) []string

	plugin

	mu      sync.Mutex
	devices []*pluginapi.Device
	changed chan struct{}
}

// Device makes a healthy device on the given NUMA nodes.
func Device(id string, nodes ...int64) *pluginapi.Device {
	d := &pluginapi.Device{ID: id, Health: pluginapi.Healthy}
	if len(nodes) > 0 {
		d.Topology = &pluginapi.TopologyInfo{}
		for _, n := range nodes {
			d.Topology.Nodes = append(d.Topology.Nodes, &pluginapi.NUMANode{ID: n})
		}
	}
	return d
}

// Set replaces the plugin's devices.
func (p *DevicePlugin) Set(devices ...*pluginapi.Device) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.devices = slices.Clone(devices)
	if p.changed != nil {
		close(p.changed)
	}
	p.changed = make(chan struct{})
}

// Serve listens on a socket. If registry is true, the socket also answers the plugin registry.
func (p *DevicePlugin) Serve(socket string, registry bool) error {
	if p.changed == nil {
		p.Set()
	}
	return p.listen(socket, func(server grpc.ServiceRegistrar) {
		pluginapi.RegisterDevicePluginServer(server, p)
		if registry {
			registerapi.RegisterRegistrationServer(server, pluginRegistration{p: p})
		}
	})
}

// Register serves in a folder of device plugins and registers there.
func (p *DevicePlugin) Register(ctx context.Context, dir, name string) error {
	if err := p.Serve(filepath.Join(dir, name), false); err != nil {
		return err
	}
	connection, err := grpc.NewClient("unix://"+filepath.Join(dir, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	_, err = pluginapi.NewRegistrationClient(connection).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: name, ResourceName: p.Resource, Options: p.Options,
	}, grpc.WaitForReady(true))
	return err
}

func (p *DevicePlugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	if p.Options == nil {
		return &pluginapi.DevicePluginOptions{}, nil
	}
	return p.Options, nil
}

func (p *DevicePlugin) ListAndWatch(_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	for {
		p.mu.Lock()
		devices, changed := p.devices, p.changed
		p.mu.Unlock()
		if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: devices}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (p *DevicePlugin) GetPreferredAllocation(_ context.Context, r *pluginapi.PreferredAllocationRequest) (*pluginapi.PreferredAllocationResponse, error) {
	out := &pluginapi.PreferredAllocationResponse{}
	for _, c := range r.ContainerRequests {
		p.called(fmt.Sprint("GetPreferredAllocation ", c.AvailableDeviceIDs))
		out.ContainerResponses = append(out.ContainerResponses, &pluginapi.ContainerPreferredAllocationResponse{
			DeviceIDs: p.Prefer(c.AvailableDeviceIDs, c.MustIncludeDeviceIDs, int(c.AllocationSize)),
		})
	}
	return out, nil
}

func (p *DevicePlugin) Allocate(_ context.Context, r *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	out := &pluginapi.AllocateResponse{}
	for _, c := range r.ContainerRequests {
		p.called(fmt.Sprint("Allocate ", c.DevicesIds))
		answer := &pluginapi.ContainerAllocateResponse{Envs: map[string]string{"DEVICES": fmt.Sprint(c.DevicesIds)}}
		if p.Answer != nil {
			var err error
			if answer, err = p.Answer(c.DevicesIds); err != nil {
				return nil, err
			}
		}
		out.ContainerResponses = append(out.ContainerResponses, answer)
	}
	return out, nil
}

func (p *DevicePlugin) PreStartContainer(_ context.Context, r *pluginapi.PreStartContainerRequest) (*pluginapi.PreStartContainerResponse, error) {
	p.called(fmt.Sprint("PreStartContainer ", r.DevicesIds))
	return &pluginapi.PreStartContainerResponse{}, nil
}

// pluginRegistration answers the plugin registry.
type pluginRegistration struct {
	registerapi.UnimplementedRegistrationServer
	p *DevicePlugin
}

func (r pluginRegistration) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{Type: registerapi.DevicePlugin, Name: r.p.Resource, SupportedVersions: []string{pluginapi.Version}}, nil
}

func (r pluginRegistration) NotifyRegistrationStatus(_ context.Context, s *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	what := "registered"
	if !s.PluginRegistered {
		what = "refused"
	}
	r.p.called(what)
	return &registerapi.RegistrationStatusResponse{}, nil
}
