package servers

import (
	"hash/fnv"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// recovery is how long a failed server is tried last; it doubles with each failure up to
	// longestRecovery.
	recovery, longestRecovery = 5 * time.Second, 2 * time.Minute
	// settle is how long a server of a better rank must be ready before its users return; it
	// doubles with each failure up to longestSettle.
	settle, longestSettle = 2 * time.Minute, 30 * time.Minute
	// forgiven is how long a server must work until its failures are forgotten.
	forgiven = 10 * time.Minute
)

// Options are the parameters of a Pool.
type Options struct {
	// User names the user of the servers, for example a node's name. Users with different names
	// prefer different servers.
	User string
	// Local is the address of the server on this machine, which is preferred to all others. May be
	// empty.
	Local string
	// Given are addresses that are always known, in the order in which they are tried first.
	Given []string
	// Path is the file of the list. If it is empty, the list is not stored.
	Path string
	Log  *slog.Logger
	// Now is the clock; default time.Now.
	Now func() time.Time
}

// Pool knows the servers and chooses the current one. Safe for concurrent use.
type Pool struct {
	user  string
	local string
	given []string
	path  string
	log   *slog.Logger
	now   func() time.Time

	learning sync.Mutex // held while the list changes and is stored

	mu      sync.Mutex
	list    List
	states  map[string]*state
	current string
	// transports are those of the pool. When one of them leaves a server that does not serve, all
	// do: a transport with watches only would not notice.
	transports []*Transport
}

// state is the recent history of a server.
type state struct {
	failures int           // outages, shortly after each other
	failed   time.Time     // the last failure
	down     bool          // the last attempt failed
	wait     time.Duration // how long it must be ready

	// ready is since when probes pass while the server is not current; zero if they do not.
	ready time.Time
}

// NewPool makes a Pool with the given addresses and the stored list. A list that cannot be read is
// logged and replaced later.
func NewPool(o Options) *Pool {
	p := &Pool{user: o.User, local: o.Local, given: slices.Clone(o.Given), path: o.Path, log: o.Log, now: o.Now, states: map[string]*state{}}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	if p.now == nil {
		p.now = time.Now
	}
	if p.path != "" {
		var err error
		if p.list, err = Load(p.path); err != nil {
			p.log.Warn("the stored list of servers cannot be used; the endpoints of Service default/kubernetes will replace it", "error", err)
		}
	}
	return p
}

// Learn takes the addresses of living servers from the endpoints, and stores the list if it has
// changed. No addresses are no news.
func (p *Pool) Learn(living []string) error {
	p.learning.Lock()
	defer p.learning.Unlock()
	p.mu.Lock()
	next := p.list.learn(living, p.now())
	changed := !next.same(p.list)
	p.list = next
	for address := range p.states {
		if !p.known(address) {
			delete(p.states, address)
		}
	}
	p.mu.Unlock()
	if !changed || p.path == "" {
		return nil
	}
	p.log.Info("the cluster's servers", "living", strings.Join(next.Living(), " "), "known", len(next.Servers))
	return next.Store(p.path)
}

func (p *Pool) known(address string) bool {
	return address == p.current || address == p.local || p.list.has(address) || slices.Contains(p.given, address)
}

