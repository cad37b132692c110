package proxy

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/knarr-project/knarr/internal/network/nft"
)

// masqueradeMark is the packet mark for masquerading, the bit that Kubernetes has always used.
const masqueradeMark = 0x4000

// The proxy's chains in the shared table. The pod network's chains begin with "pod-".
const (
	chainPrefix      = "svc-"
	chainPrerouting  = "svc-prerouting"
	chainOutput      = "svc-output"
	chainPostrouting = "svc-postrouting"
	chainDispatch    = "svc-dispatch" // + family
	chainRefuse      = "svc-refuse"
	chainDrop        = "svc-drop"
)

// mapPrefix begins the names of our maps.
const mapPrefix = "svc-"

// ruleset holds the desired content of the kernel and applies it. It is not safe for concurrent
// use.
type ruleset struct {
	clusterCIDRs, serviceCIDRs []netip.Prefix

	nft.Socket
	maps map[string]*nftables.Set // by name
	// desired content of each map, except for dynamic ones and verdicts
	content     map[string]map[string]string
	before      map[string]map[string]*string
	classes     map[class]uint32
	fresh       []class // not in the kernel yet
	rules       map[string]int
	ready       bool
	generations nft.Generations
	seen        uint32 // generation of the kernel's rules at the last check
}

// class is a treatment without the group: everything that the rules of its chain depend on.
type class struct {
	lookupMap  lookupMap
	v4         bool
	refuse     bool
	drop       bool
	slots      int
	masquerade masquerading
	affinity   int32
	ranges     string
}

func newRuleset(clusterCIDRs, serviceCIDRs []netip.Prefix) *ruleset {
	r := &ruleset{
		clusterCIDRs: clusterCIDRs, serviceCIDRs: serviceCIDRs, maps: map[string]*nftables.Set{}, content: map[string]map[string]string{},
		before: map[string]map[string]*string{}, classes: map[class]uint32{}, rules: map[string]int{},
	}
	number := nftables.TypeMark // 32 bits in host order
	entry := nft.Concat(number, number)
	for _, f := range nft.Families() {
		target := nft.Concat(f.AddrType, nftables.TypeInetService)
		r.newMap(string(servicesMap), f, nft.Concat(f.AddrType, nftables.TypeInetProto, nftables.TypeInetService), entry)
		r.newMap(string(externalMap), f, nft.Concat(f.AddrType, nftables.TypeInetProto, nftables.TypeInetService), entry)
		r.newMap(string(nodePortsMap), f, nft.Concat(nftables.TypeInetProto, nftables.TypeInetService), entry)
		r.newMap(string(externalNodePortsMap), f, nft.Concat(nftables.TypeInetProto, nftables.TypeInetService), entry)
		r.newMap("endpoints", f, nft.Concat(number, number), target) // group . slot : addr . port
		r.newMap("slots", f, nft.Concat(number, number), number)     // group . slot : member
		r.newMap("members", f, nft.Concat(number, number), target)   // group . member : addr . port
		hairpin := r.newMap("hairpin", f, nft.Concat(f.AddrType, f.AddrType), nftables.SetDatatype{})
		hairpin.IsMap = false
		// client . group : member
		affinity := r.newMap("affinity", f, nft.Concat(f.AddrType, number), number)
		affinity.Dynamic, affinity.HasTimeout, affinity.Size = true, true, 1<<18
		r.newMap("classes", f, number, nftables.TypeVerdict).Concatenation = false
	}
	return r
}

func (r *ruleset) newMap(name string, f nft.Family, key, data nftables.SetDatatype) *nftables.Set {
	s := &nftables.Set{Table: nft.Table(), Name: mapPrefix + name + f.Name, IsMap: true, Concatenation: true, KeyType: key, DataType: data}
	r.maps[name+f.Name] = s
	r.content[name+f.Name] = map[string]string{}
	return s
}

func familyOf(v4 bool) nft.Family {
	if v4 {
		return nft.IPv4
	}
	return nft.IPv6
}

// put sets the value of key, delete removes key. commit sends the changes.
func (r *ruleset) put(m string, key, value []byte) { r.change(m, string(key), ptr(string(value))) }

