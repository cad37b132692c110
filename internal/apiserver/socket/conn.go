package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"
)

// Listen makes the connections of a TCP listener Conns. Other connections stay as they are.
func Listen(l net.Listener) net.Listener { return listener{l} }

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return c, nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("accept from %s: %w", tcp.RemoteAddr(), err), tcp.Close())
	}
	return &Conn{Conn: tcp, raw: raw}, nil
}

// Conn is a TCP connection whose writes can be held. It is safe for concurrent use.
type Conn struct {
	net.Conn
	raw syscall.RawConn

	mu   sync.Mutex // guards what follows, and keeps writes in order
	held bool
	// out is what was written since Hold, or what did not fit into the socket buffer at Push.
	out []byte
}

type connKey struct{}

// Context is for http.Server.ConnContext: From finds the connection in the contexts of its
// requests.
func Context(ctx context.Context, c net.Conn) context.Context {
	if under, ok := c.(interface{ NetConn() net.Conn }); ok { // a TLS connection
		c = under.NetConn()
	}
	if conn, ok := c.(*Conn); ok {
		return context.WithValue(ctx, connKey{}, conn)
	}
	return ctx
}

// From returns the connection of a request; nil if that is not a Conn.
func From(ctx context.Context) *Conn {
	c, _ := ctx.Value(connKey{}).(*Conn)
	return c
}

// AwaitData waits until the other end has sent something or has hung up. It reads nothing.
func (c *Conn) AwaitData() error {
	return c.raw.Read(func(fd uintptr) (done bool) {
		var first [1]byte
		_, _, err := syscall.Recvfrom(int(fd), first[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return err != syscall.EAGAIN
	})
}

// Write keeps b while writes are held. Otherwise it writes b after what is left to drain.
func (c *Conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held {
		c.out = append(c.out, b...)
		return len(b), nil
	}
	if err := c.drain(); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// Hold keeps everything that is written from now on in the buffer, until Push. Nothing may be left
// to drain.
func (c *Conn) Hold(buffer []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held, c.out = true, buffer[:0]
}

// Push writes what was held, as far as the socket buffer has room. It never blocks. all says
// whether that was everything; if not, Drain writes the rest. Push hands the buffer back.
func (c *Conn) Push() (buffer []byte, all bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	buffer = c.out
	c.held, c.out = false, nil
	written := 0
	var failed error
	err = c.raw.Write(func(fd uintptr) bool {
		written, failed = writeSome(int(fd), buffer)
		return true
	})
	if err = errors.Join(err, failed); err != nil {
		return buffer, false, err
	}
	if written < len(buffer) {
		c.out = slices.Clone(buffer[written:])
	}
	return buffer, written == len(buffer), nil
}

// writeSome writes until the socket buffer is full.
func writeSome(fd int, b []byte) (written int, err error) {
	for written < len(b) {
		n, err := syscall.Write(fd, b[written:])
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			return written, nil
		case err != nil:
			return written, fmt.Errorf("write: %w", err)
		}
		written += n
	}
	return written, nil
}

// Drain writes what Push has left, and waits for room in the socket buffer.
func (c *Conn) Drain() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.drain()
}

// drain needs mu.
func (c *Conn) drain() error {
	if len(c.out) == 0 {
		return nil
	}
	_, err := c.Conn.Write(c.out)
	c.out = nil
	return err
}
