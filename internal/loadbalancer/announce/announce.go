package announce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/knarr-project/knarr/internal/client"
)

// Config configures the announcements of one node.
type Config struct {
	NodeName string
	// NodeIP is the node's own address. Peers expect its beats from there.
	NodeIP netip.Addr
	Client client.Interface
	// Events, if not nil, records on a Service which node holds its address.
	Events client.Recorder
	// Port is the UDP port of beats; default 8473.
	Port int
	Log  *slog.Logger
}

// ownLinks begins the names of the pod network's links.
const ownLinks = "knarr"

// reminders are the times after a takeover at which it is announced again, because packets get
// lost.
var reminders = []time.Duration{200 * time.Millisecond, time.Second, 5 * time.Second}

const (
	poolIndex    = "announce/pool"
	serviceIndex = "announce/service"
	linkInterval = 2 * time.Second
	// failurePause is the time for which a node does not stand for an address after its socket has
	// failed.
	failurePause = 10 * time.Second
)

// Agent announces addresses from one node. Make it with New.
type Agent struct {
	cfg      Config
	wake     chan struct{}
	services client.ViewOf[*corev1.Service]
	slices   client.ViewOf[*discoveryv1.EndpointSlice]
	nodes    client.ViewOf[*corev1.Node]

	// The loop's goroutine owns the rest.
	elector    *elector
	duties     map[netip.Addr]duty
	links      map[netip.Addr]net.Interface // link of each address for which this node stands
	responders map[responderKey]*responder
	remind     map[netip.Addr][]time.Time
	failed     map[netip.Addr]time.Time
	nodeAddrs  map[string]netip.Addr
	lastError  string
}

type responderKey struct {
	link string
	v4   bool
}

// New checks the configuration. Run does the work.
func New(cfg Config) (*Agent, error) {
	if cfg.NodeName == "" || !cfg.NodeIP.IsValid() {
		return nil, errors.New("announcements: the node's name or address is missing")
	}
	cfg.Port, cfg.Log = cmp.Or(cfg.Port, 8473), cmp.Or(cfg.Log, slog.Default())
	return &Agent{
		cfg: cfg, wake: make(chan struct{}, 1), elector: newElector(cfg.NodeName), responders: map[responderKey]*responder{},
		remind: map[netip.Addr][]time.Time{}, links: map[netip.Addr]net.Interface{},
		failed: map[netip.Addr]time.Time{},
	}, nil
}

// Run works until ctx ends. Then it tells its peers, so that they take over at once.
func (a *Agent) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var ended []<-chan struct{}
	defer func() {
		cancel()
		for _, done := range ended {
			<-done
		}
	}()
	var err error
	if a.services, err = client.Open[*corev1.Service](ctx, a.cfg.Client, client.Scope{}); err != nil {
		return fmt.Errorf("announcements: services: %w", err)
	}
	a.services.AddIndex(poolIndex, func(s *corev1.Service) []string {
		if len(pooled(s)) > 0 {
			return []string{""}
		}
		return nil
	})
	_, done := a.services.Subscribe(ctx, func(e client.TypedEvent[*corev1.Service]) {
		if len(pooled(e.Object)) > 0 || e.Old != nil && len(pooled(e.Old)) > 0 {
			a.kick()
		}
	})
	ended = append(ended, done)
	for len(a.services.ByIndex(poolIndex, "")) == 0 { // nothing else is opened until it is used
		select {
		case <-ctx.Done():
			return nil
		case <-a.wake:
		}
	}
	if a.slices, err = client.Open[*discoveryv1.EndpointSlice](ctx, a.cfg.Client, client.Scope{}); err != nil {
		return fmt.Errorf("announcements: endpointslices: %w", err)
	}
	if a.nodes, err = client.Open[*corev1.Node](ctx, a.cfg.Client, client.Scope{}); err != nil {
		return fmt.Errorf("announcements: nodes: %w", err)
	}
	a.slices.AddIndex(serviceIndex, func(s *discoveryv1.EndpointSlice) []string {
		return []string{s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]}
	})
	_, done = a.slices.Subscribe(ctx, func(e client.TypedEvent[*discoveryv1.EndpointSlice]) {
		s, ok := a.services.Get(e.Object.Namespace, e.Object.Labels[discoveryv1.LabelServiceName])
		if ok && len(pooled(s)) > 0 && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
			a.kick()
		}
	})
	ended = append(ended, done)
	_, done = a.nodes.Subscribe(ctx, func(client.TypedEvent[*corev1.Node]) { a.kick() })
	ended = append(ended, done)
	return a.loop(ctx)
}

