package policy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"

	"github.com/knarr-project/knarr/internal/network/nft"
)

const (
	prefix    = "pol-"
	baseChain = prefix + "forward"
)

// kernel records what is installed in the kernel. It is not safe for concurrent use.
type kernel struct {
	nft.Socket
	sets   map[string]*nftables.Set
	chains map[string]int // number of rules per chain
	jumps  map[string]*nftables.Set
	self   map[string]*nftables.Set
	// round makes all names new when everything is installed afresh, because the content under the
	// old names is unknown.
	round int
}

// apply installs the plan in one transaction. With afresh, it also installs the parts that should
// exist already.
func (k *kernel) apply(p plan, afresh bool) error {
	if err := k.Open(); err != nil {
		return err
	}
	old := *k
	var foreign nft.Installed
	if afresh {
		var err error
		if foreign, err = k.leftovers(); err != nil {
			return err
		}
		k.round++
		k.sets, k.chains = nil, nil
	}
	now := kernel{Socket: k.Socket, round: k.round, sets: map[string]*nftables.Set{}, chains: map[string]int{}, jumps: map[string]*nftables.Set{}, self: map[string]*nftables.Set{}}
	if err := now.queue(p, k); err != nil {
		*k = old
		return err
	}
	now.remove(k, foreign)
	if err := now.Conn.Flush(); err != nil {
		*k = old
		return fmt.Errorf("nftables: network policies: %w", err)
	}
	*k = now
	return nil
}

// name returns a planned name with this round's suffix.
func (k *kernel) name(planned string) string { return fmt.Sprintf("%s-%d", planned, k.round) }

// queue queues the parts of the plan that old lacks, and the jumps to them.
func (k *kernel) queue(p plan, old *kernel) error {
	c := k.Conn
	c.AddTable(nft.Table())
	for _, planned := range slices.Sorted(maps.Keys(p.sets)) {
		name := k.name(planned)
		if s, ok := old.sets[name]; ok {
			k.sets[name] = s
			continue
		}
		s, elements := p.sets[planned].elements(name)
		if err := nft.AddSet(c, s); err != nil {
			return err
		}
		if err := nft.AddElements(c, s, elements); err != nil {
			return err
		}
		k.sets[name] = s
	}
	rule := k.adder()
	for _, planned := range slices.Sorted(maps.Keys(p.chains)) {
		name := k.name(planned)
		if n, ok := old.chains[name]; ok {
			k.chains[name] = n
			continue
		}
		k.chains[name] = 0
		chain := c.AddChain(&nftables.Chain{Name: name, Table: nft.Table()})
		d := ingress
		if strings.HasPrefix(planned, prefix+string(egress)) {
			d = egress
		}
		for _, r := range p.chains[planned] {
			rule(chain, k.match(d, r), nft.Return())
		}
		rule(chain, nft.Drop())
	}
	return k.queueBase(p, rule)
}

func (k *kernel) adder() func(*nftables.Chain, ...[]expr.Any) {
	add := nft.Adder(k.Conn)
	return func(chain *nftables.Chain, parts ...[]expr.Any) {
		k.chains[chain.Name]++
		add(chain, parts...)
	}
}

// queueBase queues the base chain. It accepts packets of established connections and of a pod to
// itself. All other packets must pass the sender's chain and the receiver's.
func (k *kernel) queueBase(p plan, rule func(*nftables.Chain, ...[]expr.Any)) error {
	base := nft.Base(baseChain, nftables.ChainTypeFilter, nftables.ChainHookForward, *nftables.ChainPriorityFilter)
	k.chains[baseChain] = 0
	k.Conn.AddChain(base)
	k.Conn.FlushChain(base)
	rule(base, established(), []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}})
	for _, f := range nft.Families() {
		self := &nftables.Set{Table: nft.Table(), Name: prefix + "self" + f.Name, Concatenation: true, KeyType: nft.Concat(f.AddrType, f.AddrType)}
		k.self[f.Name] = self
		var pairs []nftables.SetElement
		for _, a := range sorted(p.self, f) {
			pairs = append(pairs, nftables.SetElement{Key: nft.Key(a.AsSlice(), a.AsSlice())})
		}
		if err := k.fill(self, pairs); err != nil {
			return err
		}
		rule(base, f.Only(), f.SourceAddr(nft.R0), f.DestAddr(nft.R0+f.AddrRegs), nft.In(self, nft.R0), []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}})
		for _, d := range []direction{egress, ingress} {
			jumpMap := &nftables.Set{Table: nft.Table(), Name: prefix + string(d) + f.Name, IsMap: true, KeyType: f.AddrType, DataType: nftables.TypeVerdict}
			k.jumps[string(d)+f.Name] = jumpMap
			var elements []nftables.SetElement
			for _, a := range sorted(p.jumps[d], f) {
				elements = append(elements, nftables.SetElement{Key: a.AsSlice(), VerdictData: &expr.Verdict{Kind: expr.VerdictJump, Chain: k.name(p.jumps[d][a])}})
			}
			if err := k.fill(jumpMap, elements); err != nil {
				return err
			}
			end := f.SourceAddr(1)
			if d == ingress {
				end = f.DestAddr(1)
			}
			rule(base, f.Only(), end, nft.VMap(jumpMap, 1))
		}
	}
	return nil
}

