package h2

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"github.com/knarr-project/knarr/internal/apiserver/taskpool"
)

// outgoing is how far the library's frames have been written.
type outgoing struct {
	pass int // bytes that go as they are
	head [frameHeader]byte
	got  int // of head
	// data is a frame that is larger than the window was: it goes in pieces, and its length is what of them is left.
	data  header
	block bool // a header is not complete, and nothing may come between
	// farewell: the client is to make its next requests over another connection; farewelled: it has been told.
	farewell   atomic.Bool
	farewelled bool
	// plain is what streams that were taken have written in this turn.
	plain []byte
}

// turns say who writes: the library, from the beginning of a frame to its end, or the group. Guarded by Conn.mu.
type turns struct {
	free     sync.Cond // the library waits for its turn
	busy     bool      // somebody has the turn
	half     bool      // it is the library's, which has written half a frame
	wanted   bool      // the group is to be woken when it can have the turn
	handed   bool      // it has been, and has the turn
	draining bool      // somebody waits until the socket has taken what the group wrote
}

// Write sends what the library has written, but for the ends of answers that were taken.
func (c *Conn) Write(p []byte) (int, error) {
	c.enter()
	defer c.leave()
	out, done := &c.out, 0 // up to where p has gone where it is to go
	if err := c.sayFarewell(); err != nil {
		return 0, err
	}
	for at := 0; at < len(p); {
		if out.pass > 0 {
			n := min(out.pass, len(p)-at)
			out.pass -= n
			at += n
			continue
		}
		begin, instead := at, []byte(nil) // instead of what is there from begin to at
		switch {
		case out.data.length > 0:
			if err := c.pass(p[done:at]); err != nil { // before waiting
				return 0, err
			}
			done, instead = at, c.piece()
		default:
			n := copy(out.head[out.got:], p[at:])
			out.got += n
			at += n
			if out.got == frameHeader {
				out.got = 0
				send := c.sends(parseHeader(out.head[:]))
				if send && n == frameHeader {
					continue // with what is around it
				}
				if send {
					instead = out.head[:]
				}
			}
		}
		if err := errors.Join(c.pass(p[done:begin]), c.pass(instead)); err != nil {
			return 0, err
		}
		done = at
	}
	if err := c.pass(p[done:]); err != nil {
		return 0, err
	}
	return len(p), nil
}

// GoAway asks the client of the request with this context to make its next requests over another connection, which may lead elsewhere. Requests and answers on this one, those that
// are taken too, go on as if nothing had happened, as do requests that the client has sent before it knows: the frame says so, and the library does not know of it.
// It is false where there is no HTTP/2.
func GoAway(ctx context.Context) bool {
	c, _ := ctx.Value(connKey{}).(*Conn)
	if c == nil {
		return false
	}
	c.out.farewell.Store(true)
	return true
}

// sayFarewell writes what GoAway wants, once and between frames. The turn is the library's.
func (c *Conn) sayFarewell() error {
	out := &c.out
	if !out.farewell.Load() || out.pass > 0 || out.got > 0 || out.block || out.data.length > 0 || out.farewelled {
		return nil
	}
	out.farewelled = true
	frame := appendHeader(nil, header{length: 8, kind: http2.FrameGoAway})
	return c.pass(append(frame, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0)) // any stream, no error
}

// piece begins the next piece of a frame that is larger than the window, when there is room for one: with a header of its own.
func (c *Conn) piece() []byte {
	next := c.out.data
	if next.length = c.grant(next.length); next.length < c.out.data.length {
		next.flags &^= http2.FlagDataEndStream
	}
	c.out.data.length -= next.length
	c.out.pass = next.length
	return appendHeader(nil, next)
}

func (c *Conn) pass(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	_, err := c.Conn.Write(p)
	return err
}

