package announce

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// network joins electors by beats, with a clock of its own.
type network struct {
	now     time.Time
	nodes   map[string]*elector
	down    map[string]bool // nodes whose beats get lost
	address netip.Addr
}

func newNetwork(names ...string) *network {
	n := &network{now: time.Unix(1000, 0), nodes: map[string]*elector{}, down: map[string]bool{}, address: netip.MustParseAddr("192.0.2.1")}
	for _, name := range names {
		n.boot(name)
	}
	return n
}

func (n *network) boot(name string) {
	n.nodes[name] = newElector(name)
	n.nodes[name].stand(map[netip.Addr]bool{n.address: true}, n.now)
}

// step lets a beat's time pass.
func (n *network) step() {
	n.now = n.now.Add(beatInterval)
	for name, from := range n.nodes {
		for other, to := range n.nodes {
			if other == name || n.down[name] || n.down[other] {
				continue
			}
			for _, w := range from.words() {
				to.hear(name, w, n.now)
			}
		}
	}
	for _, e := range n.nodes {
		e.decide(n.now)
	}
}

func (n *network) holders() (out []string) {
	for name, e := range n.nodes {
		if e.holds(n.address) {
			out = append(out, name)
		}
	}
	return out
}

// pass lets the time pass in which a holder is found.
func (n *network) pass() {
	for range 2*int(silence/beatInterval) + 1 {
		n.step()
	}
}

func TestOneNodeHoldsAnAddress(t *testing.T) {
	n := newNetwork("a", "b", "c")
	n.pass()
	first := n.holders()
	if len(first) != 1 {
		t.Fatalf("%v hold the address", first)
	}

	delete(n.nodes, first[0]) // killed
	waited := time.Duration(0)
	for ; len(n.holders()) == 0; waited += beatInterval {
		n.step()
	}
	if waited >= time.Second {
		t.Errorf("the address is free for %s after its node has died", waited)
	}
	second := n.holders()

	n.boot(first[0])
	n.pass()
	if now := n.holders(); len(now) != 1 || now[0] != second[0] {
		t.Errorf("%v hold the address after a node came back, want %v as before", now, second)
	}

	n.down[second[0]] = true // cut off: both sides have a holder
	n.pass()
	if now := n.holders(); len(now) != 2 {
		t.Errorf("%v hold the address in a split network", now)
	}
	n.down[second[0]] = false
	n.pass()
	if now := n.holders(); len(now) != 1 {
		t.Errorf("%v hold the address after the network is whole again", now)
	}
}

func TestAHolderThatLeavesIsReplacedAtOnce(t *testing.T) {
	n := newNetwork("a", "b")
	n.pass()
	old := n.holders()[0]
	n.nodes[old].stand(nil, n.now)
	for name, e := range n.nodes {
		if name != old {
			e.hear(old, word{addr: n.address, leaves: true}, n.now)
			if taken, _, _ := e.decide(n.now); len(taken) != 1 {
				t.Errorf("%s does not take the address", name)
			}
		}
	}
}

// However nodes die, return and lose contact, one holder remains in the end.
func TestElectionsEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := newNetwork("a", "b", "c", "d")
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			name := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "node")
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				n.boot(name)
			case 1:
				n.down[name] = !n.down[name]
			default:
				n.step()
			}
		}
		clear(n.down)
		n.pass()
		if now := n.holders(); len(now) != 1 {
			t.Fatalf("%v hold the address", now)
		}
	})
}

func TestAddressesSpreadOverNodes(t *testing.T) {
	nodes := map[string]netip.Addr{"a": {}, "b": {}, "c": {}}
	first := map[string]int{}
	for i := range 90 {
		first[ranked(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), nodes, nil)[0]]++
	}
	for name := range nodes {
		if first[name] < 15 {
			t.Errorf("%s is first for %d of 90 addresses", name, first[name])
		}
	}
	for i := range 20 {
		nodes[fmt.Sprint("more", i)] = netip.Addr{}
	}
	names := ranked(netip.MustParseAddr("192.0.2.1"), nodes, map[string]bool{"b": true})
	if len(names) != maxPeers || names[0] != "b" {
		t.Errorf("the peers are %v, want the node with an endpoint first, and %d in all", names, maxPeers)
	}
}
