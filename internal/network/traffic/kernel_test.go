package traffic

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/network/nettest"
	"github.com/knarr-project/knarr/internal/network/nft"
)

func TestMain(m *testing.M) { nettest.Main(m) }

var cluster = []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("fd42::/64")}

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
	for name, ips := range map[string][3]string{"IPv4": {"10.42.0.2", "10.42.0.3", "192.0.2.7"}, "IPv6": {"fd42::2", "fd42::3", "2001:db8::7"}} {
		t.Run(name, func(t *testing.T) { countsOnce(t, ips[0], ips[1], ips[2]) })
	}
}

// countsOnce connects two pods and a client beyond the cluster.
func countsOnce(t *testing.T, webIP, storeIP, clientIP string) {
	nettest.Need(t)
	web, store, client := nettest.NewMachine(t, webIP), nettest.NewMachine(t, storeIP), nettest.NewMachine(t, clientIP)
	store.Serve(t, 8080)
	var k kernel
	defer k.Close()
	if err := k.install(cluster); err != nil {
		t.Fatal(err)
	}
	if !k.intact() {
		t.Error("the rules are not as installed")
	}
	server := net.JoinHostPort(storeIP, "8080")
	for range 3 {
		web.Wants(t, "web to store", server, storeIP+" from "+webIP)
	}
	client.Wants(t, "client to store", server, storeIP+" from "+clientIP)
	store.In(t, func() {
		c, err := net.Dial("udp", net.JoinHostPort(clientIP, "53"))
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
	if addr(webIP).Is6() {
		none = netip.IPv6Unspecified()
	}
	want := map[flow]uint64{
		{from: addr(webIP), to: addr(storeIP), protocol: unix.IPPROTO_TCP, port: 8080}: 3,
		{from: none, to: addr(storeIP), protocol: unix.IPPROTO_TCP, port: 8080}:        1,
		{from: addr(storeIP), to: none, protocol: unix.IPPROTO_UDP, port: 53}:          1,
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
	out, err := k.readOutside()
	if want := (outward{addr(storeIP), addr(clientIP), unix.IPPROTO_UDP, 53}); err != nil || len(out) != 1 || out[0] != want {
		t.Errorf("beyond the cluster: %+v, %v; want %+v", out, err, want)
	}
	if err := k.remove(); err != nil {
		t.Fatal(err)
	}
	if err := k.remove(); err != nil {
		t.Errorf("a second removal: %v", err)
	}
}

// A pod can connect to very many addresses. The counters of connections stay the same.
func TestAFullSetOfAddressesLeavesTheCountersAlone(t *testing.T) {
	nettest.Need(t)
	pod := nettest.NewMachine(t, "10.42.0.2")
	_ = nettest.NewMachine(t, "192.0.2.7")
	var k kernel
	defer k.Close()
	if err := k.install(cluster); err != nil {
		t.Fatal(err)
	}
	full := make([]nftables.SetElement, outsideSize)
	for i := range full {
		full[i].Key = nft.Key(addr("10.42.0.9").AsSlice(), []byte{198, 18, byte(i >> 8), byte(i)}, []byte{unix.IPPROTO_UDP}, []byte{0, 53})
	}
	if err := nft.AddElements(k.Conn, k.outside[nft.IPv4.Name], full); err != nil {
		t.Fatal(err)
	}
	if err := k.Conn.Flush(); err != nil {
		t.Fatal(err)
	}
	pod.In(t, func() {
		c, err := net.Dial("udp", "192.0.2.7:53")
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = c.Write([]byte("x"))
	})
	want := flow{from: addr("10.42.0.2"), to: netip.IPv4Unspecified(), protocol: unix.IPPROTO_UDP, port: 53}
	for stage := range stages {
		if got, err := k.read(stage); err != nil || len(got) != 1 || got[want] != 1 {
			t.Errorf("stage %d: %v, %v; want one of %+v", stage, got, err, want)
		}
	}
	if out, err := k.readOutside(); err != nil || len(out) != outsideSize {
		t.Errorf("%d addresses, %v", len(out), err)
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
