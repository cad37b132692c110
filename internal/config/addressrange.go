package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// AddressRange is a range of addresses of one family, both ends included.
type AddressRange struct{ First, Last netip.Addr }

// ParseAddressRange reads FIRST-LAST, a CIDR, or a single address.
func ParseAddressRange(text string) (AddressRange, error) {
	refuse := func() (AddressRange, error) {
		return AddressRange{}, fmt.Errorf("%q is not a range of addresses: use FIRST-LAST, a CIDR or an address", text)
	}
	var r AddressRange
	var err error
	switch from, to, dash := strings.Cut(text, "-"); {
	case dash:
		if r.First, err = netip.ParseAddr(strings.TrimSpace(from)); err != nil {
			return refuse()
		}
		if r.Last, err = netip.ParseAddr(strings.TrimSpace(to)); err != nil {
			return refuse()
		}
	case strings.Contains(text, "/"):
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return refuse()
		}
		r.First, r.Last = p.Masked().Addr(), lastOf(p)
	default:
		if r.First, err = netip.ParseAddr(text); err != nil {
			return refuse()
		}
		r.Last = r.First
	}
	for _, a := range []netip.Addr{r.First, r.Last} {
		if a.Zone() != "" || a.Is4In6() || a.IsMulticast() || a.IsUnspecified() || a.IsLoopback() {
			return refuse()
		}
	}
	if r.First.BitLen() != r.Last.BitLen() || r.Last.Less(r.First) {
		return refuse()
	}
	return r, nil
}

func lastOf(p netip.Prefix) netip.Addr {
	bytes := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	return last
}

// Contains reports whether the address is in the range.
func (r AddressRange) Contains(a netip.Addr) bool {
	return a.BitLen() == r.First.BitLen() && !a.Less(r.First) && !r.Last.Less(a)
}

// Words of --load-balancer-pool beside ranges.
const (
	// PoolNodes gives Services the addresses of nodes.
	PoolNodes = "nodes"
	// PoolResources reads LoadBalancerPool objects.
	PoolResources = "resources"
	// PoolNone leaves Services to an add-on.
	PoolNone = "none"
)

func (c *Config) validatePools(bad func(field, value, allowed string)) {
	const field = "load-balancer-pool"
	has := func(word string) bool { return slices.Contains(c.LoadBalancerPool, word) }
	ranges := 0
	for _, text := range c.LoadBalancerPool {
		if text == PoolNodes || text == PoolResources || text == PoolNone {
			continue
		}
		ranges++
		if _, err := ParseAddressRange(text); err != nil {
			bad(field, text, "FIRST-LAST, a CIDR or an address; or nodes, resources or none")
		}
	}
	if has(PoolNone) && len(c.LoadBalancerPool) > 1 {
		bad(field, strings.Join(c.LoadBalancerPool, ","), "none without other values")
	}
	if has(PoolNodes) && ranges > 0 {
		bad(field, strings.Join(c.LoadBalancerPool, ","), "either nodes or ranges")
	}
}
