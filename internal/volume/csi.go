package volume

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/knarr-project/knarr/internal/client"
)

// csiTimeout limits one call to a driver. The pod's next attempt repeats the call; drivers are
// idempotent.
const csiTimeout = 2 * time.Minute

// CSIOptions configures the node's side of CSI.
type CSIOptions struct {
	Client   client.Interface
	NodeName string
	// RootDir is the node agent's folder. Drivers register in RootDir/plugins_registry; volumes are
	// staged in RootDir/plugins.
	RootDir string
	Log     *slog.Logger
}

// CSI holds the drivers registered on this node. It is safe for concurrent use.
type CSI struct {
	CSIOptions

	mu      sync.Mutex            // guards drivers
	drivers map[string]*csiDriver // by name

	// serializes stage and unstage, so that the users of a staged volume do not change meanwhile
	staging sync.Mutex
}

// csiDriver is a registered driver.
type csiDriver struct {
	name         string
	socket       string // the registration socket
	connection   *grpc.ClientConn
	node         csispec.NodeClient
	nodeID       string
	capabilities map[csispec.NodeServiceCapability_RPC_Type]bool
}

// NewCSI makes an empty registry. Drivers can register while Run runs.
func NewCSI(options CSIOptions) *CSI {
	if options.Log == nil {
		options.Log = slog.Default()
	}
	return &CSI{CSIOptions: options, drivers: map[string]*csiDriver{}}
}

// RegistrationDir is the folder for the drivers' registration sockets.
func (c *CSI) RegistrationDir() string { return filepath.Join(c.RootDir, "plugins_registry") }

// driver returns a registered driver.
func (c *CSI) driver(name string) (*csiDriver, error) {
	if c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if driver, found := c.drivers[name]; found {
			return driver, nil
		}
	}
	return nil, fmt.Errorf("driver name %s not found in the list of registered CSI drivers", name)
}

// dialCSI connects to a driver's endpoint and reads its identity.
func dialCSI(ctx context.Context, name, endpoint string) (*csiDriver, *csispec.NodeGetInfoResponse, error) {
	connection, err := grpc.NewClient("unix://"+endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, nil, err
	}
	driver := &csiDriver{name: name, connection: connection, node: csispec.NewNodeClient(connection), capabilities: map[csispec.NodeServiceCapability_RPC_Type]bool{}}
	info, err := driver.node.NodeGetInfo(ctx, &csispec.NodeGetInfoRequest{})
	if err != nil {
		connection.Close()
		return nil, nil, fmt.Errorf("NodeGetInfo: %w", err)
	}
	driver.nodeID = info.NodeId
	capabilities, err := driver.node.NodeGetCapabilities(ctx, &csispec.NodeGetCapabilitiesRequest{})
	if err != nil {
		connection.Close()
		return nil, nil, fmt.Errorf("NodeGetCapabilities: %w", err)
	}
	for _, capability := range capabilities.Capabilities {
		driver.capabilities[capability.GetRpc().GetType()] = true
	}
	return driver, info, nil
}
