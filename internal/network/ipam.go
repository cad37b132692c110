package network

import (
	"errors"
	"fmt"
	"net/netip"
)

// errExhausted means that every address of the range is in use.
var errExhausted = errors.New("no address is free")

// ipam allocates the addresses of one range, round-robin, so that an address rests as long as
// possible before reuse. It has no lock and no file. The attachments' files are the record, from
// which the agent fills a new ipam.
type ipam struct {
	cidr    netip.Prefix
	gateway netip.Addr
	used    map[netip.Addr]string // owner
	last    netip.Addr
}

func newIPAM(cidr netip.Prefix) *ipam {
	cidr = cidr.Masked()
	gateway := cidr.Addr().Next()
	return &ipam{cidr: cidr, gateway: gateway, used: map[netip.Addr]string{}, last: gateway}
}

// allocate assigns the next free address to owner. It never assigns the network's address, the
// gateway and, for IPv4, the broadcast address.
func (p *ipam) allocate(owner string) (netip.Addr, error) {
	const most = 1 << 16 // never search all of an IPv6 /64
	addr := p.last
	for range most {
		addr = addr.Next()
		if !addr.IsValid() || !p.cidr.Contains(addr) {
			addr = p.gateway.Next()
		}
		if p.isBroadcast(addr) {
			continue
		}
		if _, taken := p.used[addr]; !taken && p.cidr.Contains(addr) {
			p.used[addr], p.last = owner, addr
			return addr, nil
		}
		if addr == p.last {
			break
		}
	}
	return netip.Addr{}, fmt.Errorf("pod range %s: %w (%d in use)", p.cidr, errExhausted, len(p.used))
}

func (p *ipam) isBroadcast(addr netip.Addr) bool {
	next := addr.Next()
	return addr.Is4() && p.cidr.Bits() < 31 && (!next.IsValid() || !p.cidr.Contains(next))
}

// claim records an address in use. It ignores an address outside of the range, which happens after
// the range changed.
func (p *ipam) claim(addr netip.Addr, owner string) {
	if p.cidr.Contains(addr) {
		p.used[addr] = owner
		if p.last.Less(addr) {
			p.last = addr
		}
	}
}

// release frees the address if owner has it.
func (p *ipam) release(addr netip.Addr, owner string) {
	if p.used[addr] == owner {
		delete(p.used, addr)
	}
}
