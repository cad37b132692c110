package network

import (
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/network/nft"
)

// The chains of this file.
const (
	chainSource  = "pod-source"  // packets of pods, by their sender
	chainInput   = "pod-input"   // overlay frames to this node
	chainForward = "pod-forward" // packets on their way to other nodes' overlays
)

// guards are the checks of senders.
//
// A packet that comes in by a pod's link must have the pod's hardware address and one of its IP
// addresses. A pod's link without an attachment therefore carries nothing. Neighbour discovery is
// dropped, because both ends have permanent neighbours; ARP is off on the host's end of the link.
//
// A frame of the overlay must come from the address of another node. This node also passes no
// packet on to another node's overlay: masqueraded, a pod's packet would have this node's address.
type guards struct {
	overlayLink string
	overlayPort uint16              // 0 without a VXLAN overlay
	sources     map[string]source   // by attachment
	peers       map[netip.Addr]bool // addresses of the other nodes
	sets        map[string]guardSets
}

type guardSets struct {
	sources *nftables.Set // link . hardware address . IP address
	peers   *nftables.Set // addresses
}

// source is what a pod's link may send.
type source struct {
	link string
	ips  []netip.Addr
}

func newGuards(cfg Config) guards {
	g := guards{overlayLink: cfg.OverlayLink, sources: map[string]source{}, peers: map[netip.Addr]bool{}, sets: map[string]guardSets{}}
	if cfg.Mode == ModeVXLAN {
		g.overlayPort = uint16(cfg.Port)
	}
	for _, fam := range nft.Families() {
		g.sets[fam.Name] = guardSets{
			sources: &nftables.Set{Table: nft.Table(), Name: "pod-sources" + fam.Name, Concatenation: true, KeyType: nft.Concat(nftables.TypeIFName, nftables.TypeEtherAddr, fam.AddrType)},
			peers:   &nftables.Set{Table: nft.Table(), Name: "overlay-peers" + fam.Name, KeyType: fam.AddrType},
		}
	}
	return g
}

func (s source) elements(fam nft.Family) (out []nftables.SetElement) {
	for _, ip := range s.ips {
		if nft.Of(ip).Name == fam.Name {
			out = append(out, nftables.SetElement{Key: nft.Key(nft.LinkName(s.link), podMAC(s.ips[0]), ip.AsSlice())})
		}
	}
	return out
}

func sourceOf(a *attachment) source { return source{a.HostLink, a.IPs} }

// queueGuards queues all checks. The caller holds mu and has emptied the chains.
func (f *firewall) queueGuards(c *nftables.Conn, raw *nftables.Chain) error {
	rule := f.adder(c)
	chain := func(name string, hook *nftables.ChainHook) *nftables.Chain {
		ch := &nftables.Chain{Name: name, Table: nft.Table()}
		if hook != nil {
			ch = nft.Base(name, nftables.ChainTypeFilter, hook, *nftables.ChainPriorityFilter)
		}
		c.AddChain(ch)
		c.FlushChain(ch)
		f.rules[name] = 0
		return ch
	}
	from, input, forward := chain(chainSource, nil), chain(chainInput, nftables.ChainHookInput), chain(chainForward, nftables.ChainHookForward)
	rule(raw, nft.InputNameBegins(hostLinkPrefix), nft.InputNameIsNot(f.guards.overlayLink), nft.Jump(chainSource))
	rule(from, nft.IPv6.Only(), nft.NeighbourDiscovery(), nft.Drop())
	for _, fam := range nft.Families() {
		sets := f.guards.sets[fam.Name]
		for _, s := range []*nftables.Set{sets.sources, sets.peers} {
			if err := nft.AddSet(c, s); err != nil {
				return err
			}
			c.FlushSet(s)
		}
		rule(from, fam.Only(), nft.InputName(nft.R0), nft.SourceMAC(nft.R0+4), fam.SourceAddr(nft.R0+6), nft.In(sets.sources, nft.R0), nft.Return())
		for _, s := range f.guards.sources {
			if err := nft.AddElements(c, sets.sources, s.elements(fam)); err != nil {
				return err
			}
		}
		var peers []nftables.SetElement
		for addr := range f.guards.peers {
			if nft.Of(addr).Name == fam.Name {
				peers = append(peers, nftables.SetElement{Key: addr.AsSlice()})
			}
		}
		if err := nft.AddElements(c, sets.peers, peers); err != nil {
			return err
		}
		if f.guarded() {
			frame := nft.Rule(fam.Only(), nft.L4ProtoIs(unix.IPPROTO_UDP), nft.DestPortIs(f.guards.overlayPort))
			rule(input, frame, fam.SourceAddr(1), nft.In(sets.peers, 1), nft.Return())
			rule(input, frame, nft.Drop())
			rule(forward, frame, fam.DestAddr(1), nft.In(sets.peers, 1), nft.Drop())
		}
	}
	rule(from, nft.Drop())
	return nil
}

