package driver

import (
	"errors"
	"flag"
	"fmt"
	"strings"
)

// Options configures a driver. The flags of the same meaning are in Flags.
type Options struct {
	Name, NodeID, Endpoint, StateDir, ProxyEndpoint string
	// MaxVolumes is the number of volumes that can be attached to the node; 0 means no limit.
	MaxVolumes int64
	// Capacity is the sum of the sizes of all volumes; 0 means 100 GiB.
	Capacity int64
	// Attach announces ControllerPublishVolume.
	Attach bool
	// Topology restricts volumes to the node.
	Topology bool
	// Expansion announces ControllerExpandVolume; NodeExpansion makes it request NodeExpandVolume.
	Expansion, NodeExpansion bool
	// CheckLifecycle refuses calls in another order than the specification's.
	CheckLifecycle bool
	// Modify announces ControllerModifyVolume for the parameters in Mutable; all if it is empty.
	Modify  bool
	Mutable []string
}

// Flags adds the options to a set of flags.
func (o *Options) Flags(f *flag.FlagSet) {
	f.StringVar(&o.Name, "drivername", "hostpath.csi.k8s.io", "name of the driver")
	f.StringVar(&o.NodeID, "nodeid", "", "id of the node")
	f.StringVar(&o.Endpoint, "endpoint", "unix://tmp/csi.sock", "socket to serve CSI on")
	f.StringVar(&o.StateDir, "statedir", "/csi-data-dir", "folder for volumes and snapshots")
	f.StringVar(&o.ProxyEndpoint, "proxy-endpoint", "", "serve nothing, and join the socket with this TCP address (tcp://HOST:PORT)")
	f.Int64Var(&o.MaxVolumes, "maxvolumespernode", 0, "limit of attached volumes; 0 is none")
	f.Int64Var(&o.MaxVolumes, "attach-limit", 0, "the same as --maxvolumespernode")
	f.Int64Var(&o.Capacity, "capacity", 0, "bytes for all volumes; 0 is 100 GiB")
	f.BoolVar(&o.Attach, "enable-attach", false, "support attachment")
	f.BoolVar(&o.Topology, "enable-topology", true, "report the node as a topology segment")
	f.BoolVar(&o.Expansion, "enable-volume-expansion", true, "support larger volumes")
	f.BoolVar(&o.NodeExpansion, "node-expand-required", true, "let the node take part in an expansion")
	f.BoolVar(&o.CheckLifecycle, "check-volume-lifecycle", false, "refuse calls in a wrong order")
	f.BoolVar(&o.Modify, "enable-controller-modify-volume", false, "support changed parameters")
	f.Func("accepted-mutable-parameter-names", "names of parameters that may change, separated by commas", func(value string) error {
		o.Mutable = strings.Split(value, ",")
		return nil
	})
	f.Int("v", 0, "ignored: each call is logged")
}

// socketOf returns the path of an endpoint: a path, unix:PATH or unix://PATH.
func socketOf(endpoint string) (string, error) {
	path := strings.TrimPrefix(strings.TrimPrefix(endpoint, "unix:"), "//")
	switch {
	case path == "":
		return "", errors.New("endpoint is empty")
	case strings.Contains(path, "://"):
		return "", fmt.Errorf("endpoint %q: want a path or unix://PATH", endpoint)
	case strings.HasPrefix(endpoint, "unix://") && !strings.HasPrefix(path, "/"):
		path = "/" + path
	}
	return path, nil
}