func (a *Agent) kick() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// loop owns the election. The socket for beats and the ticker exist while there are duties.
func (a *Agent) loop(ctx context.Context) error {
	incoming := make(chan heard, 64)
	var socket *beats
	var received chan struct{}
	ticker := time.NewTicker(tick)
	ticker.Stop()
	stop := func() {
		ticker.Stop()
		if socket != nil {
			a.leave(socket)
			socket.close()
			for waiting := true; waiting; {
				select {
				case <-incoming:
				case <-received:
					waiting = false
				}
			}
			socket = nil
		}
	}
	defer stop()
	var lastBeat, lastLinks time.Time
	a.kick()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.wake:
			if a.replan(); len(a.duties) == 0 {
				stop()
				continue
			}
			if socket == nil {
				var err error
				if socket, err = openBeats(ctx, a.cfg.NodeIP, a.cfg.Port); err != nil {
					a.complain(err)
					time.AfterFunc(time.Second, a.kick)
					continue
				}
				received = make(chan struct{})
				go func(s *beats, done chan struct{}) { defer close(done); s.receive(ctx, incoming) }(socket, received)
				ticker.Reset(tick)
			}
			a.restand(socket)
			lastLinks = time.Now()
		case h := <-incoming:
			if known := a.nodeAddrs[h.name]; h.name == a.cfg.NodeName || known != h.from {
				continue
			}
			for _, w := range h.words {
				a.elector.hear(h.name, w, time.Now())
			}
			a.act()
		case now := <-ticker.C:
			if now.Sub(lastLinks) > linkInterval {
				a.restand(socket)
				lastLinks = now
			}
			changed := a.act()
			if changed || now.Sub(lastBeat) >= beatInterval-tick/2 {
				a.beat(socket, a.elector.words())
				lastBeat = now
			}
			a.repeat(now)
		}
	}
}

// replan reads the API's objects.
func (a *Agent) replan() {
	a.nodeAddrs = participants(a.nodes.List("", nil), a.cfg.NodeIP.Is4())
	a.duties = plan(a.services.ByIndex(poolIndex, ""), a.nodeAddrs, func(s *corev1.Service) map[string]bool {
		return nodesOf(a.slices.ByIndex(serviceIndex, s.Namespace+"/"+s.Name))
	}, a.cfg.NodeName)
}

// restand finds the link of each address, and tells peers which addresses are given up.
func (a *Agent) restand(socket *beats) {
	links, err := subnets()
	if err != nil {
		a.complain(fmt.Errorf("read links: %w", err))
		return
	}
	stands := map[netip.Addr]bool{}
	for addr, d := range a.duties {
		link, ok := links.of(addr)
		if !d.stands || !ok || time.Now().Before(a.failed[addr]) {
			continue
		}
		if old, had := a.links[addr]; had && (old.Index != link.Index || old.HardwareAddr.String() != link.HardwareAddr.String()) {
			continue // give it up on the old link first; the next look finds the new one
		}
		stands[addr] = true
		a.links[addr] = link
	}
	var gone []word
	for _, addr := range a.elector.stand(stands, time.Now()) {
		a.drop(addr)
		delete(a.links, addr)
		gone = append(gone, word{addr: addr, leaves: true})
	}
	a.beat(socket, gone)
}

