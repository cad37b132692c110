package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/insight/spans"
	"github.com/knarr-project/knarr/internal/network/policy"
)

// Mode is how packets reach pods on other nodes.
type Mode string

const (
	// ModeVXLAN encapsulates packets in UDP. It works wherever the nodes reach each other.
	ModeVXLAN Mode = "vxlan"
	// ModeHostGateway routes packets to the other node's address. The nodes must share a layer 2
	// network.
	ModeHostGateway Mode = "host-gw"
	// ModeNone leaves the routes between nodes to other software.
	ModeNone Mode = "none"
)

// Names of the objects that the package makes. Purge recognizes them by these names.
const (
	DefaultGatewayLink = "knarr0"
	DefaultOverlayLink = "knarr.vxlan"
	hostLinkPrefix     = "knarr" // followed by ten hexadecimal digits
	conflistName       = "10-knarr.conflist"
	// PluginType is the name of the plugin's binary in CNIBinDir.
	PluginType = "knarr-cni"
)

// Config configures the pod network of this node. Zero values select the defaults.
type Config struct {
	NodeName string
	Client   client.Interface

	// SocketPath is the socket on which the CNI plugin reaches this agent; default
	// /run/knarr/cni.sock.
	SocketPath string
	// CNIConfDir receives 10-knarr.conflist once the node has a pod range; default /etc/cni/net.d.
	CNIConfDir string
	// DataDir holds one file per attachment; default /var/lib/knarr/network.
	DataDir string

	// ClusterCIDRs contain all pods (10.42.0.0/16). Traffic to them is not masqueraded.
	ClusterCIDRs []netip.Prefix
	// ServiceCIDRs get a route of their own, so that host processes reach Services without a
	// default route.
	ServiceCIDRs []netip.Prefix

	// Isolation puts a pod's network policies in force before ADD returns; nil means that other
	// software does, or nothing.
	Isolation Isolation

	// Spans keeps how long ADD and DEL take, for traces; may be nil.
	Spans *spans.Ring

	Mode Mode // default vxlan
	VNI  int  // default 42
	Port int  // UDP port of the overlay; default 8472
	MTU  int  // MTU of pods; default is the MTU towards the nodes, minus 50 for VXLAN

	GatewayLink string // default knarr0
	OverlayLink string // default knarr.vxlan
}

// Isolation enforces network policies; see policy.Agent.
type Isolation interface {
	// Attach returns once the policies of the attachment's pod are in force.
	Attach(context.Context, policy.Attachment) error
	// Restore records the attachments that an earlier process has made.
	Restore([]policy.Attachment)
	// Detach forgets the attachment with this key. A missing one is no error.
	Detach(key string)
}

func (c *Config) setDefaults() {
	str := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	num := func(n *int, v int) {
		if *n == 0 {
			*n = v
		}
	}
	str(&c.SocketPath, "/run/knarr/cni.sock")
	str(&c.CNIConfDir, "/etc/cni/net.d")
	str(&c.DataDir, "/var/lib/knarr/network")
	str((*string)(&c.Mode), string(ModeVXLAN))
	str(&c.GatewayLink, DefaultGatewayLink)
	str(&c.OverlayLink, DefaultOverlayLink)
	num(&c.VNI, 42)
	num(&c.Port, 8472)
}

func (c *Config) validate() error {
	switch {
	case c.NodeName == "":
		return errors.New("network: the node's name is missing")
	case c.Mode != ModeVXLAN && c.Mode != ModeHostGateway && c.Mode != ModeNone:
		return fmt.Errorf("network: mode %q: want vxlan, host-gw or none", c.Mode)
	case c.VNI < 1 || c.VNI >= 1<<24:
		return fmt.Errorf("network: VNI %d: want 1 to 16777215", c.VNI)
	case c.Port < 1 || c.Port > 65535:
		return fmt.Errorf("network: overlay port %d: want 1 to 65535", c.Port)
	}
	return nil
}

func (c *Config) attachmentDir() string { return filepath.Join(c.DataDir, "attachments") }
