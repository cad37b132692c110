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

// outgoing is the state of writing the library's frames.
type outgoing struct {
	passThrough int // how many bytes go out unread
	head        [frameHeader]byte
	got         int // how many bytes of head are there
	// split is a DATA frame that is larger than the window was. It goes out in pieces, and its
	// length is what is left of them.
	split     header
	inHeaders bool // a header block is incomplete, and no other frame may come between
	// goAway: the client is to make its next requests over another connection. goAwaySent: it was
	// told.
	goAway     atomic.Bool
	goAwaySent bool
	// frames is what detached streams have written in this turn.
	frames []byte
}

// turns say who writes: the library, from the beginning of a frame to its end, or the group. They
// are guarded by Conn.mu.
type turns struct {
	free       sync.Cond // the library waits for its turn
	busy       bool      // the library or the group has the turn
	midFrame   bool      // the library has the turn, and has written part of a frame
	groupWaits bool      // the group is woken when it can have the turn
	groupsTurn bool      // it was woken, and has the turn
	draining   bool      // a goroutine waits until the socket has taken what the group wrote
}

// Write sends what the library has written, without the ends of detached responses.
func (c *Conn) Write(p []byte) (int, error) {
	c.beginWrite()
	defer c.endWrite()
	out, sent := &c.out, 0 // sent is up to where p is dealt with
	if err := c.writeGoAway(); err != nil {
		return 0, err
	}
	for at := 0; at < len(p); {
		if out.passThrough > 0 {
			n := min(out.passThrough, len(p)-at)
			out.passThrough -= n
			at += n
			continue
		}
		begin, instead := at, []byte(nil) // instead replaces p[begin:at]
		switch {
		case out.split.length > 0:
			if err := c.send(p[sent:at]); err != nil { // before nextPiece waits
				return 0, err
			}
			sent, instead = at, c.nextPiece()
		default:
			n := copy(out.head[out.got:], p[at:])
			out.got += n
			at += n
			if out.got == frameHeader {
				out.got = 0
				whole := c.sending(parseHeader(out.head[:]))
				if whole && n == frameHeader {
					continue // it is sent with the bytes around it
				}
				if whole {
					instead = out.head[:]
				}
			}
		}
		if err := errors.Join(c.send(p[sent:begin]), c.send(instead)); err != nil {
			return 0, err
		}
		sent = at
	}
	if err := c.send(p[sent:]); err != nil {
		return 0, err
	}
	return len(p), nil
}

// GoAway asks the client of the request with this context to make its next requests over another
// connection, which may lead to another server. Requests and responses on this connection go on,
// detached ones too, and so do requests that the client sends before it gets the frame. The library
// does not know of the frame. GoAway returns false if the request did not come over a Conn.
func GoAway(ctx context.Context) bool {
	c, _ := ctx.Value(connKey{}).(*Conn)
	if c == nil {
		return false
	}
	c.out.goAway.Store(true)
	return true
}

// writeGoAway writes the frame that GoAway asks for, once and between frames. The library has the
// turn.
func (c *Conn) writeGoAway() error {
	out := &c.out
	between := out.passThrough == 0 && out.got == 0 && !out.inHeaders && out.split.length == 0
	if !out.goAway.Load() || out.goAwaySent || !between {
		return nil
	}
	out.goAwaySent = true
	frame := appendHeader(nil, header{length: 8, kind: http2.FrameGoAway})
	return c.send(append(frame, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0)) // any stream, no error
}

// nextPiece waits for room in the window, and returns the header of the next piece of the frame
// that is split.
func (c *Conn) nextPiece() []byte {
	next := c.out.split
	if next.length = c.grant(next.length); next.length < c.out.split.length {
		next.flags &^= http2.FlagDataEndStream
	}
	c.out.split.length -= next.length
	c.out.passThrough = next.length
	return appendHeader(nil, next)
}

// send writes to TLS.
func (c *Conn) send(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	_, err := c.Conn.Write(p)
	return err
}

