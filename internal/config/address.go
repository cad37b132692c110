package config

import (
	"cmp"
	"net"
	"net/netip"
	"strings"
)

// ownLinks begins the names of the pod network's links.
const ownLinks = "knarr"

// NodeAddress is the node's address in the cluster.
func (c *Config) NodeAddress() string { return cmp.Or(c.NodeIP, c.AdvertiseAddress) }

func isUnspecified(address string) bool {
	ip, err := netip.ParseAddr(address)
	return err == nil && ip.IsUnspecified()
}

// advertiseAddress guesses the address at which other machines reach this one. It asks the kernel
// for the source address of a route, which sends nothing. A machine with loopback only gets
// 127.0.0.1.
func advertiseAddress() string {
	if conn, err := net.Dial("udp", "192.0.2.1:9"); err == nil {
		defer conn.Close()
		if a, ok := conn.LocalAddr().(*net.UDPAddr); ok && !a.IP.IsLoopback() && !a.IP.IsUnspecified() {
			return a.IP.String()
		}
	}
	links, _ := net.Interfaces()
	for _, link := range links {
		if strings.HasPrefix(link.Name, ownLinks) {
			continue // left by an earlier run; the node's address must not change
		}
		addrs, _ := link.Addrs()
		for _, a := range addrs {
			if ipnet, ok := a.(*net.IPNet); ok && ipnet.IP.IsGlobalUnicast() && ipnet.IP.To4() != nil {
				return ipnet.IP.String()
			}
		}
	}
	return "127.0.0.1"
}
