package dra

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	draapi "k8s.io/kubelet/pkg/apis/dra/v1"
	drabeta "k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"github.com/knarr-project/knarr/internal/kubelet/plugins"
)

// healthService is the version by which a driver announces that it reports the health of devices.
const healthService = "v1alpha1.DRAResourceHealth"

// driver is one registered instance of a driver. All calls share one connection.
type driver struct {
	name       string
	socket     string // of the registration
	connection *grpc.ClientConn
	service    draapi.DRAPluginClient
	cancel     context.CancelFunc
	done       chan struct{}
	// connected is guarded by Manager.mu.
	connected bool
}

// driver returns the newest instance of a driver, a connected one if there is one. It returns nil
// if the driver is not registered.
func (m *Manager) driver(name string) *driver {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.drivers[name]
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].connected {
			return list[i]
		}
	}
	if len(list) > 0 {
		return list[len(list)-1]
	}
	return nil
}

// handler registers drivers.
type handler struct {
	m    *Manager
	life context.Context //nolint:containedctx // drivers outlive the call that registers them
}

// Handler returns the handler for plugins of the type DRAPlugin. Drivers are used until life ends.
func (m *Manager) Handler(life context.Context) plugins.Handler { return &handler{m, life} }

func (h *handler) Register(_ context.Context, p plugins.Plugin) error {
	v1, beta := slices.Contains(p.Versions, draapi.DRAPluginService), slices.Contains(p.Versions, drabeta.DRAPluginService)
	if !v1 && !beta {
		return fmt.Errorf("DRA driver %s supports the services %q; this node needs %s or %s", p.Name, p.Versions, draapi.DRAPluginService, drabeta.DRAPluginService)
	}
	connection, err := plugins.Dial(p.Endpoint, grpc.WithIdleTimeout(0), grpc.WithConnectParams(grpc.ConnectParams{
		Backoff: backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, MaxDelay: 5 * time.Second}, MinConnectTimeout: 5 * time.Second,
	}))
	if err != nil {
		return fmt.Errorf("DRA driver %s: %w", p.Name, err)
	}
	life, cancel := context.WithCancel(h.life)
	d := &driver{name: p.Name, socket: p.Socket, connection: connection, cancel: cancel, done: make(chan struct{})}
	if v1 {
		d.service = draapi.NewDRAPluginClient(connection)
	} else {
		d.service = betaService{drabeta.NewDRAPluginClient(connection)}
	}
	h.m.mu.Lock()
	h.m.drivers[p.Name] = append(h.m.drivers[p.Name], d)
	h.m.mu.Unlock()
	h.m.Log.Info("DRA driver registered", "driver", p.Name, "socket", p.Endpoint)
	go func() {
		defer close(d.done)
		defer connection.Close()
		watching := make(chan struct{})
		go func() {
			defer close(watching)
			if slices.Contains(p.Versions, healthService) {
				h.m.watchHealth(life, d, healthapi.NewDRAResourceHealthClient(connection))
			}
		}()
		h.m.watchConnection(life, h.life, d)
		<-watching
	}()
	return nil
}

func (h *handler) Deregister(p plugins.Plugin) {
	h.m.mu.Lock()
	var gone *driver
	h.m.drivers[p.Name] = slices.DeleteFunc(h.m.drivers[p.Name], func(d *driver) bool {
		if d.socket == p.Socket {
			gone = d
		}
		return d.socket == p.Socket
	})
	if len(h.m.drivers[p.Name]) == 0 {
		delete(h.m.drivers, p.Name)
	}
	h.m.mu.Unlock()
	if gone == nil {
		return
	}
	gone.cancel()
	<-gone.done
	h.m.presence(h.life, p.Name)
	h.m.forgetHealth(p.Name)
	h.m.Log.Info("DRA driver deregistered", "driver", p.Name)
}

// watchConnection keeps the driver connected and notes whether it is, until ctx ends.
func (m *Manager) watchConnection(ctx, life context.Context, d *driver) {
	for {
		state := d.connection.GetState()
		m.mu.Lock()
		d.connected = state == connectivity.Ready
		m.mu.Unlock()
		m.presence(life, d.name)
		if state == connectivity.Idle {
			d.connection.Connect()
		}
		if !d.connection.WaitForStateChange(ctx, state) {
			return
		}
	}
}

// betaService offers a driver of v1beta1 as one of v1. The messages differ by one optional field.
type betaService struct{ beta drabeta.DRAPluginClient }

func (b betaService) NodePrepareResources(ctx context.Context, in *draapi.NodePrepareResourcesRequest, opts ...grpc.CallOption) (*draapi.NodePrepareResourcesResponse, error) {
	answer, err := b.beta.NodePrepareResources(ctx, &drabeta.NodePrepareResourcesRequest{Claims: betaClaims(in.Claims)}, opts...)
	if err != nil {
		return nil, err
	}
	out := &draapi.NodePrepareResourcesResponse{Claims: map[string]*draapi.NodePrepareResourceResponse{}}
	for uid, c := range answer.GetClaims() {
		result := &draapi.NodePrepareResourceResponse{Error: c.GetError()}
		for _, d := range c.GetDevices() {
			result.Devices = append(result.Devices, &draapi.Device{
				RequestNames: d.GetRequestNames(), PoolName: d.GetPoolName(), DeviceName: d.GetDeviceName(), CdiDeviceIds: d.GetCdiDeviceIds(),
			})
		}
		out.Claims[uid] = result
	}
	return out, nil
}

func (b betaService) NodeUnprepareResources(ctx context.Context, in *draapi.NodeUnprepareResourcesRequest, opts ...grpc.CallOption) (*draapi.NodeUnprepareResourcesResponse, error) {
	answer, err := b.beta.NodeUnprepareResources(ctx, &drabeta.NodeUnprepareResourcesRequest{Claims: betaClaims(in.Claims)}, opts...)
	if err != nil {
		return nil, err
	}
	out := &draapi.NodeUnprepareResourcesResponse{Claims: map[string]*draapi.NodeUnprepareResourceResponse{}}
	for uid, c := range answer.GetClaims() {
		out.Claims[uid] = &draapi.NodeUnprepareResourceResponse{Error: c.GetError()}
	}
	return out, nil
}

func betaClaims(list []*draapi.Claim) []*drabeta.Claim {
	var out []*drabeta.Claim
	for _, c := range list {
		out = append(out, &drabeta.Claim{Namespace: c.Namespace, Uid: c.Uid, Name: c.Name})
	}
	return out
}
