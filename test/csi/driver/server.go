package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

const (
	version = "1.0.0"
	// topologyKey names the node in a volume's topology.
	topologyKey = "topology.hostpath.csi/node"
)

// Driver serves the three services of CSI.
type Driver struct {
	csispec.UnimplementedIdentityServer
	csispec.UnimplementedControllerServer
	csispec.UnimplementedNodeServer
	Options
	log io.Writer

	mu    sync.Mutex // guards what follows; each call holds it
	state state
	loops map[string]*loop // by volume
}

// New reads the driver's state. Calls are logged to log.
func New(options Options, log io.Writer) (*Driver, error) {
	if options.NodeID == "" {
		return nil, errors.New("the flag --nodeid is empty: give the node's id")
	}
	if options.Capacity == 0 {
		options.Capacity = 100 << 30
	}
	d := &Driver{Options: options, log: log, loops: map[string]*loop{}}
	for _, dir := range []string{volumesDir, snapshotsDir} {
		if err := os.MkdirAll(filepath.Join(options.StateDir, dir), 0o750); err != nil {
			return nil, err
		}
	}
	return d, d.load()
}

// Run serves the driver, or the proxy, until ctx ends.
func Run(ctx context.Context, options Options, log io.Writer) error {
	if options.ProxyEndpoint != "" {
		return proxy(ctx, options, log)
	}
	d, err := New(options, log)
	if err != nil {
		return err
	}
	listener, err := listen(options.Endpoint)
	if err != nil {
		return err
	}
	return d.Serve(ctx, listener)
}

// listen replaces a socket that an earlier process left.
func listen(endpoint string) (net.Listener, error) {
	path, err := socketOf(endpoint)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return net.Listen("unix", path)
}

// Serve answers calls until ctx ends.
func (d *Driver) Serve(ctx context.Context, listener net.Listener) error {
	server := grpc.NewServer(grpc.UnaryInterceptor(d.intercept))
	csispec.RegisterIdentityServer(server, d)
	csispec.RegisterControllerServer(server, d)
	csispec.RegisterNodeServer(server, d)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	err := server.Serve(listener)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.loops {
		l.close()
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// intercept serializes the calls and logs each one. Upstream's tests read the log.
func (d *Driver) intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	response, err := handle(ctx, request)
	entry := struct {
		Method            string
		Request, Response any
		Error             string
		FullError         any
	}{Method: info.FullMethod, Request: request, Response: response}
	if err != nil {
		entry.Error, entry.FullError, entry.Response = err.Error(), status.Convert(err).Proto(), nil
	}
	if line, encodeErr := json.Marshal(entry); encodeErr == nil {
		fmt.Fprintf(d.log, "gRPCCall: %s\n", line)
	}
	return response, err
}

// GetPluginInfo returns the driver's name.
func (d *Driver) GetPluginInfo(context.Context, *csispec.GetPluginInfoRequest) (*csispec.GetPluginInfoResponse, error) {
	return &csispec.GetPluginInfoResponse{Name: d.Name, VendorVersion: version}, nil
}

// Probe reports that the driver works.
func (d *Driver) Probe(context.Context, *csispec.ProbeRequest) (*csispec.ProbeResponse, error) {
	return &csispec.ProbeResponse{}, nil
}

// GetPluginCapabilities returns the driver's services.
func (d *Driver) GetPluginCapabilities(context.Context, *csispec.GetPluginCapabilitiesRequest) (*csispec.GetPluginCapabilitiesResponse, error) {
	services := []csispec.PluginCapability_Service_Type{csispec.PluginCapability_Service_CONTROLLER_SERVICE}
	if d.Topology {
		services = append(services, csispec.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
	}
	response := &csispec.GetPluginCapabilitiesResponse{}
	for _, service := range services {
		response.Capabilities = append(response.Capabilities, &csispec.PluginCapability{
			Type: &csispec.PluginCapability_Service_{Service: &csispec.PluginCapability_Service{Type: service}},
		})
	}
	return response, nil
}
