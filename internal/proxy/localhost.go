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

// dialTimeout is the time limit for connecting to one endpoint before the next one is tried.
const dialTimeout = 3 * time.Second

// localhosts are the addresses on which listeners serve TCP node ports. The nftables rules exclude
// loopback: see docs/adr/0040-node-ports-on-localhost.md.
var localhosts = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}

// localPorts serves node ports on localhost. One goroutine calls set and retry.
type localPorts struct {
	listeners map[types.NamespacedName]map[netip.AddrPort]*localPort
	warned    map[netip.AddrPort]bool // ports of other processes that have been logged

	ctx    context.Context // ends the connections
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// localPort is one listener. Its listener is nil while another process has the port.
type localPort struct {
	listener net.Listener

	mu       sync.Mutex
	backends []backend     // guarded by mu
	affinity time.Duration // guarded by mu; 0 means none
	last     backend       // guarded by mu: backend of the last connection
	lastUsed time.Time     // guarded by mu
}

func newLocalPorts() *localPorts {
	l := &localPorts{listeners: map[types.NamespacedName]map[netip.AddrPort]*localPort{}, warned: map[netip.AddrPort]bool{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// localTarget is the destination of connections to one port on localhost.
type localTarget struct {
	backends []backend
	affinity time.Duration
}

// localTargets maps local addresses to the targets of a plan's node ports. Each address prefers
// endpoints of its own family and falls back to the other family. So a client that tries ::1 first
// also reaches an IPv4 Service.
func localTargets(p servicePlan) map[netip.AddrPort]localTarget {
	targets := map[netip.AddrPort]localTarget{}
	for f, t := range p.frontends {
		if f.lookupMap != nodePortsMap || f.proto != unix.IPPROTO_TCP || t.refuse || t.drop {
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
	for key, t := range p.localhost {
		targets[key] = localTarget{p.groups[t.group], time.Duration(t.affinity) * time.Second}
	}
	return targets
}

// set opens and closes the Service's listeners according to its plan.
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

// retry opens the ports that another process had at the last attempt.
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
		return // this machine currently has no such loopback address
	case err != nil:
		if !l.warned[key] {
			l.warned[key] = true
			slog.Warn("a node port does not answer on localhost", "address", key, "error", err)
		}
		return
	}
	delete(l.warned, key)
	port.listener = listener
	l.wg.Go(func() { l.serve(listener, port) })
}

// close closes the listener. Connections continue, like those through the kernel.
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
		if err != nil { // for example out of file descriptors
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

// connect connects the client with an endpoint until both sides have ended.
func (l *localPorts) connect(client net.Conn, port *localPort) {
	defer client.Close()
	endpoint, err := port.dial(l.ctx)
	if err != nil {
		slog.Debug("node port on localhost", "address", client.LocalAddr(), "error", err)
		if tcp, ok := client.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // send a reset, not an empty answer
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

// forward copies one direction and passes on its end. If one direction fails, it closes the other
// one.
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

// dial tries the endpoints in random order until one accepts. With session affinity the last used
// endpoint comes first.
func (p *localPort) dial(ctx context.Context) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialTimeout}
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
