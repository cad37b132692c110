package transport

import (
	"errors"
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/knarr-project/knarr/internal/apiserver/socket"
	"github.com/knarr-project/knarr/internal/apiserver/taskpool"
)

// lastWrite is how long a client may take to receive the end of its response.
const lastWrite = time.Second

// connection is a Response over HTTP/1.1: it owns the connection.
type connection struct {
	conn     net.Conn // what net/http had: with TLS or without
	socket   *socket.Conn
	pool     *taskpool.Pool
	hangups  *socket.HangupWatcher
	draining atomic.Bool // a goroutine waits until the socket has taken the last turn's bytes

	// aside counts the goroutines of the response.
	aside sync.WaitGroup

	mu       sync.Mutex // guards what follows
	task     *taskpool.Task
	hungUp   func()
	activity socket.Subscription
	finished bool
}

// Task implements Response.
func (*connection) Task(turn func() time.Duration) taskpool.Task { return taskpool.NewTask(turn) }

// Start implements Response.
func (c *connection) Start(task *taskpool.Task, hungUp func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.finished {
		return net.ErrClosed
	}
	c.task, c.hungUp = task, hungUp
	c.activity = c.hangups.Subscribe(c.active)
	err := c.activity.Arm(c.socket, true)
	if errors.Is(err, os.ErrClosed) {
		return net.ErrClosed
	}
	return err
}

// active is called when the client has sent something or has hung up. A client has nothing to say
// any more, so a goroutine reads and drops it.
func (c *connection) active() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.finished {
		return
	}
	c.aside.Go(func() {
		var ignored [64]byte
		if _, err := c.conn.Read(ignored[:]); err != nil || c.activity.Arm(c.socket, false) != nil {
			c.hungUp()
		}
	})
}

// Chunked implements Response.
func (*connection) Chunked() bool { return true }

// Room implements Response.
func (c *connection) Room() int {
	if c.draining.Load() {
		return 0
	}
	return math.MaxInt
}

// Begin implements Response.
func (c *connection) Begin(buffer []byte) { c.socket.Hold(buffer) }

// Write implements Response.
func (c *connection) Write(p []byte) (int, error) { return c.conn.Write(p) }

// End implements Response.
func (c *connection) End(buffer *[]byte) (sent bool, err error) {
	out, all, err := c.socket.Push()
	*buffer = out
	if err == nil && !all {
		c.drain()
	}
	return len(out) > 0, err
}

// drain waits, in a goroutine, until the socket has taken everything.
func (c *connection) drain() {
	c.draining.Store(true)
	c.aside.Go(func() {
		if c.socket.Drain() != nil {
			c.hungUp()
		}
		c.draining.Store(false)
		c.pool.Wake(c.task)
	})
}

// SetWriteDeadline implements Response. An error means that the connection is closed, which the
// next write reports.
func (c *connection) SetWriteDeadline(until time.Time) { _ = c.conn.SetWriteDeadline(until) }

// Finish implements Response. It writes in a goroutine, which may have to wait for the socket.
func (c *connection) Finish(brokenOff bool, done func()) {
	c.mu.Lock()
	c.finished = true
	activity := c.activity
	c.mu.Unlock()
	activity.Close()
	go func() {
		defer done()
		c.SetWriteDeadline(time.Now().Add(lastWrite))
		if !brokenOff {
			_, _ = c.conn.Write([]byte("0\r\n\r\n")) // the client may have hung up
		}
		_ = c.conn.Close()
		c.aside.Wait()
	}()
}
