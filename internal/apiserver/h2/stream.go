package h2

import (
	"errors"
	"slices"
	"time"

	"golang.org/x/net/http2"

	"github.com/knarr-project/knarr/internal/apiserver/taskpool"
)

// Stream is a request and its response. All methods but Task and Detach are for turns of its task.
type Stream struct {
	conn *Conn
	id   uint32

	// What follows is guarded by conn.mu.
	state    state
	complete bool // the request ended with its header block
	refused  bool // End came before Detach
	window   int64
	blocked  bool
	task     *taskpool.Task
	hungUp   func()
	// unsent is what was written and has not been sent yet.
	unsent []byte
}

// state says who owns the stream. States only advance.
type state uint8

const (
	// inHandler: the handler writes the response.
	inHandler state = iota
	// detaching: Detach was called, but the handler has not returned yet.
	detaching
	// detached: the task writes the response.
	detached
	// closing: the task has ended the response, but the library has not ended the stream yet.
	closing
	ended
)

// maxDetached is how many streams of a connection can be detached. The library does not know of
// them, and allows as many others.
const maxDetached = 250

// ErrEnded is returned by writes to a stream that the client does not read any more.
var ErrEnded = errors.New("the stream has ended")

// detachable returns the stream if it can be detached, or nil.
func (c *Conn) detachable(id uint32) *Stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.streams[id]
	if st == nil || st.state != inHandler || !st.complete {
		return nil
	}
	if c.socket == nil || !c.wide || c.goingAway || c.detached >= maxDetached {
		return nil
	}
	return st
}

// Task makes the task that is to write to the stream.
func (st *Stream) Task(turn func() time.Duration) taskpool.Task { return st.conn.group.Task(turn) }

// Detach detaches the response from its handler, which must not write any more: the response goes
// on when the handler has returned. The task is woken when there is room to write that there was
// not before. hungUp is called when the client does not read any more; it must not block. Detach
// returns false if that is so already, if the connection is about to end, or if End was called.
func (st *Stream) Detach(task *taskpool.Task, hungUp func()) bool {
	c := st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.state != inHandler || st.refused || c.goingAway || c.closed {
		return false
	}
	st.state, st.task, st.hungUp = detaching, task, hungUp
	c.detached++
	return true
}

// Room returns how many bytes can be written now. If 0, the task is woken when there is room.
func (st *Stream) Room() int {
	c := st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.state != detached {
		return 0 // the task is woken when the stream is detached
	}
	if rest := st.unsent; rest != nil {
		st.unsent = nil
		if room := st.put(rest); room < len(rest) {
			st.unsent = rest[room:]
		}
	}
	if room := min(st.window, c.available()); room > 0 && st.unsent == nil {
		return int(room)
	}
	st.block()
	return 0
}

// Write sends b, and keeps what the windows have no room for.
func (st *Stream) Write(b []byte) (int, error) {
	c := st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.state != detached || c.closed {
		return 0, ErrEnded
	}
	if st.unsent != nil {
		st.unsent = append(st.unsent, b...)
		return len(b), nil
	}
	if room := st.put(b); room < len(b) {
		st.unsent = slices.Clone(b[room:])
		st.block()
	}
	return len(b), nil
}

// put sends as much of b as the windows have room for. conn.mu is held.
func (st *Stream) put(b []byte) int {
	c := st.conn
	room := int(min(int64(len(b)), max(0, min(st.window, c.available()))))
	st.window -= int64(room)
	c.window, c.debt = c.window-int64(room), c.debt+int64(room)
	for at := 0; at < room; at += largestFrame {
		piece := b[at:min(at+largestFrame, room)]
		data := header{length: len(piece), kind: http2.FrameData, stream: st.id}
		c.out.frames = append(appendHeader(c.out.frames, data), piece...)
	}
	return room
}

// block lets the task be woken when there is room. conn.mu is held.
func (st *Stream) block() {
	if !st.blocked {
		st.blocked = true
		st.conn.blocked++
	}
}

// End ends the response. If part of what was written cannot be sent any more, it resets the stream,
// so that the client notices.
func (st *Stream) End() {
	c := st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case st.state == inHandler:
		st.refused = true // the library ends the stream
	case st.state == detaching:
		st.state = closing
	case st.state == detached && !c.closed:
		end := header{kind: http2.FrameData, flags: http2.FlagDataEndStream, stream: st.id}
		if st.unsent != nil {
			end = header{kind: http2.FrameRSTStream, length: 4, stream: st.id}
		}
		c.out.frames = appendHeader(c.out.frames, end)
		if st.unsent != nil {
			c.out.frames = append(c.out.frames, 0, 0, 0, byte(http2.ErrCodeInternal))
		}
		c.forget(st)
		st.state = ended
	}
	st.unsent = nil
}

// widen takes a grant by the client. conn.mu is held.
func (st *Stream) widen(more int64) {
	st.window += more
	if st.blocked && st.window > 0 {
		st.wake()
	}
}

// wake wakes the task. conn.mu is held.
func (st *Stream) wake() {
	if st.blocked {
		st.blocked = false
		st.conn.blocked--
	}
	st.conn.pool.Wake(st.task)
}
