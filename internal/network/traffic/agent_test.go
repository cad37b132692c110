package traffic

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/knarr-project/knarr/internal/architecture"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/network/nettest"
	"github.com/knarr-project/knarr/internal/network/nft"
)

// start runs an agent until the test ends, or until stop is called.
func start(t *testing.T, objects *nettest.Objects) (stop func()) {
	t.Helper()
	a, err := New(Config{
		NodeName: "here", Client: objects, ClusterCIDRs: cluster, ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")},
		Interval: 20 * time.Millisecond, Report: 50 * time.Millisecond, CheckInterval: 50 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func empty(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	u, err := (&architecture.Traffic{ObjectMeta: metav1.ObjectMeta{Name: "here"}}).Unstructured()
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// collect adds up what the agent sends, as the API server does.
func collect(t *testing.T, objects *nettest.Objects) func(from, to string, verdict architecture.Verdict) int64 {
	t.Helper()
	view, err := objects.View(t.Context(), architecture.Traffics, client.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	sum := make(chan map[[3]string]int64, 1)
	sum <- map[[3]string]int64{}
	view.Subscribe(t.Context(), func(e client.Event) {
		var object architecture.Traffic
		if u, ok := e.Object.(*unstructured.Unstructured); !ok || architecture.From(u, &object) != nil || e.Type == client.Deleted {
			return
		}
		all := <-sum
		for _, f := range object.Entries {
			name := func(e architecture.End) string {
				if e.Outside {
					return "outside"
				}
				return e.Address
			}
			all[[3]string{name(f.From), name(f.To.End), string(f.Verdict)}] += f.Connections
		}
		sum <- all
	})
	return func(from, to string, verdict architecture.Verdict) int64 {
		all := <-sum
		defer func() { sum <- all }()
		return all[[3]string{from, to, string(verdict)}]
	}
}

func chains(t *testing.T) (n int) {
	t.Helper()
	c, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	all, err := c.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		t.Fatal(err)
	}
	for _, ch := range all {
		if ch.Table.Name == nft.TableName && len(ch.Name) > len(prefix) && ch.Name[:len(prefix)] == prefix {
			n++
		}
	}
	return n
}

// block drops all packets to a port between our two chains, as a policy does.
func block(t *testing.T, port uint16) {
	t.Helper()
	c, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	c.AddTable(nft.Table())
	chain := c.AddChain(nft.Base("test-policy", nftables.ChainTypeFilter, nftables.ChainHookForward, *nftables.ChainPriorityFilter))
	nft.Adder(c)(chain, nft.L4ProtoIs(6), nft.DestPortIs(port), []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}})
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.FlushChain(chain)
		c.DelChain(chain)
		if err := c.Flush(); err != nil {
			t.Error(err)
		}
	})
}

func TestANodeCountsWhileItsTrafficExists(t *testing.T) {
	nettest.Need(t)
	web, store := nettest.NewMachine(t, "10.42.0.2"), nettest.NewMachine(t, "10.42.0.3")
	store.Serve(t, 8080)
	block(t, 9090)
	objects := nettest.NewObjects()
	stop := start(t, objects)
	if n := chains(t); n != 0 {
		t.Errorf("%d chains before a Traffic exists", n)
	}
	objects.Put(empty(t))
	nettest.Eventually(t, "the rules exist", func() bool { return chains(t) == 4 })
	total := collect(t, objects)
	web.Wants(t, "web to store", "10.42.0.3:8080", "10.42.0.3 from 10.42.0.2")
	connect(t, web, "10.42.0.3:9090")
	nettest.Eventually(t, "the allowed and the denied connection are reported", func() bool {
		return total("10.42.0.2", "10.42.0.3", architecture.Allowed) == 1 && total("10.42.0.2", "10.42.0.3", architecture.Denied) >= 1
	})
	web.Wants(t, "web to store again", "10.42.0.3:8080", "10.42.0.3 from 10.42.0.2")
	nettest.Eventually(t, "a known flow is reported too", func() bool { return total("10.42.0.2", "10.42.0.3", architecture.Allowed) == 2 })

	if err := flush(); err != nil { // another program
		t.Fatal(err)
	}
	nettest.Eventually(t, "the rules are back", func() bool { return chains(t) == 4 })
	objects.Remove(empty(t))
	nettest.Eventually(t, "the rules are gone with the Traffic", func() bool { return chains(t) == 0 })
	objects.Put(empty(t))
	nettest.Eventually(t, "the rules exist again", func() bool { return chains(t) == 4 })
	stop()
	if n := chains(t); n != 0 {
		t.Errorf("%d chains after the end", n)
	}
}

func TestRulesOfAKilledProcessAreRemoved(t *testing.T) {
	nettest.Need(t)
	var killed kernel
	defer killed.Close()
	if err := killed.install(cluster); err != nil {
		t.Fatal(err)
	}
	start(t, nettest.NewObjects())
	nettest.Eventually(t, "the rules are gone", func() bool { return chains(t) == 0 })
}

func flush() error {
	var k kernel
	defer k.Close()
	return k.remove()
}

func TestAConnectionOnItsWayIsNotDenied(t *testing.T) {
	f := flow{port: 80}
	c := counts{}
	steps := []struct {
		tried, passed uint64
		want          news
	}{
		{1, 0, news{}}, // still between the two stages
		{2, 1, news{allowed: 1}},
		{2, 2, news{allowed: 1}},
		{5, 2, news{}},
		{5, 2, news{denied: 3}},
		{5, 2, news{}},
		{1, 1, news{allowed: 1}}, // the kernel has forgotten the flow in between
		{1, 1, news{}},
	}
	for i, s := range steps {
		if got := c.read(map[flow]uint64{f: s.tried}, map[flow]uint64{f: s.passed})[f]; got != s.want {
			t.Errorf("step %d: %+v, want %+v", i, got, s.want)
		}
	}
	c.read(nil, nil)
	if len(c) != 0 {
		t.Errorf("a forgotten flow stays: %v", c)
	}
}
