package fake

import (
	"context"
	"fmt"
	"path/filepath"

	"google.golang.org/grpc"
	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	draapi "k8s.io/kubelet/pkg/apis/dra/v1"
	drabeta "k8s.io/kubelet/pkg/apis/dra/v1beta1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Driver is a driver of dynamic resources. Each claim gets one device.
type Driver struct {
	draapi.UnimplementedDRAPluginServer
	healthapi.UnimplementedDRAResourceHealthServer
	registerapi.UnimplementedRegistrationServer
	Name string
	// Beta makes the driver serve v1beta1 only.
	Beta bool
	// Fail returns the error of a claim, for the call "prepare" or "unprepare".
	Fail func(call string, claim *draapi.Claim) error

	plugin
	endpoint string
	health   chan *healthapi.NodeWatchResourcesResponse
}

// Serve listens in a plugin registry.
func (d *Driver) Serve(registry string) error {
	d.health = make(chan *healthapi.NodeWatchResourcesResponse, 8)
	d.endpoint = filepath.Join(registry, d.Name+".sock")
	return d.listen(d.endpoint, func(server grpc.ServiceRegistrar) {
		registerapi.RegisterRegistrationServer(server, d)
		if d.Beta {
			drabeta.RegisterDRAPluginServer(server, betaDriver{d: d})
			return
		}
		draapi.RegisterDRAPluginServer(server, d)
		healthapi.RegisterDRAResourceHealthServer(server, d)
	})
}

// Report reports the health of the device of a claim.
func (d *Driver) Report(claim string, health healthapi.HealthStatus, message string, timeout int64) {
	d.health <- &healthapi.NodeWatchResourcesResponse{Devices: []*healthapi.DeviceHealth{{
		Device: &healthapi.DeviceIdentifier{PoolName: "pool", DeviceName: "device-" + claim}, Health: health, Message: message, HealthCheckTimeoutSeconds: timeout,
	}}}
}

func (d *Driver) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	versions := []string{draapi.DRAPluginService, "v1alpha1.DRAResourceHealth"}
	if d.Beta {
		versions = []string{drabeta.DRAPluginService}
	}
	return &registerapi.PluginInfo{Type: registerapi.DRAPlugin, Name: d.Name, Endpoint: d.endpoint, SupportedVersions: versions}, nil
}

func (d *Driver) NotifyRegistrationStatus(_ context.Context, s *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	d.called(fmt.Sprint("registered ", s.PluginRegistered))
	return &registerapi.RegistrationStatusResponse{}, nil
}

func (d *Driver) NodePrepareResources(_ context.Context, r *draapi.NodePrepareResourcesRequest) (*draapi.NodePrepareResourcesResponse, error) {
	out := &draapi.NodePrepareResourcesResponse{Claims: map[string]*draapi.NodePrepareResourceResponse{}}
	for _, c := range r.Claims {
		d.called("prepare " + c.Name)
		result := &draapi.NodePrepareResourceResponse{Devices: []*draapi.Device{{
			RequestNames: []string{"main/first"}, PoolName: "pool", DeviceName: "device-" + c.Name, CdiDeviceIds: []string{d.Name + "/device=" + c.Name},
		}}}
		if d.Fail != nil {
			if err := d.Fail("prepare", c); err != nil {
				result = &draapi.NodePrepareResourceResponse{Error: err.Error()}
			}
		}
		out.Claims[c.Uid] = result
	}
	return out, nil
}

func (d *Driver) NodeUnprepareResources(_ context.Context, r *draapi.NodeUnprepareResourcesRequest) (*draapi.NodeUnprepareResourcesResponse, error) {
	out := &draapi.NodeUnprepareResourcesResponse{Claims: map[string]*draapi.NodeUnprepareResourceResponse{}}
	for _, c := range r.Claims {
		d.called("unprepare " + c.Name)
		result := &draapi.NodeUnprepareResourceResponse{}
		if d.Fail != nil {
			if err := d.Fail("unprepare", c); err != nil {
				result.Error = err.Error()
			}
		}
		out.Claims[c.Uid] = result
	}
	return out, nil
}

func (d *Driver) NodeWatchResources(_ *healthapi.NodeWatchResourcesRequest, stream grpc.ServerStreamingServer[healthapi.NodeWatchResourcesResponse]) error {
	for {
		select {
		case report := <-d.health:
			if err := stream.Send(report); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

// betaDriver serves v1beta1.
type betaDriver struct {
	drabeta.UnimplementedDRAPluginServer
	d *Driver
}

func (b betaDriver) NodePrepareResources(ctx context.Context, r *drabeta.NodePrepareResourcesRequest) (*drabeta.NodePrepareResourcesResponse, error) {
	in := &draapi.NodePrepareResourcesRequest{}
	for _, c := range r.Claims {
		in.Claims = append(in.Claims, &draapi.Claim{Namespace: c.Namespace, Name: c.Name, Uid: c.Uid})
	}
	answer, err := b.d.NodePrepareResources(ctx, in)
	if err != nil {
		return nil, err
	}
	out := &drabeta.NodePrepareResourcesResponse{Claims: map[string]*drabeta.NodePrepareResourceResponse{}}
	for uid, c := range answer.Claims {
		result := &drabeta.NodePrepareResourceResponse{Error: c.Error}
		for _, device := range c.Devices {
			result.Devices = append(result.Devices, &drabeta.Device{
				RequestNames: device.RequestNames, PoolName: device.PoolName, DeviceName: device.DeviceName, CdiDeviceIds: device.CdiDeviceIds,
			})
		}
		out.Claims[uid] = result
	}
	return out, nil
}

func (b betaDriver) NodeUnprepareResources(_ context.Context, r *drabeta.NodeUnprepareResourcesRequest) (*drabeta.NodeUnprepareResourcesResponse, error) {
	out := &drabeta.NodeUnprepareResourcesResponse{Claims: map[string]*drabeta.NodeUnprepareResourceResponse{}}
	for _, c := range r.Claims {
		b.d.called("unprepare " + c.Name)
		out.Claims[c.Uid] = &drabeta.NodeUnprepareResourceResponse{}
	}
	return out, nil
}
