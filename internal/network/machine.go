package network

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// defaultMTU is the pods' MTU if the link to other nodes is unknown or the loopback.
const defaultMTU = 1500

// prepareMachine sets the sysctls that forwarding needs, and logs once what the machine does not
// allow.
func (n *Network) prepareMachine() {
	for _, s := range []struct{ path, why string }{
		{"/proc/sys/net/ipv4/ip_forward", "pods reach nothing but their own node"},
		{"/proc/sys/net/ipv6/conf/all/forwarding", "pods' IPv6 reaches nothing but their own node"},
	} {
		if err := ensureSysctl(s.path, "1"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			n.warnOnce(s.path, "forwarding cannot be switched on: "+s.why, "error", err, "remedy", "sysctl -w "+sysctlName(s.path)+"=1 on the host")
		}
	}
	if chains := droppingFirewalls(); len(chains) > 0 {
		n.warnOnce("firewall", "another firewall drops forwarded packets by policy; pods may not reach other nodes or the outside",
			"chains", strings.Join(chains, ", "), "remedy", "accept forwarded packets from and to the pod range in that firewall")
	}
}

func sysctlName(path string) string {
	return strings.ReplaceAll(strings.TrimPrefix(path, "/proc/sys/"), "/", ".")
}

func ensureSysctl(path, value string) error {
	have, err := os.ReadFile(path)
	if err != nil || strings.TrimSpace(string(have)) == value {
		return err
	}
	return os.WriteFile(path, []byte(value), 0)
}

// podMTU is the MTU of pods' links. It leaves room for VXLAN below the MTU of the link to other
// nodes.
func (n *Network) podMTU(self *corev1.Node) int {
	if n.cfg.MTU > 0 {
		return n.cfg.MTU
	}
	mtu, addr := defaultMTU, overlayAddress(self)
	if addr.IsValid() {
		if link, err := linkOf(addr); err == nil && link.Attrs().Flags&net.FlagLoopback == 0 {
			mtu = link.Attrs().MTU
		}
	}
	if n.cfg.Mode == ModeVXLAN {
		mtu -= vxlanOverhead(addr)
	}
	return mtu
}

// ensureGateway makes the link with the gateway addresses and routes the Services to it. A host
// process without a default route thereby gets a route and a source address for Services. The link
// is a bridge without ports, because some kernels have no dummy links.
func ensureGateway(cfg Config, p plumbing) error {
	link, err := netlink.LinkByName(cfg.GatewayLink)
	if isGone(err) {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU, attrs.HardwareAddr = cfg.GatewayLink, p.mtu, hostMAC(p.gateways[0])
		link = &netlink.Bridge{LinkAttrs: attrs}
		err = netlink.LinkAdd(link)
	}
	if err != nil {
		return fmt.Errorf("link %s: %w", cfg.GatewayLink, err)
	}
	if err := claim(cfg, link); err != nil {
		return err
	}
	if err := keepAddresses(link, p.gateways); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("link %s up: %w", cfg.GatewayLink, err)
	}
	for _, services := range cfg.ServiceCIDRs {
		gw := p.gatewayFor(services.Addr())
		if !gw.IsValid() {
			continue
		}
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(services), Scope: netlink.SCOPE_LINK, Src: gw.AsSlice(), Protocol: routeProtocol}
		if err := netlink.RouteReplace(route); err != nil {
			return fmt.Errorf("route to Services %s: %w", services, err)
		}
	}
	return nil
}

// keepAddresses gives the link exactly these addresses, except for IPv6's link-local one.
func keepAddresses(link netlink.Link, want []netip.Addr) error {
	have, err := dump(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("addresses of %s: %w", link.Attrs().Name, err)
	}
	for _, a := range have {
		keep := a.IP.IsLinkLocalUnicast()
		for _, w := range want {
			keep = keep || a.IP.Equal(w.AsSlice())
		}
		if !keep {
			if err := netlink.AddrDel(link, &a); err != nil && !isGone(err) {
				return fmt.Errorf("old address %s of %s: %w", a.IP, link.Attrs().Name, err)
			}
		}
	}
	for _, w := range want {
		addr := &netlink.Addr{IPNet: hostNet(w)}
		if !w.Is4() {
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrReplace(link, addr); err != nil {
			return fmt.Errorf("address %s on %s: %w", w, link.Attrs().Name, err)
		}
	}
	return nil
}

// writeConflist writes the CNI configuration, which tells the container runtime that the pod
// network is ready. Another plugin's configuration in the folder takes precedence; knarr's is
// removed then.
func (n *Network) writeConflist() error {
	path := filepath.Join(n.cfg.CNIConfDir, conflistName)
	if other := otherConfig(n.cfg.CNIConfDir); other != "" {
		n.warnOnce("cni", "another pod network is configured and is used instead of knarr's", "file", other)
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("CNI configuration: %w", err)
		}
		return nil
	}
	// The version is 1.0.0 although the plugin supports 1.1. With 1.1, runtimes call the plugin's
	// STATUS again and again, although the presence of this file has the same meaning.
	want, err := json.MarshalIndent(map[string]any{
		"cniVersion": "1.0.0", "name": "knarr",
		"plugins": []any{map[string]any{"type": PluginType, "socketPath": n.cfg.SocketPath, "capabilities": map[string]bool{"portMappings": true}}},
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("CNI configuration: %w", err)
	}
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, want) {
		return nil
	}
	if err := os.MkdirAll(n.cfg.CNIConfDir, 0o755); err != nil {
		return fmt.Errorf("CNI configuration: %w", err)
	}
	// Runtimes do not read files with this suffix.
	if err := os.WriteFile(path+".new", want, 0o644); err != nil {
		return fmt.Errorf("CNI configuration: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("CNI configuration: %w", err)
	}
	slog.Info("pod network is ready", "gateways", n.plumbing.gateways, "mtu", n.plumbing.mtu)
	return nil
}

// otherConfig returns the name of another plugin's CNI configuration, or "".
func otherConfig(dir string) string {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		switch ext := filepath.Ext(e.Name()); {
		case e.Name() == conflistName, e.IsDir():
		case ext == ".conf", ext == ".conflist", ext == ".json":
			return filepath.Join(dir, e.Name())
		}
	}
	return ""
}

func linkExists(name string) bool {
	_, err := net.InterfaceByName(name)
	return err == nil
}

func namespaceExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
