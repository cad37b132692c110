package h2

import (
	"crypto/tls"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"github.com/knarr-project/knarr/internal/apiserver/socket"
	"github.com/knarr-project/knarr/internal/apiserver/taskpool"
)

// Conn is a connection between the library and TLS. The library reads from one goroutine and writes from one at a time.
type Conn struct {
	*tls.Conn
	wire  *socket.Conn // below TLS; nil: nothing can be taken
	group *taskpool.Group
	pool  *taskpool.Pool

	in  incoming // of the goroutine that reads
	out outgoing // of who has the turn to write

	mu      sync.Mutex // guards what follows
	streams map[uint32]*Stream
	taken   int
	windows
	turns
	closed bool
	away   bool // the library knows, or says, that the connection will end: it closes it when its own streams have ended
	// idle is after how much time without streams the connection is to be given up, by the timer; 0: never.
	idle  time.Duration
	timer *time.Timer
	// patience is how long a client may take over what is written in a turn.
	patience time.Duration
	// leaving: that time has come, and the one who reads is to tell the library.
	leaving bool
}

func newConn(under *tls.Conn, wire *socket.Conn, pool *taskpool.Pool, idle, patience time.Duration) *Conn {
	c := &Conn{Conn: under, wire: wire, pool: pool, idle: idle, patience: patience, streams: map[uint32]*Stream{}}
	c.in.pass = len(http2.ClientPreface)
	c.windows = windows{initial: initialWindow, real: initialWindow}
	c.free.L = &c.mu
	c.group = pool.NewGroup(c.turn)
	if idle > 0 {
		c.timer = time.AfterFunc(idle, c.idled)
	}
	return c
}

// Close hangs up every stream that was taken.
func (c *Conn) Close() error {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		for _, st := range c.streams {
			c.gone(st)
		}
		if c.timer != nil {
			c.timer.Stop()
		}
		c.handed, c.busy = false, false // whoever writes is told by TLS
		c.free.Broadcast()
		c.group.Wake()
	}
	c.mu.Unlock()
	return c.Conn.Close()
}

// mostStreams is how many streams of a connection are known, more than the library allows. What is beyond that can not be taken, no more.
const mostStreams = 4 * mostTaken

// opened notes a stream that the client has opened, with its request; asked tells whether that has ended.
func (c *Conn) opened(id uint32, asked bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, again := c.streams[id]; again || c.away || c.closed || len(c.streams) >= mostStreams { // again: trailers
		return
	}
	if len(c.streams) == 0 && c.timer != nil {
		c.timer.Stop()
	}
	c.streams[id] = &Stream{conn: c, id: id, window: c.initial, asked: asked}
}

// over forgets a stream. mu is held.
func (c *Conn) over(st *Stream) {
	if c.streams[st.id] != st {
		return
	}
	delete(c.streams, st.id)
	if st.blocked {
		st.blocked = false
		c.blocked--
	}
	if st.state != theirs {
		c.taken--
	}
	if len(c.streams) == 0 && c.timer != nil && !c.closed {
		c.timer.Reset(c.idle)
	}
}

// gone tells the taker of a stream that there is nobody any more who would read it. mu is held.
func (c *Conn) gone(st *Stream) {
	taken := st.state != theirs
	c.over(st)
	st.state = ended
	if taken {
		st.hungUp()
	}
}

// idled wakes the one who reads.
func (c *Conn) idled() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.streams) > 0 || c.closed {
		return
	}
	c.leaving = true
	_ = c.SetReadDeadline(time.Unix(1, 0))
}
