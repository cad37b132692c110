package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// dialPatience is how long one endpoint may take to accept a connection before the next one is
// tried.
const dialPatience = 3 * time.Second

// localhosts are the addresses that TCP node ports are served on by listeners. The rules leave
// loopback alone: see docs/adr/0040-node-ports-on-localhost.md.
var localhosts = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}

// localPorts serve node ports on localhost. set and retry are called by one goroutine.
type localPorts struct {
	listeners map[types.NamespacedName]map[netip.AddrPort]*localPort
	said      map[netip.AddrPort]bool // ports that another process has, each told once

	ctx    context.Context // ends connections
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// localPort is one listener; it is nil inside while another process has the port.
type localPort struct {
	listener net.Listener

	mu       sync.Mutex
	backends []backend     // guarded by mu
	affinity time.Duration // guarded by mu; 0 is none
	last     backend       // guarded by mu: where the last connection went
	lastUsed time.Time     // guarded by mu
}

func newLocalPorts() *localPorts {
	l := &localPorts{listeners: map[types.NamespacedName]map[netip.AddrPort]*localPort{}, said: map[netip.AddrPort]bool{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// localTarget is where connections to one port of localhost go.
type localTarget struct {
	backends []backend
	affinity time.Duration
}

// localTargets are the node ports of a plan by address. Each address prefers endpoints of its own
// family and takes the other's where the Service has none: a client that tries ::1 first reaches a
// Service of IPv4, too.
func localTargets(p servicePlan) map[netip.AddrPort]localTarget {
	targets := map[netip.AddrPort]localTarget{}
	for f, t := range p.frontends {
		if f.place != placeNodePorts || f.proto != unix.IPPROTO_TCP || t.refuse || t.drop {
			continue
		}
		for _, host := range localhosts {
			key := netip.AddrPortFrom(host, f.port)
			if _, taken := targets[key]; taken && f.addr.Is4() != host.Is4() {
				continue
			}
			targets[key] = localTarget{p.groups[t.group], time.Duration(t.affinity) * time.Second}
		}
	}
	return targets
}

// set brings the Service's listeners in line with its plan.
func (l *localPorts) set(name types.NamespacedName, p servicePlan) {
	targets := localTargets(p)
	have := l.listeners[name]
	for key, port := range have {
		if _, keep := targets[key]; !keep {
			port.close()
			delete(have, key)
		}
	}
	if len(targets) == 0 {
		delete(l.listeners, name)
		return
	}
	if have == nil {
		have = map[netip.AddrPort]*localPort{}
		l.listeners[name] = have
	}
	for key, target := range targets {
		port := have[key]
		if port == nil {
			port = &localPort{}
			have[key] = port
		}
		port.mu.Lock()
		port.backends, port.affinity = target.backends, target.affinity
		port.mu.Unlock()
		l.open(key, port)
	}
}

// retry opens what another process had when it was tried last.
func (l *localPorts) retry() {
	for _, ports := range l.listeners {
		for key, port := range ports {
			l.open(key, port)
		}
	}
}

func (l *localPorts) open(key netip.AddrPort, port *localPort) {
	if port.listener != nil {
		return
	}
	network := "tcp4"
	if key.Addr().Is6() {
		network = "tcp6"
	}
	listener, err := net.Listen(network, net.JoinHostPort(key.Addr().String(), strconv.Itoa(int(key.Port()))))
	switch {
	case errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, syscall.EAFNOSUPPORT):
		return // this machine has no such loopback address now
	case err != nil:
		if !l.said[key] {
			l.said[key] = true
			slog.Warn("a node port does not answer on localhost", "address", key, "error", err)
		}
		return
	}
	delete(l.said, key)
	port.listener = listener
	l.wg.Go(func() { l.serve(listener, port) })
}

// close ends the listener; connections go on, as those through the kernel do.
func (p *localPort) close() {
	if p.listener != nil {
		_ = p.listener.Close()
	}
}

// stop ends all listeners and connections, and waits for them.
func (l *localPorts) stop() {
	l.cancel()
	for _, ports := range l.listeners {
		for _, port := range ports {
			port.close()
		}
	}
	l.wg.Wait()
}

func (l *localPorts) serve(listener net.Listener, port *localPort) {
	for {
		client, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of file descriptors, for one
			select {
			case <-l.ctx.Done():
				return
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		l.wg.Go(func() { l.connect(client, port) })
	}
}

// connect joins the client with an endpoint until both have ended.
func (l *localPorts) connect(client net.Conn, port *localPort) {
	defer client.Close()
	endpoint, err := port.dial(l.ctx)
	if err != nil {
		slog.Debug("node port on localhost", "address", client.LocalAddr(), "error", err)
		if tcp, ok := client.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a reset, not an empty answer
		}
		return
	}
	defer endpoint.Close()
	stop := context.AfterFunc(l.ctx, func() { client.Close(); endpoint.Close() })
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { forward(endpoint, client) })
	both.Go(func() { forward(client, endpoint) })
	both.Wait()
}

// forward copies one direction, and hands its end on. A direction that breaks takes the other one
// with it.
func forward(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		to.Close()
		from.Close()
		return
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// dial tries the endpoints in a random order until one accepts; with session affinity the last one
// comes first.
func (p *localPort) dial(ctx context.Context) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialPatience}
	last := errors.New("the Service has no endpoints")
	for _, b := range p.order(time.Now()) {
		conn, err := dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(b.addr, b.port).String())
		if err == nil {
			p.mu.Lock()
			p.last, p.lastUsed = b, time.Now()
			p.mu.Unlock()
			return conn, nil
		}
		if last = fmt.Errorf("endpoint: %w", err); ctx.Err() != nil {
			break
		}
	}
	return nil, last
}

func (p *localPort) order(now time.Time) []backend {
	p.mu.Lock()
	defer p.mu.Unlock()
	order := slices.Clone(p.backends)
	rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	if p.affinity > 0 && now.Sub(p.lastUsed) < p.affinity {
		if i := slices.Index(order, p.last); i > 0 {
			order[0], order[i] = order[i], order[0]
		}
	}
	return order
}
