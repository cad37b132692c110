package handshake

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"runtime"
	"sync"
	"time"
)

const (
	// turnsPerCPU is how many handshakes have turns at a time, for each CPU. They keep it busy
	// while most of them wait for their clients.
	turnsPerCPU = 8
	// maxTurn is how long a turn can last.
	maxTurn = 50 * time.Millisecond
	// maxWait is how long a connection waits for a turn. No client can delay others for longer,
	// however many connections it opens and abandons.
	maxWait = time.Second
)

// Config is what a Listener is made of.
type Config struct {
	TLS *tls.Config
	// Timeout is how long a client may take to send its first bytes, and how long the handshake may
	// take after that.
	Timeout time.Duration
	// Grace replaces Timeout when the listener closes. A client that ends its handshake within it
	// is still accepted.
	Grace time.Duration
	// OnPanic is called with panics of the TLS configuration's functions.
	OnPanic func(v any)
	// maxTurn and maxWait replace the constants; 0 does not.
	maxTurn, maxWait time.Duration
}

// Listen returns a listener of TLS connections, made of the connections of l, whose handshakes have
// ended. The caller must call Accept until it fails with an error that is not temporary.
func Listen(l net.Listener, c Config) net.Listener {
	made := &listener{
		Listener: l, cfg: c, turns: make(chan struct{}, turnsPerCPU*runtime.GOMAXPROCS(0)),
		ended: make(chan outcome), closed: make(chan struct{}), pending: map[net.Conn]time.Time{},
	}
	go made.run()
	return made
}

type listener struct {
	net.Listener
	cfg   Config
	turns chan struct{}
	ended chan outcome
	wg    sync.WaitGroup // of the pending connections
	// closed is closed when no connection is left to accept; failed says why.
	closed chan struct{}
	failed error

	mu      sync.Mutex             // guards what follows
	pending map[net.Conn]time.Time // when the connection's current deadline was set
	closing bool
}

type outcome struct {
	conn net.Conn
	err  error
}

// run accepts connections until that fails for good, and then waits for the pending ones.
func (l *listener) run() {
	for {
		c, err := l.Listener.Accept()
		switch {
		case err == nil:
			l.begin(c)
		case temporary(err):
			l.ended <- outcome{err: err}
		default:
			l.shortenDeadlines()
			l.wg.Wait()
			l.failed = err
			close(l.closed)
			return
		}
	}
}

// temporary says whether the HTTP server calls Accept again after the error.
func temporary(err error) bool {
	t, ok := err.(interface{ Temporary() bool })
	return ok && t.Temporary()
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case o := <-l.ended:
		return o.conn, o.err
	case <-l.closed:
		return nil, l.failed
	}
}

func (l *listener) begin(c net.Conn) {
	l.setDeadline(c)
	l.wg.Go(func() { l.serve(c) })
}

// setDeadline gives the client Timeout, or Grace if the listener is closing. An error means that
// the connection is broken, which the next use of it reports.
func (l *listener) setDeadline(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.pending[c] = now
	timeout := l.cfg.Timeout
	if l.closing {
		timeout = l.cfg.Grace
	}
	_ = c.SetDeadline(now.Add(timeout))
}

// shortenDeadlines gives the pending connections no more than Grace.
func (l *listener) shortenDeadlines() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closing = true
	for c, since := range l.pending {
		_ = c.SetDeadline(since.Add(l.cfg.Grace))
	}
}

// serve brings one connection to the end of its handshake. Until the connection has a turn, there
// is nothing on the goroutine's stack and no TLS state.
func (l *listener) serve(c net.Conn) {
	end := func() {}
	if awaitData(c) {
		end = l.takeTurn()
		l.setDeadline(c)
	}
	conn := tls.Server(c, l.cfg.TLS)
	l.handshake(conn)
	l.mu.Lock()
	delete(l.pending, c)
	l.mu.Unlock()
	l.ended <- outcome{conn: conn}
	end()
}

// awaitData waits until the client has sent something or has hung up, and says whether it has sent
// something. It returns true at once for a connection that cannot wait.
func awaitData(c net.Conn) bool {
	quiet, ok := c.(interface{ AwaitData() error })
	return !ok || quiet.AwaitData() == nil
}

// takeTurn waits for a turn, but no longer than maxWait. The turn ends with end or after maxTurn.
func (l *listener) takeTurn() (end func()) {
	select {
	case l.turns <- struct{}{}:
	case <-time.After(cmp.Or(l.cfg.maxWait, maxWait)):
		return func() {}
	}
	once := sync.OnceFunc(func() { <-l.turns })
	timer := time.AfterFunc(cmp.Or(l.cfg.maxTurn, maxTurn), once)
	return func() {
		timer.Stop()
		once()
	}
}

// handshake runs the TLS handshake. The connection keeps the error for the HTTP server, which asks
// for the handshake as well.
func (l *listener) handshake(conn *tls.Conn) {
	defer func() {
		if v := recover(); v != nil {
			l.cfg.OnPanic(v)
		}
	}()
	_ = conn.HandshakeContext(context.Background())
}
