package dns

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	mdns "github.com/miekg/dns"
	"golang.org/x/sync/singleflight"
)

// Time limits of forwarding. glibc's resolver gives up after 5 s.
const (
	upstreamTimeout = 2 * time.Second
	forwardTimeout  = 4500 * time.Millisecond
	reloadInterval  = time.Second
	maxForwards     = 1000
)

var (
	errNoUpstream = errors.New("no upstream resolver")
	errBusy       = errors.New("too many queries are being forwarded")
)

// forwarder sends queries to the host's resolvers, as currently listed in resolv.conf. It checks
// the file when a query arrives, at most once a second, so an idle node does no work.
type forwarder struct {
	path  string
	cache *cache
	slots chan struct{}
	group singleflight.Group
	// probing counts running loop probes.
	probing sync.WaitGroup

	mu        sync.Mutex // guards what follows
	checked   time.Time
	modified  time.Time
	upstreams []string // host:port; those that failed last are at the end
	own       map[netip.Addr]bool
	probes    map[string]string // name of a loop probe → upstream it was sent to
	loops     map[string]bool   // upstreams that forward to this server
}

func newForwarder(path string) *forwarder {
	return &forwarder{
		path: path, cache: newCache(), slots: make(chan struct{}, maxForwards),
		own: map[netip.Addr]bool{}, probes: map[string]string{}, loops: map[string]bool{},
	}
}

// wait waits for running probes, at most a few seconds.
func (f *forwarder) wait() { f.probing.Wait() }

// addOwn registers one of our own addresses. An upstream with this address would be a loop.
func (f *forwarder) addOwn(addr netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.own[addr] = true
	f.checked, f.modified = time.Time{}, time.Time{}
}

// servers returns the upstreams in the order to try.
func (f *forwarder) servers(now time.Time) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.checked) >= reloadInterval {
		f.checked = now
		f.reloadLocked()
	}
	return slices.DeleteFunc(slices.Clone(f.upstreams), func(s string) bool { return f.loops[s] })
}

func (f *forwarder) reloadLocked() {
	info, err := os.Stat(f.path)
	if err != nil {
		f.upstreams, f.modified = nil, time.Time{}
		return
	}
	if info.ModTime().Equal(f.modified) {
		return
	}
	f.modified = info.ModTime()
	conf, err := mdns.ClientConfigFromFile(f.path)
	if err != nil {
		slog.Warn("cannot read the host's resolver configuration; names outside of the cluster do not resolve", "file", f.path, "error", err)
		f.upstreams = nil
		return
	}
	f.upstreams, f.loops = nil, map[string]bool{}
	for _, s := range conf.Servers {
		ip, err := netip.ParseAddr(s)
		if err != nil {
			continue
		}
		if f.own[ip.WithZone("")] {
			slog.Warn("the host's resolver is the cluster's own DNS; leaving it out", "server", s, "file", f.path, "remedy", "name another resolver in "+f.path)
			continue
		}
		up := net.JoinHostPort(s, conf.Port)
		f.upstreams = append(f.upstreams, up)
		f.probing.Go(func() { f.probe(up) })
	}
	slog.Info("names outside of the cluster are forwarded", "resolvers", f.upstreams)
}

// probe sends an upstream a query with a unique name. If the query arrives here (see isProbe), the
// upstream forwards to this server.
func (f *forwarder) probe(upstream string) {
	name := strings.ToLower(rand.Text()) + ".knarr-loop."
	f.mu.Lock()
	f.probes[name] = upstream
	f.mu.Unlock()
	m := new(mdns.Msg).SetQuestion(name, mdns.TypeHINFO)
	c := mdns.Client{Timeout: upstreamTimeout}
	_, _, _ = c.Exchange(m, upstream)
	f.mu.Lock()
	delete(f.probes, name)
	f.mu.Unlock()
}

// isProbe recognizes our own probes and disables their upstream until resolv.conf changes.
func (f *forwarder) isProbe(q mdns.Question) bool {
	if q.Qtype != mdns.TypeHINFO {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	up, ok := f.probes[mdns.CanonicalName(q.Name)]
	if ok && !f.loops[up] {
		f.loops[up] = true
		slog.Warn("an upstream resolver forwards to the cluster's DNS: a loop; leaving it out", "resolver", up, "remedy", "name another resolver in "+f.path)
	}
	return ok
}

// failed moves an upstream to the end of the list.
func (f *forwarder) failed(up string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := slices.Index(f.upstreams, up); i >= 0 && i < len(f.upstreams)-1 {
		f.upstreams = append(slices.Delete(slices.Clone(f.upstreams), i, i+1), up)
	}
}

// forward answers from the cache or queries an upstream. Concurrent equal queries are sent once.
func (f *forwarder) forward(ctx context.Context, req *mdns.Msg, tcp bool) (*mdns.Msg, bool, error) {
	key := keyOf(req)
	if m := f.cache.get(key, time.Now()); m != nil {
		return m, true, nil
	}
	answer, err, _ := f.group.Do(fmt.Sprint(key, tcp), func() (any, error) {
		select {
		case f.slots <- struct{}{}:
			defer func() { <-f.slots }()
		default:
			return nil, errBusy
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), forwardTimeout)
		defer cancel()
		return f.ask(ctx, req, tcp)
	})
	if err != nil {
		return nil, false, err
	}
	m := answer.(*mdns.Msg)
	f.cache.put(key, m, time.Now())
	return m.Copy(), false, nil
}

// ask tries the upstreams in order until one answers.
func (f *forwarder) ask(ctx context.Context, req *mdns.Msg, tcp bool) (*mdns.Msg, error) {
	ups := f.servers(time.Now())
	if len(ups) == 0 {
		return nil, errNoUpstream
	}
	var errs []error
	for _, up := range ups {
		m, err := exchange(ctx, req, up, tcp)
		if err == nil && m.Truncated && !tcp {
			m, err = exchange(ctx, req, up, true)
		}
		if err == nil {
			if m.Rcode != mdns.RcodeServerFailure && m.Rcode != mdns.RcodeRefused || up == ups[len(ups)-1] {
				return m, nil
			}
			err = fmt.Errorf("answers %s", mdns.RcodeToString[m.Rcode])
		}
		errs = append(errs, fmt.Errorf("resolver %s: %w", up, err))
		f.failed(up)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

func exchange(ctx context.Context, req *mdns.Msg, up string, tcp bool) (*mdns.Msg, error) {
	out := req.Copy()
	out.Id = mdns.Id()
	out.RecursionDesired = true
	opt := out.IsEdns0()
	if opt == nil {
		out.SetEdns0(udpSize, false)
	} else {
		opt.SetUDPSize(udpSize)
		opt.Option = nil
	}
	c := mdns.Client{Timeout: upstreamTimeout, UDPSize: udpSize}
	if tcp {
		c.Net = "tcp"
	}
	m, _, err := c.ExchangeContext(ctx, out, up)
	if err != nil {
		return nil, err
	}
	if len(m.Question) != 1 || !strings.EqualFold(m.Question[0].Name, req.Question[0].Name) || m.Question[0].Qtype != req.Question[0].Qtype {
		return nil, errors.New("answers another question than " + strconv.Quote(req.Question[0].Name))
	}
	return m, nil
}