// guarded reports whether frames of the overlay are checked. Without other nodes there is no
// overlay, and the port belongs to other software.
func (f *firewall) guarded() bool { return f.guards.overlayPort != 0 && len(f.guards.peers) > 0 }

// allowSource lets the attachment's link carry the pod's packets, and no others.
func (f *firewall) allowSource(a *attachment) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := sourceOf(a)
	if err := f.changeSource(f.guards.sources[a.key()], now); err != nil {
		return fmt.Errorf("nftables: sender check of %s/%s: %w", a.PodNamespace, a.PodName, err)
	}
	f.guards.sources[a.key()] = now
	return nil
}

// denySource undoes allowSource once the link is gone.
func (f *firewall) denySource(a *attachment) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	old, ok := f.guards.sources[a.key()]
	if !ok {
		return nil
	}
	if err := f.changeSource(old, source{}); err != nil && !nft.Absent(err) {
		return fmt.Errorf("nftables: sender check of %s/%s: %w", a.PodNamespace, a.PodName, err)
	}
	delete(f.guards.sources, a.key())
	return nil
}

func (f *firewall) changeSource(old, now source) error {
	c, err := f.open()
	if err != nil {
		return err
	}
	for _, fam := range nft.Families() {
		set := f.guards.sets[fam.Name].sources
		if err := nft.DeleteElements(c, set, old.elements(fam)); err != nil {
			return err
		}
		if err := nft.AddElements(c, set, now.elements(fam)); err != nil {
			return err
		}
	}
	return c.Flush()
}

// setPeers sets the addresses from which frames of the overlay are accepted. Before install it only
// records them.
func (f *firewall) setPeers(want map[netip.Addr]bool, podCIDRs, clusterCIDRs []netip.Prefix) error {
	f.mu.Lock()
	old, was := f.guards.peers, f.guarded()
	f.guards.peers = want
	change := f.rules != nil && was != f.guarded()
	var err error
	if f.rules != nil && !change {
		if err = f.changePeers(old, want); err != nil {
			f.guards.peers = old
			err = fmt.Errorf("nftables: senders of the overlay: %w", err)
		}
	}
	f.mu.Unlock()
	if change {
		return f.install(podCIDRs, clusterCIDRs)
	}
	return err
}

func (f *firewall) changePeers(old, want map[netip.Addr]bool) error {
	c, err := f.open()
	if err != nil {
		return err
	}
	changed := false
	queue := func(in, notIn map[netip.Addr]bool, op func(*nftables.Conn, *nftables.Set, []nftables.SetElement) error) error {
		for addr := range in {
			if notIn[addr] {
				continue
			}
			changed = true
			if err := op(c, f.guards.sets[nft.Of(addr).Name].peers, []nftables.SetElement{{Key: addr.AsSlice()}}); err != nil {
				return err
			}
		}
		return nil
	}
	if err := queue(old, want, nft.DeleteElements); err != nil {
		return err
	}
	if err := queue(want, old, nft.AddElements); err != nil {
		return err
	}
	if !changed {
		return nil
	}
	return c.Flush()
}

// intactGuards compares the number of elements in the kernel with the expected ones.
func (f *firewall) intactGuards(c *nftables.Conn) bool {
	for _, fam := range nft.Families() {
		sources, peers := 0, 0
		for _, s := range f.guards.sources {
			sources += len(s.elements(fam))
		}
		for addr := range f.guards.peers {
			if nft.Of(addr).Name == fam.Name {
				peers++
			}
		}
		sets := f.guards.sets[fam.Name]
		for set, want := range map[*nftables.Set]int{sets.sources: sources, sets.peers: peers} {
			elements, err := c.GetSetElements(set)
			if err != nil || len(elements) != want {
				return false
			}
		}
	}
	return true
}

// peerAddresses are the addresses from which other nodes send frames.
func peerAddresses(self *corev1.Node, nodes []*corev1.Node) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for p := range peers(self.Name, overlayAddress(self), nodes) {
		out[p.node] = true
	}
	return out
}
