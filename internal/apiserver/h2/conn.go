package h2

import (
	"crypto/tls"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"github.com/knarr-project/knarr/internal/apiserver/socket"
	"github.com/knarr-project/knarr/internal/apiserver/taskpool"
)

// Conn is a connection between the library and TLS. The library reads from one goroutine, and
// writes from one at a time.
type Conn struct {
	*tls.Conn
	socket *socket.Conn // below TLS; nil: no stream can be detached
	group  *taskpool.Group
	pool   *taskpool.Pool

	in  incoming // belongs to the goroutine that reads
	out outgoing // belongs to whoever has the turn to write

	mu       sync.Mutex // guards what follows
	streams  map[uint32]*Stream
	detached int // how many streams are
	windows
	turns
	closed bool
	// goingAway: one end has announced the end of the connection. The library closes it when the
	// streams that it knows have ended.
	goingAway bool
	// idle is the time without streams after which timer ends the connection; 0: never.
	idle  time.Duration
	timer *time.Timer
	// idleExpired: that time is over, and the reading goroutine is to tell the library.
	idleExpired bool
	// writeTimeout is how long a client may take to receive what is written in a turn.
	writeTimeout time.Duration
}

func newConn(
	under *tls.Conn, socket *socket.Conn, pool *taskpool.Pool, idle, writeTimeout time.Duration,
) *Conn {
	c := &Conn{
		Conn: under, socket: socket, pool: pool, idle: idle, writeTimeout: writeTimeout,
		streams: map[uint32]*Stream{},
	}
	c.in.passThrough = len(http2.ClientPreface)
	c.windows = windows{initial: initialWindow, window: initialWindow}
	c.free.L = &c.mu
	c.group = pool.NewGroup(c.turn)
	if idle > 0 {
		c.timer = time.AfterFunc(idle, c.expireIdle)
	}
	return c
}

// Close hangs up all detached streams.
func (c *Conn) Close() error {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		for _, st := range c.streams {
			c.hangUp(st)
		}
		if c.timer != nil {
			c.timer.Stop()
		}
		c.groupsTurn, c.busy = false, false // the next write gets an error from TLS
		c.free.Broadcast()
		c.group.Wake()
	}
	c.mu.Unlock()
	return c.Conn.Close()
}

// maxStreams is how many streams a Conn tracks, more than the library allows. Further streams
// cannot be detached, nothing else.
const maxStreams = 4 * maxDetached

// openStream tracks a stream that the client has opened. complete says whether its request has
// ended.
func (c *Conn) openStream(id uint32, complete bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, known := c.streams[id] // this header block is trailers
	if known || c.goingAway || c.closed || len(c.streams) >= maxStreams {
		return
	}
	if len(c.streams) == 0 && c.timer != nil {
		c.timer.Stop()
	}
	c.streams[id] = &Stream{conn: c, id: id, window: c.initial, complete: complete}
}

// forget ends the tracking of a stream. mu is held.
func (c *Conn) forget(st *Stream) {
	if c.streams[st.id] != st {
		return
	}
	delete(c.streams, st.id)
	if st.blocked {
		st.blocked = false
		c.blocked--
	}
	if st.state != inHandler {
		c.detached--
	}
	if len(c.streams) == 0 && c.timer != nil && !c.closed {
		c.timer.Reset(c.idle)
	}
}

// hangUp ends a stream that the client does not read any more. mu is held.
func (c *Conn) hangUp(st *Stream) {
	wasDetached := st.state != inHandler
	c.forget(st)
	st.state = ended
	if wasDetached {
		st.hungUp()
	}
}

// expireIdle wakes the reading goroutine when the connection has been idle for long.
func (c *Conn) expireIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.streams) > 0 || c.closed {
		return
	}
	c.idleExpired = true
	_ = c.SetReadDeadline(time.Unix(1, 0))
}
