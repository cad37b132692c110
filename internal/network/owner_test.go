package network

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/knarr-project/knarr/internal/network/nettest"
)

func TestThePodNetworkOfAnotherClusterIsLeftAlone(t *testing.T) {
	nettest.Need(t)
	cluster := func(name string) Config {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		c := Config{NodeName: name, DataDir: dir, SocketPath: filepath.Join(dir, "cni.sock"), CNIConfDir: filepath.Join(dir, "net.d"), GatewayLink: DefaultGatewayLink}
		c.setDefaults()
		return c
	}
	one, two := cluster("one"), cluster("two")
	p := plumbing{mtu: 1450, gateways: []netip.Addr{netip.MustParseAddr("10.42.0.1")}}
	owner := func(want string) {
		t.Helper()
		if got, err := Owner(); err != nil || got != want {
			t.Errorf("the owner is %q, %v; want %q", got, err, want)
		}
	}
	owner("")
	for range 2 {
		if err := ensureGateway(one, p); err != nil {
			t.Fatal(err)
		}
		owner(one.DataDir)
	}
	if err := ensureGateway(two, p); err == nil || !strings.Contains(err.Error(), one.DataDir) {
		t.Errorf("a second cluster takes the gateway: %v", err)
	}
	if err := Purge(two); err != nil {
		t.Error(err)
	}
	owner(one.DataDir)
	// A cluster without a data folder gives up its links to the next cluster.
	if err := os.RemoveAll(one.DataDir); err != nil {
		t.Fatal(err)
	}
	owner("")
	if err := ensureGateway(two, p); err != nil {
		t.Fatal(err)
	}
	owner(two.DataDir)
	if err := Purge(two); err != nil {
		t.Error(err)
	}
	if _, err := netlink.LinkByName(DefaultGatewayLink); err == nil {
		t.Error("the gateway is left")
	}
}