// sending notes what a frame of the library says, and returns whether the frame goes out unchanged.
func (c *Conn) sending(h header) bool {
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
		c.out.inHeaders = !h.flags.Has(http2.FlagHeadersEndHeaders)
	case http2.FrameContinuation:
		c.out.inHeaders = !h.flags.Has(http2.FlagContinuationEndHeaders)
	case http2.FrameGoAway:
		c.goingAway = true
	case http2.FrameRSTStream:
		if st != nil {
			c.hangUp(st)
		}
	}
	switch {
	case st == nil || !end:
	case st.state == detaching && h.kind == http2.FrameData && h.length == 0:
		st.state = detached
		st.wake()
		return false
	case st.state == detaching: // the handler has written after Detach
		c.hangUp(st)
	default:
		c.forget(st)
		st.state = ended
	}
	if h.kind == http2.FrameData && int64(h.length) > c.window {
		c.out.split = h
		return false
	}
	if h.kind == http2.FrameData {
		c.window -= int64(h.length)
	}
	c.out.passThrough = h.length
	return true
}

// beginWrite waits until the library can have the turn.
func (c *Conn) beginWrite() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.busy && !c.midFrame && !c.closed {
		c.free.Wait()
	}
	c.busy, c.midFrame = true, false
}

// endWrite ends the library's turn, unless it is within a frame. Then the group comes first, or a
// long list would never let it have a turn.
func (c *Conn) endWrite() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.out.passThrough > 0 || c.out.got > 0 || c.out.inHeaders:
		c.midFrame = true
	default:
		c.yield()
	}
}

// yield gives the library's turn to the group if the group waits. mu is held.
func (c *Conn) yield() {
	if c.groupWaits {
		c.groupWaits, c.groupsTurn = false, true
		c.group.Wake()
		return
	}
	c.busy = false
}

// beginTurn tries to get the turn for the group: write says whether it has it. If the connection is
// closed, the tasks run without it, so that they can end: run without write.
func (c *Conn) beginTurn() (write, run bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return false, true
	case c.groupsTurn:
		c.groupsTurn = false
	case c.draining:
		return false, false // drain wakes the group
	case c.busy:
		c.groupWaits = true
		return false, false
	}
	c.busy = true
	return true, true
}

// endTurn ends the group's turn.
func (c *Conn) endTurn(draining bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy, c.draining = false, draining
	c.free.Signal()
}

const (
	// turnBytes is about how much is written before other connections have their turns.
	turnBytes = 192 << 10
	// sealedBytes is about how much is encrypted at a time.
	sealedBytes = 4 * largestFrame
)

// buffers are what a turn needs room for.
type buffers struct{ plain, cipher []byte }

var turnBuffers = sync.Pool{New: func() any { return &buffers{} }}

// turn lets the detached streams write. What they write leaves in one system call, which does not
// block.
func (c *Conn) turn(g *taskpool.Group) time.Duration {
	write, run := c.beginTurn()
	if !write {
		if run {
			g.Run(func() bool { return false })
		}
		return taskpool.Idle
	}
	b := turnBuffers.Get().(*buffers)
	c.socket.Hold(b.cipher)
	c.out.frames = b.plain[:0]
	written := 0
	var failed error
	seal := func() {
		written += len(c.out.frames)
		failed = errors.Join(failed, c.send(c.out.frames))
		c.out.frames = c.out.frames[:0]
	}
	more := g.Run(func() bool {
		if len(c.out.frames) >= sealedBytes {
			seal()
		}
		return written >= turnBytes || failed != nil
	})
	seal()
	cipher, all, err := c.socket.Push()
	b.plain, b.cipher, c.out.frames = c.out.frames, cipher, nil
	turnBuffers.Put(b)
	failed = errors.Join(failed, err)
	c.endTurn(failed == nil && !all)
	switch {
	case failed != nil:
		go c.Close() // TLS writes an alert, which may take a while
	case !all:
		go c.drain()
	case more:
		return taskpool.Again
	}
	return taskpool.Idle
}

// drain waits until the socket has taken everything.
func (c *Conn) drain() {
	_ = c.socket.SetWriteDeadline(time.Now().Add(c.writeTimeout))
	if c.socket.Drain() != nil {
		_ = c.Close() // the deadline stays: it bounds the alert that TLS writes
	} else {
		_ = c.socket.SetWriteDeadline(time.Time{})
	}
	c.mu.Lock()
	c.draining = false
	c.mu.Unlock()
	c.group.Wake()
}
