package traffic

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/network/nettest"
	"github.com/knarr-project/knarr/internal/network/nft"
)

func TestMain(m *testing.M) { nettest.Main(m) }

var cluster = []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func connect(t testing.TB, from nettest.Machine, address string) {
	t.Helper()
	from.In(t, func() {
		if c, err := net.DialTimeout("tcp", address, 200*time.Millisecond); err == nil {
			c.Close()
		}
	})
}

func TestTheKernelCountsConnectionsOnce(t *testing.T) {
	nettest.Need(t)
	web, store, client := nettest.NewMachine(t, "10.42.0.2"), nettest.NewMachine(t, "10.42.0.3"), nettest.NewMachine(t, "192.0.2.7")
	store.Serve(t, 8080)
	var k kernel
	defer k.Close()
	if err := k.install(cluster); err != nil {
		t.Fatal(err)
	}
	if !k.intact() {
		t.Error("the rules are not as installed")
	}
	for range 3 {
		web.Wants(t, "web to store", "10.42.0.3:8080", "10.42.0.3 from 10.42.0.2")
	}
	client.Wants(t, "client to store", "10.42.0.3:8080", "10.42.0.3 from 192.0.2.7")
	store.In(t, func() {
		c, err := net.Dial("udp4", "192.0.2.7:53")
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		for range 3 {
			_, _ = c.Write([]byte("x"))
		}
	})
	none := netip.IPv4Unspecified()
	want := map[flow]uint64{
		{from: addr("10.42.0.2"), to: addr("10.42.0.3"), protocol: unix.IPPROTO_TCP, port: 8080}: 3,
		{from: none, to: addr("10.42.0.3"), protocol: unix.IPPROTO_TCP, port: 8080}:              1,
		{from: addr("10.42.0.3"), to: none, protocol: unix.IPPROTO_UDP, port: 53}:                1,
	}
	for stage := range stages {
		got, err := k.read(stage)
		if err != nil {
			t.Fatal(err)
		}
		for f, n := range want {
			if got[f] != n {
				t.Errorf("stage %d: %+v: %d, want %d", stage, f, got[f], n)
			}
			delete(got, f)
		}
		if len(got) > 0 {
			t.Errorf("stage %d: also counted: %v", stage, got)
		}
	}
	if err := k.remove(); err != nil {
		t.Fatal(err)
	}
	if err := k.remove(); err != nil {
		t.Errorf("a second removal: %v", err)
	}
}

func TestAFlowOfIPv6IsParsed(t *testing.T) {
	from, to, via := addr("fd00::1"), addr("fd00::2"), addr("fd01::7")
	key := slices.Concat(from.AsSlice(), to.AsSlice(), []byte{unix.IPPROTO_TCP, 0, 0, 0, 0x1f, 0x90, 0, 0}, via.AsSlice(), []byte{0, 80, 0, 0})
	got, ok := parse(nft.IPv6, key)
	if want := (flow{from: from, to: to, protocol: unix.IPPROTO_TCP, port: 8080, via: via, viaPort: 80}); !ok || got != want {
		t.Errorf("%+v %t, want %+v", got, ok, want)
	}
	if newSet(tried, nft.IPv6).KeyType.Bytes != uint32(len(key)) || newSet(tried, nft.IPv4).KeyType.Bytes != 36 {
		t.Error("the key of the kernel has another size")
	}
	if _, ok := parse(nft.IPv4, key); ok {
		t.Error("a key of another size is parsed")
	}
}
