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
	// atOnce is how many handshakes have turns, for each CPU: enough to keep it busy while most of them wait for their clients.
	atOnce = 8
	// turn is how long one is at most.
	turn = 50 * time.Millisecond
	// longestWait is how long one is waited for. Nobody can keep others out for longer, however many connections he begins and leaves.
	longestWait = time.Second
)

// Config is what a Listener is made of.
type Config struct {
	TLS *tls.Config
	// Patience is how long a client may take until it begins, and once more until its handshake has ended.
	Patience time.Duration
	// Grace is how long instead when the listener closes. Who makes it is still accepted.
	Grace time.Duration
	// Panicked is told of panics in the configuration's functions.
	Panicked func(v any)
	// length and wait are a turn's, if they are not to be turn and longestWait.
	length, wait time.Duration
}

// Listen makes the connections of l TLS connections whose handshakes have ended. Accept is to be called until it fails with what is not temporary.
func Listen(l net.Listener, c Config) net.Listener {
	made := &listener{
		Listener: l, cfg: c, turns: make(chan struct{}, atOnce*runtime.GOMAXPROCS(0)),
		ended: make(chan outcome), through: make(chan struct{}), pending: map[net.Conn]time.Time{},
	}
	go made.run()
	return made
}

type listener struct {
	net.Listener
	cfg   Config
	turns chan struct{}
	ended chan outcome
	wg    sync.WaitGroup // of those in pending
	// through is closed when nothing is accepted any more; failed says why.
	through chan struct{}
	failed  error

	mu      sync.Mutex             // guards what follows
	pending map[net.Conn]time.Time // since when its client has the time that it has
	leaving bool
}

type outcome struct {
	conn net.Conn
	err  error
}

// run accepts until that fails for good, and says so when those that it has accepted are through.
func (l *listener) run() {
	for {
		c, err := l.Listener.Accept()
		switch {
		case err == nil:
			l.begin(c)
		case temporary(err):
			l.ended <- outcome{err: err}
		default:
			l.leave()
			l.wg.Wait()
			l.failed = err
			close(l.through)
			return
		}
	}
}

// temporary is what the HTTP server tries again after.
func temporary(err error) bool {
	t, ok := err.(interface{ Temporary() bool })
	return ok && t.Temporary()
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case o := <-l.ended:
		return o.conn, o.err
	case <-l.through:
		return nil, l.failed
	}
}

func (l *listener) begin(c net.Conn) {
	l.bound(c)
	l.wg.Go(func() { l.greet(c) })
}

// bound gives the client time.
func (l *listener) bound(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.pending[c] = now
	patience := l.cfg.Patience
	if l.leaving {
		patience = l.cfg.Grace
	}
	_ = c.SetDeadline(now.Add(patience)) // of a connection that is broken, whoever uses it finds that out
}

// leave leaves those who are not through little time.
func (l *listener) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaving = true
	for c, since := range l.pending {
		_ = c.SetDeadline(since.Add(l.cfg.Grace))
	}
}

// greet is the way of one connection. Until it has a turn there is nothing on its stack, and no TLS.
func (l *listener) greet(c net.Conn) {
	end := func() {}
	if speaks(c) {
		end = l.takeTurn()
		l.bound(c)
	}
	conn := tls.Server(c, l.cfg.TLS)
	l.shake(conn)
	l.mu.Lock()
	delete(l.pending, c)
	l.mu.Unlock()
	l.ended <- outcome{conn: conn}
	end()
}

// speaks waits until the client has sent something, or has gone, and tells whether it did. Of connections that can not be asked it is assumed.
func speaks(c net.Conn) bool {
	quiet, ok := c.(interface{ Await() error })
	return !ok || quiet.Await() == nil
}

// takeTurn waits for a turn, which ends by itself if it is not ended before. Who has waited for long goes on without.
func (l *listener) takeTurn() (end func()) {
	select {
	case l.turns <- struct{}{}:
	case <-time.After(cmp.Or(l.cfg.wait, longestWait)):
		return func() {}
	}
	once := sync.OnceFunc(func() { <-l.turns })
	late := time.AfterFunc(cmp.Or(l.cfg.length, turn), once)
	return func() {
		late.Stop()
		once()
	}
}

// shake brings the handshake to its end. The connection remembers its error for the HTTP server, who asks for the handshake as well.
func (l *listener) shake(conn *tls.Conn) {
	defer func() {
		if v := recover(); v != nil {
			l.cfg.Panicked(v)
		}
	}()
	_ = conn.HandshakeContext(context.Background())
}
