// Package nft provides the building blocks of knarr's nftables rules: the table, registers, and
// named expressions. A rule is a list of expressions. The comment above each list shows it in nft's
// own syntax.
package nft

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"syscall"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// TableName is the name of knarr's only table.
const TableName = "knarr"

// Table returns knarr's table. Its family is inet, so that one set of hooks serves IPv4 and IPv6.
func Table() *nftables.Table {
	return &nftables.Table{Name: TableName, Family: nftables.TableFamilyINet}
}

// R0 is the first of sixteen 4-byte registers; R0+i is the i-th. Concatenated keys use consecutive
// registers.
const R0 = uint32(unix.NFT_REG32_00)

// elementsPerMessage keeps an element list below netlink's limit of 64 KiB per attribute.
const elementsPerMessage = 400

// Family holds the differences between IPv4 and IPv6 in rules.
type Family struct {
	Name         string // "4" or "6", the suffix of our maps
	NFProto      uint8
	AddrLen      uint32
	SourceOffset uint32
	DestOffset   uint32
	AddrType     nftables.SetDatatype
	AddrRegs     uint32 // number of 4-byte registers for an address
}

// IPv4 and IPv6.
var (
	IPv4 = Family{Name: "4", NFProto: unix.NFPROTO_IPV4, AddrLen: 4, SourceOffset: 12, DestOffset: 16, AddrType: nftables.TypeIPAddr, AddrRegs: 1}
	IPv6 = Family{Name: "6", NFProto: unix.NFPROTO_IPV6, AddrLen: 16, SourceOffset: 8, DestOffset: 24, AddrType: nftables.TypeIP6Addr, AddrRegs: 4}
)

// Of returns the address's family.
func Of(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// Families lists both families.
func Families() []Family { return []Family{IPv4, IPv6} }

// Open connects to the kernel, with buffers for the acknowledgements of a large transaction.
func Open() (*nftables.Conn, error) {
	return nftables.New(nftables.AsLasting(), nftables.WithSockOptions(bigBuffers))
}

// Absent reports whether the object to delete or list does not exist.
func Absent(err error) bool { return errors.Is(err, syscall.ENOENT) }

// Concat combines several types into the type of a set's key or data.
func Concat(types ...nftables.SetDatatype) nftables.SetDatatype {
	t, err := nftables.ConcatSetType(types...)
	if err != nil {
		// More than five parts are a programming error.
		panic(fmt.Sprintf("concatenated nftables type: %v", err))
	}
	return t
}

var lastSetID atomic.Uint32

// AddSet queues an empty set or map. It assigns the set's number itself, because the library uses a
// global variable without a lock.
func AddSet(c *nftables.Conn, s *nftables.Set) error {
	s.ID = lastSetID.Add(1)
	if err := c.AddSet(s, nil); err != nil {
		return fmt.Errorf("nftables: map %s: %w", s.Name, err)
	}
	return nil
}

// AddElements queues elements in messages of a size that netlink accepts.
func AddElements(c *nftables.Conn, s *nftables.Set, elements []nftables.SetElement) error {
	return chunked(elements, func(part []nftables.SetElement) error { return c.SetAddElements(s, part) })
}

// DeleteElements queues the deletion of elements by key.
func DeleteElements(c *nftables.Conn, s *nftables.Set, elements []nftables.SetElement) error {
	return chunked(elements, func(part []nftables.SetElement) error { return c.SetDeleteElements(s, part) })
}

func chunked(elements []nftables.SetElement, send func([]nftables.SetElement) error) error {
	for len(elements) > 0 {
		n := min(len(elements), elementsPerMessage)
		if err := send(elements[:n]); err != nil {
			return err
		}
		elements = elements[n:]
	}
	return nil
}

// Key concatenates parts as registers hold them: each padded to a multiple of 4 bytes.
func Key(parts ...[]byte) []byte {
	var out []byte
	for _, p := range parts {
		out = append(out, p...)
		for len(out)%4 != 0 {
			out = append(out, 0)
		}
	}
	return out
}

// Port encodes a port as in packets.
func Port(p uint16) []byte { return binaryutil.BigEndian.PutUint16(p) }

// Number encodes a 32-bit number as in registers.
func Number(n uint32) []byte { return binaryutil.NativeEndian.PutUint32(n) }

// Rule concatenates lists of expressions.
func Rule(parts ...[]expr.Any) []expr.Any {
	var out []expr.Any
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// SourceAddr loads ip saddr.
func (f Family) SourceAddr(reg uint32) []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: reg, Base: expr.PayloadBaseNetworkHeader, Offset: f.SourceOffset, Len: f.AddrLen}}
}

