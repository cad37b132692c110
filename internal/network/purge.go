package network

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"github.com/knarr-project/knarr/internal/network/nft"
)

// Purge removes everything that the pod network and the proxy leave on a machine: pods' links,
// gateway, overlay, routes, the nftables table, attachment files, libcni's cached results, the
// socket and the CNI configuration. Missing parts are no error.
//
// Settings such as net.ipv4.ip_forward stay, because other software may rely on them. If another
// cluster has its pod network in this network namespace, its links, routes and rules stay too.
func Purge(cfg Config) error {
	cfg.setDefaults()
	var errs []error
	if !ownedByAnother(cfg) {
		errs = append(errs, purgeKernel(cfg))
	}
	errs = append(errs, purgeResults(cniFolder, cfg.SocketPath), os.RemoveAll(cfg.attachmentDir()))
	for _, path := range []string{cfg.SocketPath, filepath.Join(cfg.CNIConfDir, conflistName)} {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("network: purge: %w", err)
	}
	return nil
}

func ownedByAnother(cfg Config) bool {
	gateway, err := netlink.LinkByName(cfg.GatewayLink)
	if err != nil {
		return false
	}
	owner := ownerOf(gateway)
	return owner != "" && owner != cfg.DataDir
}

// purgeKernel removes links, routes and rules.
func purgeKernel(cfg Config) error {
	var errs []error
	links, err := dump(netlink.LinkList)
	if err != nil {
		errs = append(errs, fmt.Errorf("links: %w", err))
	}
	for _, link := range links {
		name := link.Attrs().Name
		if name != cfg.GatewayLink && name != cfg.OverlayLink && !isHostLink(name) {
			continue
		}
		if err := netlink.LinkDel(link); err != nil && !isGone(err) {
			errs = append(errs, fmt.Errorf("link %s: %w", name, err))
		}
	}
	routes, err := dump(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: routeProtocol}, netlink.RT_FILTER_PROTOCOL)
	})
	if err != nil {
		errs = append(errs, fmt.Errorf("routes: %w", err))
	}
	for _, r := range routes {
		if err := netlink.RouteDel(&r); err != nil && !isGone(err) {
			errs = append(errs, fmt.Errorf("route %s: %w", r.Dst, err))
		}
	}
	return errors.Join(append(errs, purgeTable())...)
}

func purgeTable() error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	c.DelTable(nft.Table())
	if err := c.Flush(); err != nil && !nft.Absent(err) {
		return fmt.Errorf("nftables table %s: %w", nft.TableName, err)
	}
	return nil
}