// fill queues a set with exactly these elements.
func (k *kernel) fill(s *nftables.Set, elements []nftables.SetElement) error {
	if err := nft.AddSet(k.Conn, s); err != nil {
		return err
	}
	k.Conn.FlushSet(s)
	return nft.AddElements(k.Conn, s, elements)
}

func sorted[V any](m map[netip.Addr]V, f nft.Family) []netip.Addr {
	var out []netip.Addr
	for a := range m {
		if nft.Of(a).Name == f.Name {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

func familyOf(v4 bool) nft.Family {
	if v4 {
		return nft.IPv4
	}
	return nft.IPv6
}

// established is ct state established,related.
func established() []expr.Any {
	return []expr.Any{
		&expr.Ct{Register: 1, Key: expr.CtKeySTATE},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: nft.Number(expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED), Xor: nft.Number(0)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: nft.Number(0)},
	}
}

// elements returns the nftables set and its elements.
func (s set) elements(name string) (*nftables.Set, []nftables.SetElement) {
	f := familyOf(s.v4)
	var list []nftables.SetElement
	if s.destinations != nil {
		for _, d := range s.destinations {
			list = append(list, nftables.SetElement{Key: nft.Key(d.addr.AsSlice(), []byte{d.proto}, nft.Port(d.port))})
		}
		return &nftables.Set{Table: nft.Table(), Name: name, Concatenation: true, KeyType: nft.Concat(f.AddrType, nftables.TypeInetProto, nftables.TypeInetService)}, list
	}
	for _, a := range s.addresses {
		list = append(list, nftables.SetElement{Key: a.AsSlice()})
	}
	return &nftables.Set{Table: nft.Table(), Name: name, KeyType: f.AddrType}, list
}

// match returns the expressions of a rule.
func (k *kernel) match(d direction, r rule) []expr.Any {
	f := familyOf(r.v4)
	load, in, notIn := f.SourceAddr(1), f.SourceIn, f.SourceNotIn
	if d == egress {
		load, in, notIn = f.DestAddr(1), f.DestIn, f.DestNotIn
	}
	out := f.Only()
	if r.peers != "" {
		out = nft.Rule(out, load, nft.In(k.sets[k.name(r.peers)], 1))
	}
	if r.block.IsValid() {
		out = nft.Rule(out, in(r.block))
		for _, e := range r.except {
			out = nft.Rule(out, notIn(e))
		}
	}
	if r.proto != 0 {
		out = nft.Rule(out, nft.L4ProtoIs(r.proto))
	}
	if r.named != "" {
		out = nft.Rule(out, f.DestAddr(nft.R0), nft.L4Proto(nft.R0+f.AddrRegs), nft.DestPort(nft.R0+f.AddrRegs+1), nft.In(k.sets[k.name(r.named)], nft.R0))
	}
	if r.from != 0 {
		from, to := binaryutil.BigEndian.PutUint16(r.from), binaryutil.BigEndian.PutUint16(r.to)
		out = nft.Rule(out, nft.DestPort(1), []expr.Any{&expr.Range{Op: expr.CmpOpEq, Register: 1, FromData: from, ToData: to}})
	}
	return out
}

// isStable reports whether the name is the same in every round.
func isStable(name string) bool {
	for _, f := range nft.Families() {
		if name == prefix+"self"+f.Name || name == prefix+string(ingress)+f.Name || name == prefix+string(egress)+f.Name {
			return true
		}
	}
	return name == baseChain
}

// leftovers are chains and sets that an earlier round has made.
func (k *kernel) leftovers() (nft.Installed, error) {
	found, err := k.Find(prefix, prefix)
	found.Chains = slices.DeleteFunc(found.Chains, func(c *nftables.Chain) bool { return isStable(c.Name) })
	found.Sets = slices.DeleteFunc(found.Sets, func(s *nftables.Set) bool { return isStable(s.Name) })
	return found, err
}

// remove queues the deletion of chains and sets that are not referenced any more.
func (k *kernel) remove(old *kernel, l nft.Installed) {
	for name := range old.chains {
		if _, ok := k.chains[name]; !ok {
			l.Chains = append(l.Chains, &nftables.Chain{Name: name, Table: nft.Table()})
		}
	}
	for name, s := range old.sets {
		if _, ok := k.sets[name]; !ok {
			l.Sets = append(l.Sets, s)
		}
	}
	k.Delete(l)
}

// intact reports whether each chain in the kernel still has the expected number of rules.
func (k *kernel) intact() bool { return k.Open() == nil && k.Intact(k.chains) }