// ranked returns all known servers, the preferred one first: the local server, living servers by
// rank, given addresses, past servers.
func (p *Pool) ranked() []string {
	living := p.list.Living()
	slices.SortFunc(living, func(a, b string) int {
		if x, y := rank(p.user, a), rank(p.user, b); x != y {
			if x > y {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	var all []string
	add := func(address string) {
		if !slices.Contains(all, address) {
			all = append(all, address)
		}
	}
	if p.local != "" {
		add(p.local)
	}
	for _, address := range slices.Concat(living, p.given) {
		add(address)
	}
	for _, e := range p.list.Servers {
		add(e.Address)
	}
	return all
}

// rank is the weight of a server for a user. Each user has its own order of the servers, and a lost
// server does not change the order of the others.
func rank(user, address string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(user))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(address))
	x := h.Sum64()
	// The last bytes change only the low bits of FNV; mix them into the high ones.
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// Order returns the servers in the order in which a request tries them: the current one, the others
// by rank, and those that have failed lately.
func (p *Pool) Order() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.order()
}

func (p *Pool) order() []string {
	now := p.now()
	late := func(address string) time.Duration {
		s := p.states[address]
		if s == nil || !s.down || address == p.current {
			return 0
		}
		return max(0, s.failed.Add(doubled(recovery, s.failures, longestRecovery)).Sub(now))
	}
	all := p.ranked()
	slices.SortStableFunc(all, func(a, b string) int {
		switch {
		case a == p.current:
			return -1
		case b == p.current:
			return 1
		}
		return int(late(a) - late(b))
	})
	return all
}

func doubled(base time.Duration, times int, limit time.Duration) time.Duration {
	return min(base<<min(max(times-1, 0), 16), limit)
}

// Current returns the current server, or "" before the first success and after a failure.
func (p *Pool) Current() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current
}

// Succeeded records that a connection to the server works. It becomes the current one if there is
// none.
func (p *Pool) Succeeded(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.states[address]; s != nil {
		s.down = false
		if p.now().Sub(s.failed) > forgiven {
			s.failures = 0
		}
	}
	if p.current == "" {
		p.take(address, "")
	}
}

// Failed records that the server cannot be used, and why. If it was the current one, the next
// success decides.
func (p *Pool) Failed(address string, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail(address)
	if p.current == address {
		p.current = ""
		if len(p.ranked()) > 1 {
			p.log.Warn("leaving a server of the cluster", "server", address, "error", why)
		}
	}
}

// Move makes another server the current one, because from does not serve. It does nothing if from
// is not the current one any more.
func (p *Pool) Move(from, to string, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail(from)
	if p.current == from || p.current == "" {
		p.take(to, why.Error())
	}
}

func (p *Pool) fail(address string) {
	s := p.states[address]
	if s == nil {
		if !p.known(address) {
			return
		}
		s = &state{}
		p.states[address] = s
	}
	now := p.now()
	if now.Sub(s.failed) > forgiven {
		s.failures = 0
	}
	if !s.down { // an outage is one failure, however often it is noticed
		s.failures++
	}
	s.down, s.failed, s.ready = true, now, time.Time{}
}

func (p *Pool) take(address, why string) {
	if len(p.ranked()) > 1 {
		p.log.Info("using a server of the cluster", "server", address, "before", p.current, "reason", why)
	}
	p.current = address
}

// Better returns the server to return to: the local one or a living one of a better rank than the
// current one. It returns "" if there is none.
func (p *Pool) Better() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == "" {
		return ""
	}
	living := p.list.Living()
	for _, address := range p.ranked() {
		if address == p.current || address != p.local && !slices.Contains(living, address) {
			return ""
		}
		if s := p.states[address]; s == nil || !s.down || p.now().Sub(s.failed) >= doubled(recovery, s.failures, longestRecovery) {
			return address
		}
	}
	return ""
}

// Probed records a probe of a server of a better rank. The server becomes the current one once it
// has been ready long enough; jitter in [0,1) makes users return at different times.
func (p *Pool) Probed(address string, why error, jitter float64) (returned bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if why != nil {
		p.fail(address)
		return false
	}
	s := p.states[address]
	if s == nil {
		s = &state{}
		p.states[address] = s
	}
	now := p.now()
	if s.down = false; s.ready.IsZero() {
		wait := doubled(settle, s.failures, longestSettle)
		s.ready, s.wait = now, wait+time.Duration(jitter*float64(wait))
	}
	if p.current == "" || p.current == address || now.Sub(s.ready) < s.wait {
		return false
	}
	p.take(address, "it is preferred, and has been ready for "+now.Sub(s.ready).Round(time.Second).String())
	s.ready = time.Time{}
	return true
}

// Living returns the living servers by rank.
func (p *Pool) Living() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	living := p.list.Living()
	return slices.DeleteFunc(p.ranked(), func(address string) bool { return !slices.Contains(living, address) })
}

// abandon lets all transports leave a server.
func (p *Pool) abandon(address string, why error) {
	p.mu.Lock()
	all := slices.Clone(p.transports)
	p.mu.Unlock()
	for _, t := range all {
		t.abandon(address, why)
	}
}
