package servers

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Forwarder forwards TCP connections to the current server of a Pool. TLS and the client's identity
// pass through. When the server is left, the forwarder closes its connections, and clients connect
// again.
type Forwarder struct {
	pool   *Pool
	probes *Transport
	log    *slog.Logger
	dialer net.Dialer

	mu    sync.Mutex
	conns map[net.Conn]string // connections to servers, with the address
}

// NewForwarder makes a Forwarder. It probes servers through the Transport of the same Pool.
func NewForwarder(pool *Pool, probes *Transport, log *slog.Logger) *Forwarder {
	return &Forwarder{pool: pool, probes: probes, log: log, conns: map[net.Conn]string{}}
}

// Serve accepts connections until ctx ends. It closes the listener and all connections.
func (f *Forwarder) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() {
		<-ctx.Done()
		_ = l.Close()
		f.closeIf(func(string) bool { return true })
	})
	all.Go(func() { f.watch(ctx) })
	for {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ECONNABORTED) {
				time.Sleep(50 * time.Millisecond)
				continue
			}
			return err
		}
		all.Go(func() { f.forward(ctx, c) })
	}
}

// watch probes the server of open connections.
func (f *Forwarder) watch(ctx context.Context) {
	tick := time.NewTicker(f.probes.timing.patience)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, address := range f.used() {
			f.check(ctx, address)
		}
	}
}

// check waits for the result of a probe, which may be some seconds old, and closes the connections
// to a server that was left.
func (f *Forwarder) check(ctx context.Context, address string) {
	p := f.probes.suspect(address)
	select {
	case <-p.done:
		if p.left {
			f.closeIf(func(to string) bool { return to == address })
		}
	case <-ctx.Done():
	}
}

// used returns the servers with open connections.
func (f *Forwarder) used() (addresses []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := map[string]bool{}
	for _, address := range f.conns {
		if !seen[address] {
			seen[address] = true
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// closeIf closes the connections to some servers.
func (f *Forwarder) closeIf(to func(address string) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c, address := range f.conns {
		if to(address) {
			_ = c.Close()
		}
	}
}

// forward connects a client to the first server that can be reached.
func (f *Forwarder) forward(ctx context.Context, client net.Conn) {
	defer client.Close()
	order := f.pool.Order()
	if len(order) > 1 {
		f.check(ctx, order[0])
		order = f.pool.Order()
	}
	for _, address := range order {
		limit := dialTimeout
		if len(order) > 1 {
			limit = f.probes.limit()
		}
		limited, cancel := context.WithTimeout(ctx, limit)
		server, err := f.dialer.DialContext(limited, "tcp", address)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			f.pool.Failed(address, err)
			continue
		}
		f.probes.reached()
		f.pool.Succeeded(address)
		f.mu.Lock()
		f.conns[server] = address
		f.mu.Unlock()
		if ctx.Err() != nil {
			_ = server.Close()
		}
		join(client, server)
		f.mu.Lock()
		delete(f.conns, server)
		f.mu.Unlock()
		return
	}
	f.probes.notReached()
	f.log.Warn("no server of the cluster can be reached", "known", len(order))
}

// join copies between two connections until both directions have ended or one has failed.
func join(a, b net.Conn) {
	var both sync.WaitGroup
	one := func(to, from net.Conn) {
		_, err := io.Copy(to, from)
		if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
			if half.CloseWrite() == nil {
				return
			}
		}
		_ = a.Close()
		_ = b.Close()
	}
	both.Go(func() { one(a, b) })
	both.Go(func() { one(b, a) })
	both.Wait()
	_ = a.Close()
	_ = b.Close()
}
