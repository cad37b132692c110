package traffic

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/network/nft"
)

const (
	prefix = "seen-"
	// setSize is the maximum number of flows of one family that the kernel counts at once. The set
	// behind the policies is larger: a flow that only the set before them has room for would look
	// denied.
	setSize = 4096
	// outsideSize is the maximum number of addresses beyond the cluster of one family, with the
	// pods that connect to them. More are counted, and not told.
	outsideSize = 1024
	// outsideSet begins the names of their sets.
	outsideSet = prefix + "outside"
	// idle is how long the kernel keeps a flow without new connections.
	idle = 10 * time.Minute
	// ctStatusConfirmed is IPS_CONFIRMED of the kernel's ip_conntrack_status. Connection tracking
	// sets it when the first packet has passed all hooks.
	ctStatusConfirmed = 1 << 3
)

// stages are the two places that count. The chains of policies have the priority of filters, which
// is between the two.
var stages = [2]struct {
	name     string
	priority nftables.ChainPriority
}{{prefix + "tried", *nftables.ChainPriorityFilter - 10}, {prefix + "passed", *nftables.ChainPriorityFilter + 10}}

const (
	tried = iota
	passed
)

// flow is what the kernel counts by. An unspecified address stands for all beyond the cluster.
type flow struct {
	from, to netip.Addr
	protocol uint8
	port     uint16
	// via and viaPort are the destination that the client has named, if a Service translated it.
	via     netip.Addr
	viaPort uint16
}

// kernel is the nftables side. It is not safe for concurrent use.
type kernel struct {
	nft.Socket
	rules map[string]int // number of rules by base chain; nil unless installed
	sets  map[string]*nftables.Set
	// outside are the sets of addresses beyond the cluster, by family. They count nothing: a full
	// one must not change the counters.
	outside map[string]*nftables.Set
}

// outward is a connection from a pod to an address beyond the cluster that has passed the policies.
type outward struct {
	from, to netip.Addr
	protocol uint8
	port     uint16
}

func newOutsideSet(f nft.Family) *nftables.Set {
	return &nftables.Set{
		Table: nft.Table(), Name: outsideSet + f.Name, Concatenation: true, Dynamic: true, HasTimeout: true, Timeout: idle, Size: outsideSize,
		KeyType: nft.Concat(f.AddrType, f.AddrType, nftables.TypeInetProto, nftables.TypeInetService),
	}
}

// newSet describes a set of one stage and family. nftables allows five types in a key, and a flow
// has six parts. Therefore the protocol and the port share a type of their size, and the original
// destination has 16 bytes in both families, as conntrack returns it in tables of both families.
func newSet(stage int, f nft.Family) *nftables.Set {
	return &nftables.Set{
		Table: nft.Table(), Name: stages[stage].name + f.Name, Concatenation: true, Dynamic: true, HasTimeout: true, Timeout: idle, Size: setSize * uint32(1+stage),
		KeyType: nft.Concat(f.AddrType, f.AddrType, nftables.TypeEtherAddr, nftables.TypeIP6Addr, nftables.TypeInetService),
	}
}

// install replaces our chains and sets in one transaction. All counters start from zero.
func (k *kernel) install(cluster []netip.Prefix) error {
	if err := k.remove(); err != nil {
		return err
	}
	c := k.Conn
	c.AddTable(nft.Table())
	rules, sets, outside := map[string]int{}, map[string]*nftables.Set{}, map[string]*nftables.Set{}
	rule := nft.Adder(c)
	for i, stage := range stages {
		fresh := c.AddChain(&nftables.Chain{Name: stage.name + "-new", Table: nft.Table()})
		base := c.AddChain(nft.Base(stage.name, nftables.ChainTypeFilter, nftables.ChainHookForward, stage.priority))
		for _, f := range nft.Families() {
			set := newSet(i, f)
			if err := nft.AddSet(c, set); err != nil {
				return err
			}
			sets[set.Name] = set
			if i == passed {
				outside[f.Name] = newOutsideSet(f)
				if err := nft.AddSet(c, outside[f.Name]); err != nil {
					return err
				}
			}
			for _, class := range classes(f, cluster) {
				if i == passed && class.toOutside {
					rule(fresh, f.Only(), class.match, outwardKey(f), remember(outside[f.Name]))
				}
				rule(fresh, f.Only(), class.match, key(f, class), count(set), nft.Return())
			}
		}
		for _, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP} {
			rules[base.Name]++
			rule(base, isNew(), nft.L4ProtoIs(proto), nft.Jump(fresh.Name))
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("nftables: counting traffic: %w", err)
	}
	k.rules, k.sets, k.outside = rules, sets, outside
	return nil
}

// remove removes our chains and sets, also those of an earlier process.
func (k *kernel) remove() error {
	if err := k.Open(); err != nil {
		return err
	}
	k.rules, k.sets, k.outside = nil, nil, nil
	found, err := k.Find(prefix, prefix)
	if err != nil {
		return err
	}
	k.Delete(found)
	if err := k.Conn.Flush(); err != nil && !nft.Absent(err) {
		return fmt.Errorf("nftables: end counting traffic: %w", err)
	}
	return nil
}

// intact reports whether the base chains have the expected number of rules. The library cannot
// parse the others, whose "ct original" it takes for a longer number.
func (k *kernel) intact() bool { return k.Intact(k.rules) }

