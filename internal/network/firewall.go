package network

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/network/nft"
)

var protocolNumbers = map[string]uint8{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP, "sctp": unix.IPPROTO_SCTP}

// The pod network's chains in the shared table. The proxy's chains begin with "svc-".
const (
	chainRaw         = "pod-raw"
	chainPrerouting  = "pod-prerouting"
	chainOutput      = "pod-output"
	chainPostrouting = "pod-postrouting"
	chainHostPorts   = "pod-hostports"
)

// beforeServices gives host ports precedence over node ports.
const beforeServices = -101

// firewall is the pod network's part of the nftables table: host ports, masquerading and checks of
// senders.
type firewall struct {
	mu        sync.Mutex
	socket    nft.Socket
	hostPorts map[hostPort]hostPortTarget
	sets      map[string]familySets // by nft.Family.Name
	rules     map[string]int        // number of rules per chain; nil before install
	guards    guards
}

type familySets struct {
	hostPorts *nftables.Set // hostIP . protocol . port : podIP . port; hostIP 0 matches any address
	hairpin   *nftables.Set // podIP . podIP of pods with host ports
}

type hostPort struct {
	addr  netip.Addr // the unspecified address matches any address
	proto uint8
	port  uint16
}

type hostPortTarget struct {
	owner string
	addr  netip.Addr
	port  uint16
}

func newFirewall(cfg Config) *firewall {
	f := &firewall{hostPorts: map[hostPort]hostPortTarget{}, sets: map[string]familySets{}, guards: newGuards(cfg)}
	for _, fam := range nft.Families() {
		f.sets[fam.Name] = familySets{
			hostPorts: &nftables.Set{
				Table: nft.Table(), Name: "hostports" + fam.Name, IsMap: true, Concatenation: true,
				KeyType:  nft.Concat(fam.AddrType, nftables.TypeInetProto, nftables.TypeInetService),
				DataType: nft.Concat(fam.AddrType, nftables.TypeInetService),
			},
			hairpin: &nftables.Set{
				Table: nft.Table(), Name: "hostport-hairpin" + fam.Name, Concatenation: true,
				KeyType: nft.Concat(fam.AddrType, fam.AddrType),
			},
		}
	}
	return f
}

// install replaces our chains and maps in one transaction, including those of an older process.
func (f *firewall) install(podCIDRs, clusterCIDRs []netip.Prefix) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, err := f.open()
	if err != nil {
		return err
	}
	c.AddTable(nft.Table())
	f.rules = map[string]int{}
	base := []*nftables.Chain{
		nft.Base(chainRaw, nftables.ChainTypeFilter, nftables.ChainHookPrerouting, *nftables.ChainPriorityRaw),
		nft.Base(chainPrerouting, nftables.ChainTypeNAT, nftables.ChainHookPrerouting, beforeServices),
		nft.Base(chainOutput, nftables.ChainTypeNAT, nftables.ChainHookOutput, beforeServices),
		nft.Base(chainPostrouting, nftables.ChainTypeNAT, nftables.ChainHookPostrouting, *nftables.ChainPriorityNATSource),
	}
	ports := &nftables.Chain{Name: chainHostPorts, Table: nft.Table()}
	for _, chain := range append(base, ports) {
		c.AddChain(chain)
		c.FlushChain(chain)
	}
	for _, fam := range nft.Families() {
		sets := f.sets[fam.Name]
		for _, s := range []*nftables.Set{sets.hostPorts, sets.hairpin} {
			if err := nft.AddSet(c, s); err != nil {
				return err
			}
			c.FlushSet(s)
		}
		f.addRules(c, base, ports, fam)
	}
	f.addMasquerade(c, base[3], podCIDRs, clusterCIDRs)
	if err := f.queueGuards(c, base[0]); err != nil {
		return err
	}
	for port, target := range f.hostPorts {
		if err := f.queueAdd(c, port, target); err != nil {
			return err
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("nftables: pod network rules: %w", err)
	}
	return nil
}

// open returns the connection. The caller holds mu.
func (f *firewall) open() (*nftables.Conn, error) {
	err := f.socket.Open()
	return f.socket.Conn, err
}

// close closes the connection; the rules stay.
func (f *firewall) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.socket.Close()
}

// verify compares the kernel's rules with the installed ones and repairs differences. Another
// program may have flushed the rules.
func (f *firewall) verify(podCIDRs, clusterCIDRs []netip.Prefix) error {
	if f.intact() {
		return nil
	}
	slog.Warn("another program changed the pod network's nftables rules; restoring them")
	return f.install(podCIDRs, clusterCIDRs)
}

// intact compares the number of rules and host ports in the kernel with the expected ones.
func (f *firewall) intact() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, err := f.open()
	if err != nil {
		return true // cannot tell
	}
	if !f.socket.Intact(f.rules) {
		return false
	}
	ports := 0
	for _, sets := range f.sets {
		elements, err := c.GetSetElements(sets.hostPorts)
		if err != nil {
			return false
		}
		ports += len(elements)
	}
	return ports == len(f.hostPorts) && f.intactGuards(c)
}

