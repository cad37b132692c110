package volume

import (
	"context"
	"fmt"
	"log/slog"
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
	// RootDir is the node agent's folder. Volumes are staged in RootDir/plugins.
	RootDir string
	// Announce returns when the node's status lists a volume as in use, so that the cluster does
	// not detach it. May be nil.
	Announce func(ctx context.Context, volume string) error
	// Released is called when a volume is not in use any more. May be nil.
	Released func()
	// Events records what happens to volumes on their pods. May be nil.
	Events client.Recorder
	Log    *slog.Logger
}

// CSI holds the drivers registered on this node. It is safe for concurrent use.
type CSI struct {
	CSIOptions

	records *csiRecords
	// staging has a key for each volume: its users do not change while it is staged or unstaged.
	staging *operations
	// exhausted receives the name of a driver that has no room for another volume.
	exhausted chan string

	writing sync.Mutex // held while the Node and the CSINode are read and changed

	mu       sync.Mutex            // guards what follows
	drivers  map[string]*csiDriver // by name
	gone     map[string]bool       // deregistered drivers that the CSINode still has
	abnormal map[string]string     // the last reported condition of volumes, by target path
}

// csiDriver is a registered driver.
type csiDriver struct {
	name         string
	socket       string // the registration socket
	refreshed    time.Time
	connection   *grpc.ClientConn
	node         csispec.NodeClient
	nodeID       string
	capabilities map[csispec.NodeServiceCapability_RPC_Type]bool
}

// NewCSI makes an empty registry.
func NewCSI(options CSIOptions) *CSI {
	if options.Log == nil {
		options.Log = slog.Default()
	}
	return &CSI{
		CSIOptions: options, records: &csiRecords{rootDir: options.RootDir}, staging: newOperations(), exhausted: make(chan string, 1),
		drivers: map[string]*csiDriver{}, gone: map[string]bool{}, abnormal: map[string]string{},
	}
}

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

// maxCSIMessage limits each message of a driver.
const maxCSIMessage = 4 << 20

// dialSocket connects to a gRPC server on this machine. Every call has a deadline.
func dialSocket(path string) (*grpc.ClientConn, error) {
	bounded := func(ctx context.Context, method string, request, reply any, connection *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		ctx, cancel := context.WithTimeout(ctx, csiTimeout)
		defer cancel()
		return invoke(ctx, method, request, reply, connection, options...)
	}
	return grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxCSIMessage)), grpc.WithUnaryInterceptor(bounded))
}

// dialCSI connects to a driver's endpoint and reads its identity.
func dialCSI(ctx context.Context, name, endpoint string) (*csiDriver, *csispec.NodeGetInfoResponse, error) {
	connection, err := dialSocket(endpoint)
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