// sends takes note of a frame of the library's, and tells whether it is to be sent as it is.
func (c *Conn) sends(h header) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.streams[h.stream]
	end := false
	switch h.kind {
	case http2.FrameData:
		end = h.flags.Has(http2.FlagDataEndStream)
		if st != nil {
			st.window -= int64(h.length)
		}
	case http2.FrameHeaders:
		end = h.flags.Has(http2.FlagHeadersEndStream)
		c.out.block = !h.flags.Has(http2.FlagHeadersEndHeaders)
	case http2.FrameContinuation:
		c.out.block = !h.flags.Has(http2.FlagContinuationEndHeaders)
	case http2.FrameGoAway:
		c.away = true
	case http2.FrameRSTStream:
		if st != nil {
			c.gone(st)
		}
	}
	switch {
	case st == nil || !end:
	case st.state == taken && h.kind == http2.FrameData && h.length == 0:
		st.state = open
		st.wake()
		return false
	case st.state == taken: // its handler has written after all
		c.gone(st)
	default:
		c.over(st)
		st.state = ended
	}
	if h.kind == http2.FrameData && int64(h.length) > c.real {
		c.out.data = h // in pieces
		return false
	}
	if h.kind == http2.FrameData {
		c.real -= int64(h.length)
	}
	c.out.pass = h.length
	return true
}

// enter waits for the library's turn.
func (c *Conn) enter() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.busy && !c.half && !c.closed {
		c.free.Wait()
	}
	c.busy, c.half = true, false
}

// leave ends it, unless it is in the middle of a frame. The group comes first then, lest a long list keep it from ever having a turn.
func (c *Conn) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.out.pass > 0 || c.out.got > 0 || c.out.block:
		c.half = true
	default:
		c.yield()
	}
}

// yield gives the library's turn to the group if it waits. mu is held.
func (c *Conn) yield() {
	if c.wanted {
		c.wanted, c.handed = false, true
		c.group.Wake()
		return
	}
	c.busy = false
}

// begin takes the turn for the group. For a connection that is closed there is none to take, but the tasks have theirs, to end.
func (c *Conn) begin() (write, run bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return false, true
	case c.handed:
		c.handed = false
	case c.draining:
		return false, false // woken afterwards
	case c.busy:
		c.wanted = true
		return false, false
	}
	c.busy = true
	return true, true
}

// end gives the turn back.
func (c *Conn) end(draining bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy, c.draining = false, draining
	c.free.Signal()
}

const (
	// turnBytes is about how much is written before other connections have their turns.
	turnBytes = 192 << 10
	// sealedBytes is about how much is encrypted at once.
	sealedBytes = 4 * largestFrame
)

// buffers are what a turn needs room for.
type buffers struct{ plain, cipher []byte }

var turnBuffers = sync.Pool{New: func() any { return &buffers{} }}

// turn lets the streams that were taken write. What they have written leaves in one system call, which does not wait.
func (c *Conn) turn(g *taskpool.Group) time.Duration {
	write, run := c.begin()
	if !write {
		if run {
			g.Run(func() bool { return false })
		}
		return taskpool.Idle
	}
	b := turnBuffers.Get().(*buffers)
	c.wire.Hold(b.cipher)
	c.out.plain = b.plain[:0]
	written := 0
	var failed error
	seal := func() {
		written += len(c.out.plain)
		failed = errors.Join(failed, c.pass(c.out.plain))
		c.out.plain = c.out.plain[:0]
	}
	more := g.Run(func() bool {
		if len(c.out.plain) >= sealedBytes {
			seal()
		}
		return written >= turnBytes || failed != nil
	})
	seal()
	cipher, all, err := c.wire.Push()
	b.plain, b.cipher, c.out.plain = c.out.plain, cipher, nil
	turnBuffers.Put(b)
	failed = errors.Join(failed, err)
	c.end(failed == nil && !all)
	switch {
	case failed != nil:
		go c.Close() // says good-bye, which may take a while
	case !all:
		go c.drain()
	case more:
		return taskpool.Again
	}
	return taskpool.Idle
}

// drain waits until the socket has taken everything.
func (c *Conn) drain() {
	_ = c.wire.SetWriteDeadline(time.Now().Add(c.patience))
	if c.wire.Drain() != nil {
		_ = c.Close() // the deadline stays, or its good-bye might wait for ever
	} else {
		_ = c.wire.SetWriteDeadline(time.Time{})
	}
	c.mu.Lock()
	c.draining = false
	c.mu.Unlock()
	c.group.Wake()
}