// DestAddr loads ip daddr.
func (f Family) DestAddr(reg uint32) []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: reg, Base: expr.PayloadBaseNetworkHeader, Offset: f.DestOffset, Len: f.AddrLen}}
}

// L4Proto loads meta l4proto.
func L4Proto(reg uint32) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg}}
}

// DestPort loads th dport.
func DestPort(reg uint32) []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: reg, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}}
}

// DestPortIs is th dport N.
func DestPortIs(n uint16) []expr.Any {
	return Rule(DestPort(1), []expr.Any{&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: Port(n)}})
}

// LinkName encodes a link's name as in registers.
func LinkName(name string) []byte {
	b := make([]byte, unix.IFNAMSIZ)
	copy(b, name)
	return b
}

// InputName loads meta iifname, which takes four registers.
func InputName(reg uint32) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: reg}}
}

// InputNameBegins is iifname "PREFIX*".
func InputNameBegins(prefix string) []expr.Any {
	return Rule(InputName(1), []expr.Any{&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte(prefix)}})
}

// InputNameIsNot is iifname != NAME.
func InputNameIsNot(name string) []expr.Any {
	return Rule(InputName(1), []expr.Any{&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: LinkName(name)}})
}

// SourceMAC loads ether saddr, which takes two registers. The packet must come from an Ethernet
// link.
func SourceMAC(reg uint32) []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: reg, Base: expr.PayloadBaseLLHeader, Offset: 6, Len: 6}}
}

// NeighbourDiscovery is icmpv6 type 133-137: solicitations, advertisements and redirects.
func NeighbourDiscovery() []expr.Any {
	return Rule(L4ProtoIs(unix.IPPROTO_ICMPV6), []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 1},
		&expr.Range{Op: expr.CmpOpEq, Register: 1, FromData: []byte{133}, ToData: []byte{137}},
	})
}

// Immediate loads a constant.
func Immediate(reg uint32, data []byte) []expr.Any {
	return []expr.Any{&expr.Immediate{Register: reg, Data: data}}
}

// Random loads numgen random mod n.
func Random(reg, n uint32) []expr.Any {
	return []expr.Any{&expr.Numgen{Register: reg, Modulus: n, Type: unix.NFT_NG_RANDOM}}
}

// Map looks up the key at reg and loads the value. Without a match the rule ends here.
func Map(s *nftables.Set, key, dest uint32) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: key, DestRegister: dest, IsDestRegSet: true, SetName: s.Name, SetID: s.ID}}
}

// VMap looks up the key at reg and executes the verdict.
func VMap(s *nftables.Set, key uint32) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: key, DestRegister: 0, IsDestRegSet: true, SetName: s.Name, SetID: s.ID}}
}

// In continues if the key at reg is in the set.
func In(s *nftables.Set, key uint32) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: key, SetName: s.Name, SetID: s.ID}}
}

// Only continues for packets of the family.
func (f Family) Only() []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{f.NFProto}}}
}

// inPrefix compares the address at register 1.
func (f Family) inPrefix(p netip.Prefix, op expr.CmpOp) []expr.Any {
	p = p.Masked()
	mask := make([]byte, f.AddrLen)
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return []expr.Any{
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: f.AddrLen, Mask: mask, Xor: make([]byte, f.AddrLen)},
		&expr.Cmp{Op: op, Register: 1, Data: p.Addr().AsSlice()},
	}
}

// SourceIn is ip saddr PREFIX.
func (f Family) SourceIn(p netip.Prefix) []expr.Any {
	return Rule(f.SourceAddr(1), f.inPrefix(p, expr.CmpOpEq))
}