func (r *ruleset) delete(m string, key []byte) { r.change(m, string(key), nil) }

func ptr[T any](v T) *T { return &v }

func (r *ruleset) change(m, key string, value *string) {
	content := r.content[m]
	old, had := content[key]
	if r.before[m] == nil {
		r.before[m] = map[string]*string{}
	}
	if _, noted := r.before[m][key]; !noted {
		if had {
			r.before[m][key] = &old
		} else {
			r.before[m][key] = nil
		}
	}
	if value == nil {
		delete(content, key)
	} else {
		content[key] = *value
	}
}

// classNumber returns the class's number. The next commit creates its chain.
func (r *ruleset) classNumber(c class) uint32 {
	if n, ok := r.classes[c]; ok {
		return n
	}
	n := uint32(len(r.classes) + 1)
	r.classes[c] = n
	r.fresh = append(r.fresh, c)
	return n
}

// commit sends the changes since the last commit in one transaction.
func (r *ruleset) commit() error {
	if !r.ready {
		return r.install()
	}
	if err := r.sendChanges(); err != nil {
		return errors.Join(fmt.Errorf("nftables: changes of Services: %w", err), r.install())
	}
	r.seen, _ = r.generations.Now()
	return nil
}

func (r *ruleset) sendChanges() error {
	for _, c := range r.fresh {
		if err := r.queueClass(c); err != nil {
			return err
		}
	}
	// Elements are replaced by deleting and adding them, in this order, in one transaction.
	for _, add := range []bool{false, true} {
		for m, keys := range r.before {
			var elements []nftables.SetElement
			for key, old := range keys {
				now, has := r.content[m][key]
				switch {
				case old != nil && has && *old == now:
				case add && has:
					elements = append(elements, element(key, now))
				case !add && old != nil:
					elements = append(elements, element(key, *old))
				}
			}
			send := nft.DeleteElements
			if add {
				send = nft.AddElements
			}
			if err := send(r.Conn, r.maps[m], elements); err != nil {
				return err
			}
		}
	}
	if err := r.Conn.Flush(); err != nil {
		return err
	}
	r.before, r.fresh = map[string]map[string]*string{}, nil
	return nil
}

func element(key, value string) nftables.SetElement {
	e := nftables.SetElement{Key: []byte(key)}
	if value != "" {
		e.Val = []byte(value)
	}
	return e
}

// install replaces all our rules in the kernel by the desired ones, in one transaction, so no
// packet sees an intermediate state. conntrack keeps established connections.
func (r *ruleset) install() error {
	r.close()
	if err := r.Open(); err != nil {
		return err
	}
	r.rules = map[string]int{}
	if err := r.queueRemoval(); err != nil {
		return err
	}
	for _, s := range r.maps {
		if err := nft.AddSet(r.Conn, s); err != nil {
			return err
		}
	}
	r.queueBase()
	for c := range r.classes {
		if err := r.queueClass(c); err != nil {
			return err
		}
	}
	for m, content := range r.content {
		elements := make([]nftables.SetElement, 0, len(content))
		for key, value := range content {
			elements = append(elements, element(key, value))
		}
		if err := nft.AddElements(r.Conn, r.maps[m], elements); err != nil {
			return fmt.Errorf("nftables: map %s: %w", m, err)
		}
	}
	if err := r.Conn.Flush(); err != nil {
		return fmt.Errorf("nftables: Service rules: %w", err)
	}
	r.before, r.fresh, r.ready = map[string]map[string]*string{}, nil, true
	r.seen, _ = r.generations.Now()
	return nil
}

// queueRemoval empties and deletes everything under our names that an older process or another
// program left.
func (r *ruleset) queueRemoval() error {
	r.Conn.AddTable(nft.Table()) // at once, because listing a missing table fails
	if err := r.Conn.Flush(); err != nil {
		return fmt.Errorf("nftables: table %s: %w", nft.TableName, err)
	}
	found, err := r.Find(chainPrefix, mapPrefix)
	if err != nil {
		return err
	}
	r.Delete(found)
	return nil
}

func (r *ruleset) rule(chain string, parts ...[]expr.Any) {
	r.rules[chain]++
	c := &nftables.Chain{Name: chain, Table: nft.Table()}
	nft.Adder(r.Conn)(c, parts...)
}

