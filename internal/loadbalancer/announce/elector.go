package announce

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"time"
)

const (
	// beatInterval is the time between two beats.
	beatInterval = 150 * time.Millisecond
	// silence is the time without a beat after which a peer counts as dead. With the interval of
	// decisions, an address is free for at most 0.7 s.
	silence = 600 * time.Millisecond
	tick    = beatInterval / 2
)

// claim is a peer's last word about an address.
type claim struct {
	heard time.Time
	holds bool
}

// standing is this node's part in the election for an address.
type standing struct {
	// settled is the time from which the node may take the address: until then it listens for a
	// holder.
	settled time.Time
	holds   bool
}

// elector decides which addresses this node holds. It has neither a clock nor I/O, and is not safe
// for concurrent use.
type elector struct {
	me     string
	own    map[netip.Addr]*standing
	claims map[netip.Addr]map[string]claim
}

func newElector(me string) *elector {
	return &elector{me: me, own: map[netip.Addr]*standing{}, claims: map[netip.Addr]map[string]claim{}}
}

// stand sets the addresses for which this node stands. It returns those that it has given up.
func (e *elector) stand(addrs map[netip.Addr]bool, now time.Time) (left []netip.Addr) {
	for a := range addrs {
		if e.own[a] == nil {
			e.own[a] = &standing{settled: now.Add(silence)}
		}
	}
	for a := range e.own {
		if !addrs[a] {
			left = append(left, a)
			delete(e.own, a)
			delete(e.claims, a)
		}
	}
	return left
}

// hear takes a peer's word about one address.
func (e *elector) hear(peer string, w word, now time.Time) {
	if e.own[w.addr] == nil {
		return
	}
	if w.leaves {
		delete(e.claims[w.addr], peer)
		return
	}
	if e.claims[w.addr] == nil {
		e.claims[w.addr] = map[string]claim{}
	}
	e.claims[w.addr][peer] = claim{heard: now, holds: w.holds}
}

// decide returns the addresses that this node has taken and yielded, and those of which it must
// remind the network, because a peer that yields still claims them.
func (e *elector) decide(now time.Time) (taken, yielded, remind []netip.Addr) {
	for a, own := range e.own {
		mine := rank(a, e.me)
		best, betterHolder, worseHolder := true, false, false
		for peer, c := range e.claims[a] {
			if now.Sub(c.heard) > silence {
				delete(e.claims[a], peer)
				continue
			}
			theirs := rank(a, peer)
			best = best && mine < theirs
			betterHolder = betterHolder || c.holds && theirs < mine
			worseHolder = worseHolder || c.holds && theirs > mine
		}
		switch {
		case own.holds && betterHolder:
			own.holds = false
			yielded = append(yielded, a)
		case own.holds && worseHolder:
			remind = append(remind, a)
		case !own.holds && best && !worseHolder && !now.Before(own.settled):
			own.holds = true
			taken = append(taken, a)
		}
	}
	return taken, yielded, remind
}

// words are this node's words about the addresses for which it stands.
func (e *elector) words() []word {
	out := make([]word, 0, len(e.own))
	for a, own := range e.own {
		out = append(out, word{addr: a, holds: own.holds})
	}
	return out
}

func (e *elector) holds(a netip.Addr) bool { return e.own[a] != nil && e.own[a].holds }

// rank orders nodes by address, so that addresses spread over nodes. The lowest rank is first.
func rank(a netip.Addr, node string) uint64 {
	sum := sha256.Sum256(append(a.AsSlice(), node...))
	return binary.BigEndian.Uint64(sum[:])
}