// addRules queues one family's rules for host ports.
func (f *firewall) addRules(c *nftables.Conn, base []*nftables.Chain, ports *nftables.Chain, fam nft.Family) {
	sets := f.sets[fam.Name]
	loopback := netip.MustParsePrefix("127.0.0.0/8")
	if fam == nft.IPv6 {
		loopback = netip.MustParsePrefix("::1/128")
	}
	rule := f.adder(c)
	// With route_localnet on a pod's link, packets to the loopback must still not enter from
	// outside.
	rule(base[0], fam.Only(), nft.InputNotLoopback(), fam.DestIn(loopback), nft.Drop())
	rule(base[1], fam.Only(), nft.DestIsLocal(), nft.Jump(ports.Name))
	rule(base[2], fam.Only(), nft.DestIsLocal(), nft.Jump(ports.Name))

	// ip daddr . meta l4proto . th dport  →  dnat; then the same for any local address.
	addr, proto := nft.R0, nft.R0+fam.AddrRegs
	dest := proto + 2
	load := nft.Rule(nft.L4Proto(proto), nft.DestPort(proto+1), nft.Map(sets.hostPorts, addr, dest), fam.DNAT(dest, dest+fam.AddrRegs))
	rule(ports, fam.Only(), fam.DestAddr(addr), load)
	rule(ports, fam.Only(), nft.Immediate(addr, make([]byte, fam.AddrLen)), load)

	// Two cases must be masqueraded so that replies return through this host: a pod that reaches
	// itself through its host port, and a host process that connects from the loopback.
	rule(base[3], fam.Only(), nft.WasDNAT(), fam.SourceAddr(nft.R0), fam.DestAddr(nft.R0+fam.AddrRegs), nft.In(sets.hairpin, nft.R0), nft.Masquerade())
	rule(base[3], fam.Only(), nft.WasDNAT(), fam.SourceIn(loopback), nft.OutputNotLoopback(), nft.Masquerade())
}

// addMasquerade queues the rules that give the node's address to pods' packets that leave the
// cluster.
func (f *firewall) addMasquerade(c *nftables.Conn, postrouting *nftables.Chain, podCIDRs, clusterCIDRs []netip.Prefix) {
	rule := f.adder(c)
	for _, pods := range podCIDRs {
		fam := nft.Of(pods.Addr())
		inside := []netip.Prefix{netip.MustParsePrefix("224.0.0.0/4"), pods}
		if fam == nft.IPv6 {
			inside = []netip.Prefix{netip.MustParsePrefix("ff00::/8"), pods}
		}
		parts := nft.Rule(fam.Only(), fam.SourceIn(pods), nft.OutputNotLoopback())
		for _, p := range append(inside, clusterCIDRs...) {
			if p.Addr().Is4() == pods.Addr().Is4() {
				parts = nft.Rule(parts, fam.DestNotIn(p))
			}
		}
		rule(postrouting, parts, nft.Masquerade())
	}
}

// adder is nft.Adder with a count of rules per chain.
func (f *firewall) adder(c *nftables.Conn) func(*nftables.Chain, ...[]expr.Any) {
	add := nft.Adder(c)
	return func(chain *nftables.Chain, parts ...[]expr.Any) {
		f.rules[chain.Name]++
		add(chain, parts...)
	}
}

// targets returns the attachment's host ports for each family in which it has an address.
func (a *attachment) targets() map[hostPort]hostPortTarget {
	out := map[hostPort]hostPortTarget{}
	for _, m := range a.PortMappings {
		for _, ip := range a.IPs {
			host := netip.IPv6Unspecified()
			if ip.Is4() {
				host = netip.IPv4Unspecified()
			}
			if m.HostIP != "" {
				if given, err := netip.ParseAddr(m.HostIP); err == nil && !given.IsUnspecified() {
					host = given.Unmap()
				}
			}
			if host.Is4() == ip.Is4() {
				out[hostPort{host, protocolNumbers[m.Protocol], m.HostPort}] = hostPortTarget{a.key(), ip, m.ContainerPort}
			}
		}
	}
	return out
}

// add maps the attachment's host ports. It takes over a port that an older attachment still has,
// because the scheduler has assigned the port to the new pod.
func (f *firewall) add(a *attachment) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, err := f.open()
	if err != nil {
		return err
	}
	targets := a.targets()
	for port, target := range targets {
		if old, ok := f.hostPorts[port]; ok {
			if err := f.queue(c, port, old, c.SetDeleteElements); err != nil {
				return err
			}
		}
		if err := f.queueAdd(c, port, target); err != nil {
			return err
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("nftables: host ports of %s/%s: %w", a.PodNamespace, a.PodName, err)
	}
	for port, target := range targets {
		f.hostPorts[port] = target
	}
	forgetFlows(targets)
	return nil
}

