package network

import (
	"fmt"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
)

// ownerPrefix begins the alias of the gateway link. The data folder of the owning pod network
// follows. An alias has at most 255 bytes, so a longer folder is not recorded.
const (
	ownerPrefix = "knarr "
	maxAlias    = 255
)

// Owner returns the data folder (Config.DataDir) of the pod network in this network namespace. It
// is empty if there is none or the folder no longer exists.
func Owner() (string, error) {
	link, err := netlink.LinkByName(DefaultGatewayLink)
	if isGone(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("link %s: %w", DefaultGatewayLink, err)
	}
	return ownerOf(link), nil
}

func ownerOf(link netlink.Link) string {
	dir, ours := strings.CutPrefix(link.Attrs().Alias, ownerPrefix)
	if !ours {
		return ""
	}
	if _, err := os.Stat(dir); err != nil {
		return ""
	}
	return dir
}

// claim records this pod network as owner of the gateway link. It returns an error if the link
// belongs to another cluster.
func claim(cfg Config, gateway netlink.Link) error {
	if owner := ownerOf(gateway); owner != "" && owner != cfg.DataDir {
		return fmt.Errorf("link %s belongs to the pod network of %s: one network namespace has one node; purge that cluster, or start this node in a network namespace of its own", gateway.Attrs().Name, owner)
	}
	alias := ownerPrefix + cfg.DataDir
	if gateway.Attrs().Alias == alias || len(alias) > maxAlias {
		return nil
	}
	if err := netlink.LinkSetAlias(gateway, alias); err != nil {
		return fmt.Errorf("alias of link %s: %w", gateway.Attrs().Name, err)
	}
	return nil
}