// read returns the counters of a stage.
func (k *kernel) read(stage int) (map[flow]uint64, error) {
	out := map[flow]uint64{}
	for _, f := range nft.Families() {
		elements, err := k.Conn.GetSetElements(k.sets[stages[stage].name+f.Name])
		if err != nil {
			return nil, fmt.Errorf("nftables: counters of traffic: %w", err)
		}
		for _, e := range elements {
			if key, ok := parse(f, e.Key); ok && e.Counter != nil {
				out[key] = e.Counter.Packets
			}
		}
	}
	return out, nil
}

// readOutside returns the connections to addresses beyond the cluster of the last ten minutes.
func (k *kernel) readOutside() (all []outward, err error) {
	for _, f := range nft.Families() {
		elements, err := k.Conn.GetSetElements(k.outside[f.Name])
		if err != nil {
			return nil, fmt.Errorf("nftables: addresses beyond the cluster: %w", err)
		}
		for _, e := range elements {
			if o, ok := parseOutward(f, e.Key); ok {
				all = append(all, o)
			}
		}
	}
	return all, nil
}

// parseOutward is the reverse of outwardKey.
func parseOutward(f nft.Family, b []byte) (o outward, ok bool) {
	n := int(f.AddrLen)
	if len(b) != 2*n+8 {
		return o, false
	}
	o.from, _ = netip.AddrFromSlice(b[:n])
	o.to, _ = netip.AddrFromSlice(b[n : 2*n])
	b = b[2*n:]
	o.protocol, o.port = b[0], uint16(b[4])<<8|uint16(b[5])
	return o, true
}

// parse is the reverse of key.
func parse(f nft.Family, b []byte) (k flow, ok bool) {
	n := int(f.AddrLen)
	if len(b) != 2*n+8+16+4 {
		return k, false
	}
	k.from, _ = netip.AddrFromSlice(b[:n])
	k.to, _ = netip.AddrFromSlice(b[n : 2*n])
	b = b[2*n:]
	k.protocol, k.port = b[0], uint16(b[4])<<8|uint16(b[5])
	via, _ := netip.AddrFromSlice(b[8 : 8+n])
	viaPort := uint16(b[24])<<8 | uint16(b[25])
	if !via.IsUnspecified() && (via != k.to || viaPort != k.port) {
		k.via, k.viaPort = via, viaPort
	}
	return k, true
}

// class is the traffic of one rule.
type class struct {
	match                  []expr.Any
	fromOutside, toOutside bool
}

// classes returns the kinds of traffic to count: between pods, and between pods and the outside.
// The first one that matches a packet counts it.
func classes(f nft.Family, cluster []netip.Prefix) (all []class) {
	var own []netip.Prefix
	for _, p := range cluster {
		if nft.Of(p.Addr()).Name == f.Name {
			own = append(own, p)
		}
	}
	for _, from := range own {
		for _, to := range own {
			all = append(all, class{match: nft.Rule(f.SourceIn(from), f.DestIn(to))})
		}
	}
	for _, p := range own {
		all = append(all, class{match: f.SourceIn(p), toOutside: true}, class{match: f.DestIn(p), fromOutside: true})
	}
	return all
}

// key loads a flow: addresses, protocol and port, original destination and its port.
func key(f nft.Family, c class) []expr.Any {
	from, to := nft.R0, nft.R0+f.AddrRegs
	proto := to + f.AddrRegs
	via := proto + 2
	nothing := make([]byte, 16)
	parts := nft.Rule(f.SourceAddr(from), f.DestAddr(to), nft.L4Proto(proto), nft.DestPort(proto+1), nft.Immediate(via, nothing))
	if c.fromOutside {
		parts = nft.Rule(parts, nft.Immediate(from, nothing[:f.AddrLen]))
	}
	if c.toOutside {
		return nft.Rule(parts, nft.Immediate(to, nothing[:f.AddrLen]), nft.Immediate(via+4, nothing[:4]))
	}
	// ct original daddr, which fills 4 of the 16 bytes for IPv4, and ct original proto-dst
	return nft.Rule(parts, []expr.Any{
		&expr.Ct{Register: via, Key: expr.CtKeyDST},
		&expr.Ct{Register: via + 4, Key: expr.CtKeyPROTODST},
	})
}

// outwardKey loads both addresses, protocol and port.
func outwardKey(f nft.Family) []expr.Any {
	to := nft.R0 + f.AddrRegs
	proto := to + f.AddrRegs
	return nft.Rule(f.SourceAddr(nft.R0), f.DestAddr(to), nft.L4Proto(proto), nft.DestPort(proto+1))
}

// isNew is ct state new, for the first packet of a connection only.
func isNew() []expr.Any {
	return []expr.Any{
		&expr.Ct{Register: 1, Key: expr.CtKeySTATE},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: nft.Number(expr.CtStateBitNEW), Xor: nft.Number(0)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: nft.Number(0)},
		&expr.Ct{Register: 1, Key: expr.CtKeySTATUS},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: nft.Number(ctStatusConfirmed), Xor: nft.Number(0)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: nft.Number(0)},
	}
}

// count is update @set { KEY counter }.
func count(s *nftables.Set) []expr.Any {
	return []expr.Any{&expr.Dynset{SrcRegKey: nft.R0, SetName: s.Name, SetID: s.ID, Operation: unix.NFT_DYNSET_OP_UPDATE, Timeout: idle, Exprs: []expr.Any{&expr.Counter{}}}}
}

// remember is update @set { KEY }. With a full set, the rule ends there, and the next one goes on.
func remember(s *nftables.Set) []expr.Any {
	return []expr.Any{&expr.Dynset{SrcRegKey: nft.R0, SetName: s.Name, SetID: s.ID, Operation: unix.NFT_DYNSET_OP_UPDATE, Timeout: idle}}
}