// remove unmaps those host ports that still belong to the attachment.
func (f *firewall) remove(a *attachment) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, err := f.open()
	if err != nil {
		return err
	}
	gone := map[hostPort]hostPortTarget{}
	for port, target := range f.hostPorts {
		if target.owner != a.key() {
			continue
		}
		if err := f.queue(c, port, target, c.SetDeleteElements); err != nil {
			return err
		}
		gone[port] = target
	}
	if err := f.queueNoHairpin(c, a.IPs, gone); err != nil {
		return err
	}
	if err := c.Flush(); err != nil && !nft.Absent(err) {
		return fmt.Errorf("nftables: host ports of %s/%s: %w", a.PodNamespace, a.PodName, err)
	}
	for port := range gone {
		delete(f.hostPorts, port)
	}
	forgetFlows(gone)
	return nil
}

// queue queues the element of one host port with SetAddElements or SetDeleteElements.
func (f *firewall) queue(c *nftables.Conn, p hostPort, t hostPortTarget, op func(*nftables.Set, []nftables.SetElement) error) error {
	element := nftables.SetElement{Key: nft.Key(p.addr.AsSlice(), []byte{p.proto}, nft.Port(p.port)), Val: nft.Key(t.addr.AsSlice(), nft.Port(t.port))}
	return op(f.sets[nft.Of(t.addr).Name].hostPorts, []nftables.SetElement{element})
}

// queueAdd queues the elements for one host port. All ports of a pod share the hairpin element.
func (f *firewall) queueAdd(c *nftables.Conn, p hostPort, t hostPortTarget) error {
	if err := f.queue(c, p, t, c.SetAddElements); err != nil {
		return err
	}
	return c.SetAddElements(f.sets[nft.Of(t.addr).Name].hairpin, hairpinOf(t.addr))
}

// queueNoHairpin removes the hairpin elements of addresses without a host port, apart from those
// that are gone. It adds an element first, because the kernel refuses to remove a missing one.
func (f *firewall) queueNoHairpin(c *nftables.Conn, addrs []netip.Addr, gone map[hostPort]hostPortTarget) error {
	used := map[netip.Addr]bool{}
	for port, target := range f.hostPorts {
		if _, ok := gone[port]; !ok {
			used[target.addr] = true
		}
	}
	for _, addr := range addrs {
		if used[addr] {
			continue
		}
		set := f.sets[nft.Of(addr).Name].hairpin
		if err := c.SetAddElements(set, hairpinOf(addr)); err != nil {
			return err
		}
		if err := c.SetDeleteElements(set, hairpinOf(addr)); err != nil {
			return err
		}
	}
	return nil
}

func hairpinOf(addr netip.Addr) []nftables.SetElement {
	return []nftables.SetElement{{Key: nft.Key(addr.AsSlice(), addr.AsSlice())}}
}

// forgetFlows deletes the kernel's UDP flows to the host ports. Otherwise a client that keeps
// sending would never reach the new pod.
func forgetFlows(ports map[hostPort]hostPortTarget) {
	byPort := map[uint16]bool{}
	for p := range ports {
		if p.proto == unix.IPPROTO_UDP {
			byPort[p.port] = true
		}
	}
	if len(byPort) == 0 {
		return
	}
	for _, fam := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		if _, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, fam, udpFlows(byPort)); err != nil {
			slog.Debug("cannot delete UDP flows to host ports", "error", err)
		}
	}
}

// udpFlows matches flows by the client's destination port.
type udpFlows map[uint16]bool

// MatchConntrackFlow is netlink's filter interface.
func (u udpFlows) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	return flow.Forward.Protocol == unix.IPPROTO_UDP && u[flow.Forward.DstPort]
}

// allowLocalhost lets 127.0.0.1:hostPort reach the pod. It allows routing of loopback addresses on
// the pod's own link only.
func allowLocalhost(a *attachment) error {
	err := os.WriteFile("/proc/sys/net/ipv4/conf/"+a.HostLink+"/route_localnet", []byte("1"), 0)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("host ports on 127.0.0.1: %w", err)
	}
	return nil
}

// droppingFirewalls lists foreign base chains, such as a container engine's, whose policy drops
// forwarded packets. An accept in our chains cannot overrule them.
func droppingFirewalls() []string {
	c, err := nftables.New()
	if err != nil {
		return nil
	}
	chains, err := c.ListChains()
	if err != nil {
		return nil
	}
	var out []string
	for _, ch := range chains {
		if ch.Hooknum != nil && *ch.Hooknum == *nftables.ChainHookForward && ch.Policy != nil && *ch.Policy == nftables.ChainPolicyDrop &&
			ch.Table != nil && ch.Table.Name != nft.TableName {
			out = append(out, ch.Table.Name+" "+ch.Name)
		}
	}
	return out
}