func (r *ruleset) chain(name string) {
	r.Conn.AddChain(&nftables.Chain{Name: name, Table: nft.Table()})
	r.rules[name] += 0
}

// queueBase queues the hooks and the rules that lead from a packet to its class.
func (r *ruleset) queueBase() {
	for _, c := range []*nftables.Chain{
		nft.Base(chainPrerouting, nftables.ChainTypeNAT, nftables.ChainHookPrerouting, *nftables.ChainPriorityNATDest),
		nft.Base(chainOutput, nftables.ChainTypeNAT, nftables.ChainHookOutput, *nftables.ChainPriorityNATDest),
		// Before the pod network's masquerading, which ignores marks.
		nft.Base(chainPostrouting, nftables.ChainTypeNAT, nftables.ChainHookPostrouting, *nftables.ChainPriorityNATSource-1),
	} {
		r.Conn.AddChain(c)
	}
	r.chain(chainRefuse)
	r.rule(chainRefuse, nft.Refuse())
	r.chain(chainDrop)
	r.rule(chainDrop, nft.Drop())
	for _, f := range nft.Families() {
		dispatch := chainDispatch + f.Name
		r.chain(dispatch)
		r.rule(chainPrerouting, f.Only(), nft.Jump(dispatch))
		r.rule(chainOutput, f.Only(), nft.Jump(dispatch))
		r.queueDispatch(f, dispatch)
		// ct status dnat ip saddr . ip daddr @hairpin masquerade
		r.rule(chainPostrouting, f.Only(), nft.WasDNAT(), f.SourceAddr(nft.R0), f.DestAddr(nft.R0+f.AddrRegs), nft.In(r.maps["hairpin"+f.Name], nft.R0), nft.Masquerade())
	}
	r.rule(chainPostrouting, nft.HasMark(masqueradeMark), nft.ClearMark(masqueradeMark), nft.Masquerade())
}

// queueDispatch queues the rules that look up a packet's destination, first as clients outside of
// the cluster see it.
func (r *ruleset) queueDispatch(f nft.Family, chain string) {
	var stranger []expr.Any
	for _, p := range r.clusterCIDRs {
		if nft.Of(p.Addr()) == f {
			stranger = nft.Rule(stranger, f.SourceNotIn(p))
		}
	}
	stranger = nft.Rule(stranger, nft.SourceIsNotLocal())
	toClass := func(p lookupMap) []expr.Any {
		load, entry := r.loadEntry(p, f)
		return nft.Rule(load, nft.VMap(r.maps["classes"+f.Name], entry))
	}
	loopback := netip.MustParsePrefix("127.0.0.0/8")
	if f == nft.IPv6 {
		loopback = netip.MustParsePrefix("::1/128")
	}
	r.rule(chain, stranger, toClass(externalMap))
	r.rule(chain, toClass(servicesMap))
	r.rule(chain, stranger, nft.DestIsLocal(), f.DestNotIn(loopback), toClass(externalNodePortsMap))
	r.rule(chain, nft.DestIsLocal(), f.DestNotIn(loopback), toClass(nodePortsMap))
	for _, p := range r.serviceCIDRs { // no such Service, or not this port
		if nft.Of(p.Addr()) == f {
			r.rule(chain, f.DestIn(p), nft.Goto(chainRefuse))
		}
	}
}

// loadEntry returns expressions that find the packet's frontend, and the register that then holds
// its class, followed by its group.
func (r *ruleset) loadEntry(p lookupMap, f nft.Family) ([]expr.Any, uint32) {
	entry := nft.R0 + f.AddrRegs + 2
	proto := nft.R0 + f.AddrRegs
	key := proto
	var load []expr.Any
	if p == servicesMap || p == externalMap {
		key, load = nft.R0, f.DestAddr(nft.R0)
	}
	return nft.Rule(load, nft.L4Proto(proto), nft.DestPort(proto+1), nft.Map(r.maps[string(p)+f.Name], key, entry)), entry
}

// close closes the connection; the rules stay.
func (r *ruleset) close() {
	r.Close()
	r.generations.Close()
}
