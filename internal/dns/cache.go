package dns

import (
	"sync"
	"time"

	mdns "github.com/miekg/dns"
)

// Limits of the cache of forwarded answers.
const (
	cacheEntries = 4096
	cacheLongest = 30 * time.Second
)

// cache keeps answers of upstream resolvers for the TTL of their records, at most 30 s.
type cache struct {
	mu      sync.Mutex
	entries map[cacheKey]cached // guarded by mu
}

type cacheKey struct {
	name          string
	qtype, qclass uint16
	do, cd        bool
}

type cached struct {
	msg            *mdns.Msg // shared, read-only
	stored, expiry time.Time
}

func newCache() *cache { return &cache{entries: map[cacheKey]cached{}} }

func keyOf(m *mdns.Msg) cacheKey {
	q := m.Question[0]
	k := cacheKey{name: mdns.CanonicalName(q.Name), qtype: q.Qtype, qclass: q.Qclass, cd: m.CheckingDisabled}
	if opt := m.IsEdns0(); opt != nil {
		k.do = opt.Do()
	}
	return k
}

// get returns a copy with the remaining TTL.
func (c *cache) get(k cacheKey, now time.Time) *mdns.Msg {
	c.mu.Lock()
	e, ok := c.entries[k]
	if ok && now.After(e.expiry) {
		delete(c.entries, k)
		ok = false
	}
	c.mu.Unlock()
	if !ok {
		return nil
	}
	m := e.msg.Copy()
	age := uint32(now.Sub(e.stored) / time.Second)
	for _, section := range [][]mdns.RR{m.Answer, m.Ns, m.Extra} {
		for _, rr := range section {
			if h := rr.Header(); h.Rrtype != mdns.TypeOPT {
				h.Ttl -= min(h.Ttl, age)
			}
		}
	}
	return m
}

// put stores answers and authoritative negative answers. Other results may be better the next time.
func (c *cache) put(k cacheKey, m *mdns.Msg, now time.Time) {
	if m.Truncated || m.Rcode != mdns.RcodeSuccess && m.Rcode != mdns.RcodeNameError {
		return
	}
	keep := cacheLongest
	least := func(seconds uint32) { keep = min(keep, time.Duration(seconds)*time.Second) }
	for _, rr := range m.Answer {
		least(rr.Header().Ttl)
	}
	if len(m.Answer) == 0 { // RFC 2308
		soa := false
		for _, rr := range m.Ns {
			if s, ok := rr.(*mdns.SOA); ok {
				soa = true
				least(min(s.Minttl, s.Hdr.Ttl))
			}
		}
		if !soa {
			return
		}
	}
	if keep <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.entries) >= cacheEntries {
		for old := range c.entries { // any entry: Go's map order is random
			delete(c.entries, old)
			break
		}
	}
	c.entries[k] = cached{msg: m.Copy(), stored: now, expiry: now.Add(keep)}
}
