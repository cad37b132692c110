package h2

import (
	"errors"
	"slices"
	"time"

	"golang.org/x/net/http2"

	"github.com/knarr-project/knarr/internal/apiserver/taskpool"
)

// Stream is a request and its answer. Its methods other than Task and Take are for turns of its task.
type Stream struct {
	conn *Conn
	id   uint32

	// What follows is guarded by conn.mu.
	state   state
	asked   bool // the request has ended with its header
	refused bool // nobody wants it any more
	window  int64
	blocked bool
	task    *taskpool.Task
	hungUp  func()
	// left is what has not been sent yet of what was written.
	left []byte
}

// state says whose the stream is.
type state uint8

const (
	theirs  state = iota // the library's
	taken                // the handler has not returned yet
	open                 // the taker's
	closing              // the taker has nothing more to say, but the library's end of the stream is to come
	ended
)

// mostTaken is how many streams of a connection can be taken; the library, which does not know of them, allows as many others.
const mostTaken = 250

// ErrEnded is for those who write to a stream that nobody reads any more.
var ErrEnded = errors.New("the stream has ended")

// takeable is the stream if it can be taken.
func (c *Conn) takeable(id uint32) *Stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.streams[id]
	if st == nil || st.state != theirs || !st.asked || c.wire == nil || !c.wide || c.away || c.taken >= mostTaken {
		return nil
	}
	return st
}

// Task makes the task that is to write to the stream.
func (st *Stream) Task(turn func() time.Duration) taskpool.Task { return st.conn.group.Task(turn) }

// Take takes the answer out of its request: it goes on when the handler, which must not write any more, has returned. The task is woken when there is room to write that there was not
// before; hungUp is called when nobody reads any more. It is false when that is so already, the connection is about to end, or End was called. hungUp must not block.
func (st *Stream) Take(task *taskpool.Task, hungUp func()) bool {
	c := st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.state != theirs || st.refused || c.away || c.closed {
		return false
	}
	st.state, st.task, st.hungUp = taken, task, hungUp
	c.taken++
	return true
}

// Room is how many bytes can be written now. When there is none, the task is woken when there is.
func (st *Stream) Room() int {
	c := st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.state != open {
		return 0 // woken when it is
	}
	if rest := st.left; rest != nil {
		st.left = nil
		if room := st.put(rest); room < len(rest) {
			st.left = rest[room:]
		}
	}
	if room := min(st.window, c.available()); room > 0 && st.left == nil {
		return int(room)
	}
	st.block()
	return 0
}

// Write sends b, and keeps what there is no room for.
func (st *Stream) Write(b []byte) (int, error) {
	c := st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.state != open || c.closed {
		return 0, ErrEnded
	}
	if st.left != nil {
		st.left = append(st.left, b...)
		return len(b), nil
	}
	if room := st.put(b); room < len(b) {
		st.left = slices.Clone(b[room:])
		st.block()
	}
	return len(b), nil
}

// put sends as much of b as there is room for. conn.mu is held.
func (st *Stream) put(b []byte) int {
	c := st.conn
	room := int(min(int64(len(b)), max(0, min(st.window, c.available()))))
	st.window, c.real, c.debt = st.window-int64(room), c.real-int64(room), c.debt+int64(room)
	for at := 0; at < room; at += largestFrame {
		piece := b[at:min(at+largestFrame, room)]
		c.out.plain = appendHeader(c.out.plain, header{length: len(piece), kind: http2.FrameData, stream: st.id})
		c.out.plain = append(c.out.plain, piece...)
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

// End ends the answer: as it should, or as one that was broken off when half an event can not be sent.
func (st *Stream) End() {
	c := st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case st.state == theirs:
		st.refused = true // the library ends it
	case st.state == taken:
		st.state = closing
	case st.state == open && !c.closed:
		end := header{kind: http2.FrameData, flags: http2.FlagDataEndStream, stream: st.id}
		if st.left != nil {
			end = header{kind: http2.FrameRSTStream, length: 4, stream: st.id}
		}
		c.out.plain = appendHeader(c.out.plain, end)
		if st.left != nil {
			c.out.plain = append(c.out.plain, 0, 0, 0, byte(http2.ErrCodeInternal))
		}
		c.over(st)
		st.state = ended
	}
	st.left = nil
}

// widen is told that the client takes more. mu is held.
func (st *Stream) widen(more int64) {
	st.window += more
	if st.blocked && st.window > 0 {
		st.wake()
	}
}

// wake; mu is held.
func (st *Stream) wake() {
	if st.blocked {
		st.blocked = false
		st.conn.blocked--
	}
	st.conn.pool.Wake(st.task)
}