// act carries the elector's decisions out. It reports whether peers must hear of them at once.
func (a *Agent) act() bool {
	taken, yielded, remind := a.elector.decide(time.Now())
	for _, addr := range taken {
		r, err := a.responder(addr)
		if err == nil {
			err = r.hold(addr)
		}
		if err != nil {
			a.complain(err)
			a.failed[addr] = time.Now().Add(failurePause)
			a.kick() // to let another node take it
			continue
		}
		for _, after := range reminders {
			a.remind[addr] = append(a.remind[addr], time.Now().Add(after))
		}
		a.cfg.Log.Info("this node answers for a Service's address", "address", addr, "link", a.links[addr].Name)
		if d, ok := a.duties[addr]; ok && a.cfg.Events != nil {
			a.cfg.Events.Eventf(d.service, nil, corev1.EventTypeNormal, "AddressAnnounced", "AnnounceAddress", "Node %s answers for %s.", a.cfg.NodeName, addr)
		}
	}
	for _, addr := range yielded {
		a.cfg.Log.Info("another node answers for a Service's address", "address", addr)
		a.drop(addr)
	}
	for _, addr := range remind {
		if r, err := a.responder(addr); err == nil {
			_ = r.announce(addr)
		}
	}
	return len(taken)+len(yielded) > 0
}

// repeat announces addresses whose reminders are due.
func (a *Agent) repeat(now time.Time) {
	for addr, due := range a.remind {
		if !a.elector.holds(addr) || len(due) == 0 {
			delete(a.remind, addr)
			continue
		}
		if now.Before(due[0]) {
			continue
		}
		a.remind[addr] = due[1:]
		if r, err := a.responder(addr); err == nil {
			_ = r.announce(addr)
		}
	}
}

func (a *Agent) responder(addr netip.Addr) (*responder, error) {
	link := a.links[addr]
	key := responderKey{link.Name, addr.Is4()}
	if r := a.responders[key]; r != nil {
		return r, nil
	}
	r, err := newResponder(link, addr.Is4())
	if err == nil {
		a.responders[key] = r
	}
	return r, err
}

// drop stops answering for the address, and closes sockets without addresses.
func (a *Agent) drop(addr netip.Addr) {
	key := responderKey{a.links[addr].Name, addr.Is4()}
	r := a.responders[key]
	if r == nil {
		return
	}
	r.drop(addr)
	if len(r.held) == 0 { // only this goroutine changes it
		r.close()
		delete(a.responders, key)
	}
}

// beat sends words to the peers of their addresses.
func (a *Agent) beat(socket *beats, words []word) {
	byPeer := map[netip.Addr][]word{}
	for _, w := range words {
		for _, p := range a.duties[w.addr].peers {
			byPeer[p.addr] = append(byPeer[p.addr], w)
		}
	}
	for to, theirs := range byPeer {
		socket.send(to, encode(a.cfg.NodeName, theirs))
	}
}

// leave gives all addresses up.
func (a *Agent) leave(socket *beats) {
	var gone []word
	for addr := range a.elector.own {
		gone = append(gone, word{addr: addr, leaves: true})
	}
	a.elector.stand(nil, time.Now())
	for key, r := range a.responders {
		r.close()
		delete(a.responders, key)
	}
	a.beat(socket, gone)
	clear(a.links)
	clear(a.remind)
}

// complain logs an error once.
func (a *Agent) complain(err error) {
	if err.Error() != a.lastError {
		a.lastError = err.Error()
		a.cfg.Log.Warn("a Service's address is not announced from this node", "error", err)
	}
}

// subnet is a network that a link is connected to.
type subnet struct {
	prefix netip.Prefix
	link   net.Interface
}

type subnetList []subnet

// subnets reads the networks of this machine's links that are up.
func subnets() (subnetList, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var out subnetList
	for _, link := range all {
		const up = net.FlagUp | net.FlagRunning
		if link.Flags&up != up || link.Flags&net.FlagLoopback != 0 || len(link.HardwareAddr) != 6 || strings.HasPrefix(link.Name, ownLinks) {
			continue
		}
		addrs, err := link.Addrs()
		if err != nil {
			continue // the link is gone
		}
		for _, addr := range addrs {
			if p, err := netip.ParsePrefix(addr.String()); err == nil {
				out = append(out, subnet{p.Masked(), link})
			}
		}
	}
	return out, nil
}

// of returns the link in the smallest network that contains the address.
func (l subnetList) of(a netip.Addr) (net.Interface, bool) {
	var found subnet
	for _, s := range l {
		if s.prefix.Contains(a) && !s.prefix.IsSingleIP() && (!found.prefix.IsValid() || s.prefix.Bits() > found.prefix.Bits()) {
			found = s
		}
	}
	return found.link, found.prefix.IsValid()
}