// SourceNotIn is ip saddr != PREFIX.
func (f Family) SourceNotIn(p netip.Prefix) []expr.Any {
	return Rule(f.SourceAddr(1), f.inPrefix(p, expr.CmpOpNeq))
}

// DestIn is ip daddr PREFIX.
func (f Family) DestIn(p netip.Prefix) []expr.Any {
	return Rule(f.DestAddr(1), f.inPrefix(p, expr.CmpOpEq))
}

// DestNotIn is ip daddr != PREFIX.
func (f Family) DestNotIn(p netip.Prefix) []expr.Any {
	return Rule(f.DestAddr(1), f.inPrefix(p, expr.CmpOpNeq))
}

// DestIsLocal is fib daddr type local.
func DestIsLocal() []expr.Any {
	return []expr.Any{&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: Number(unix.RTN_LOCAL)}}
}

// SourceIsNotLocal is fib saddr type != local.
func SourceIsNotLocal() []expr.Any {
	return []expr.Any{&expr.Fib{Register: 1, FlagSADDR: true, ResultADDRTYPE: true}, &expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: Number(unix.RTN_LOCAL)}}
}

// L4ProtoIs is meta l4proto N.
func L4ProtoIs(n uint8) []expr.Any {
	return Rule(L4Proto(1), []expr.Any{&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{n}}})
}

// InputNotLoopback is iifname != "lo", by its index, which is always 1.
func InputNotLoopback() []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyIIF, Register: 1}, &expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: Number(1)}}
}

// OutputNotLoopback is oifname != "lo".
func OutputNotLoopback() []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyOIF, Register: 1}, &expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: Number(1)}}
}

// ctStatusDNAT is IPS_DST_NAT of the kernel's ip_conntrack_status.
const ctStatusDNAT = 1 << 5

// WasDNAT is ct status dnat.
func WasDNAT() []expr.Any {
	return []expr.Any{
		&expr.Ct{Register: 1, Key: expr.CtKeySTATUS},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: Number(ctStatusDNAT), Xor: Number(0)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: Number(0)},
	}
}

// SetMark is meta mark set meta mark or BIT.
func SetMark(bit uint32) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: Number(^bit), Xor: Number(bit)},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1},
	}
}

// HasMark is meta mark and BIT != 0.
func HasMark(bit uint32) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: Number(bit), Xor: Number(0)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: Number(0)},
	}
}

// ClearMark is meta mark set meta mark and not BIT.
func ClearMark(bit uint32) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: Number(^bit), Xor: Number(0)},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1},
	}
}

// DNAT sends the connection to the address at addr and the port at port.
func (f Family) DNAT(addr, port uint32) []expr.Any {
	return []expr.Any{&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(f.NFProto), RegAddrMin: addr, RegProtoMin: port, Specified: true}}
}

// Masquerade replaces the source address by the outgoing link's and the source port by a random
// one. With random ports, two hosts behind the same masquerade do not collide.
func Masquerade() []expr.Any { return []expr.Any{&expr.Masq{FullyRandom: true}} }

// Goto continues in a chain and does not return.
func Goto(chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}}
}

// Jump continues in a chain and returns.
func Jump(chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: chain}}
}

// Drop drops the packet.
func Drop() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}} }

// Return leaves a chain.
func Return() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictReturn}} }

// Refuse answers with "port unreachable", which clients see as "connection refused".
func Refuse() []expr.Any {
	return []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_PORT_UNREACH}}
}

// Base makes a base chain.
func Base(name string, typ nftables.ChainType, hook *nftables.ChainHook, priority nftables.ChainPriority) *nftables.Chain {
	return &nftables.Chain{Name: name, Table: Table(), Type: typ, Hooknum: hook, Priority: nftables.ChainPriorityRef(priority)}
}

// Adder returns a function that queues rules, each given as a chain and lists of expressions.
func Adder(c *nftables.Conn) func(*nftables.Chain, ...[]expr.Any) {
	return func(chain *nftables.Chain, parts ...[]expr.Any) {
		c.AddRule(&nftables.Rule{Table: chain.Table, Chain: chain, Exprs: Rule(parts...)})
	}
}
