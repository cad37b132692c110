package h2

import "time"

// windows are the flow-control windows of a connection (RFC 9113, 5.2): how many bytes the client
// accepts before it grants more. They are guarded by Conn.mu.
//
// Detached streams send out of the same window as the library. The library does not know that, and
// may believe that there is more than there is; what it writes then waits (see grant). A client
// grants more when half of the window, or all of it, is used up. So neither side gets a part of the
// window for itself: the other could never use it up.
type windows struct {
	initial int64 // a stream's window when it opens
	window  int64 // the connection's, less what both sides have sent
	// debt is how much of that the library does not know: what detached streams have sent.
	debt         int64
	wide         bool // the window has been wide enough to detach streams
	blocked      int  // how many streams wait for a window
	libraryWaits bool // the library waits for a window, and comes first
}

// minWindow is the connection window from which on streams can be detached. If a smaller one was
// shared, it would be used up often, and frames that need no window would wait behind it.
const minWindow = 1 << 20

// widen takes a grant by the client, and returns how much of it the library is told. mu is held.
func (c *Conn) widen(more int64) int64 {
	c.window += more
	c.wide = c.wide || c.window >= minWindow
	paid := min(more, c.debt)
	c.debt -= paid
	if c.libraryWaits {
		c.free.Broadcast()
	} else {
		c.unblock()
	}
	return more - paid
}

// available returns how much of the connection's window detached streams may use. mu is held.
func (c *Conn) available() int64 {
	if c.libraryWaits {
		return 0
	}
	return max(0, c.window)
}

// unblock wakes the streams that wait for a window. mu is held.
func (c *Conn) unblock() {
	if c.blocked == 0 || c.window <= 0 {
		return
	}
	for _, st := range c.streams {
		if st.blocked {
			st.wake()
		}
	}
}

// grant waits until the window has room for some of what the library wants to send, and returns how
// much. The group may have turns meanwhile.
func (c *Conn) grant(want int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.window <= 0 && c.writeTimeout > 0 { // until then, no other frame of the library can leave
		late := time.AfterFunc(c.writeTimeout, func() { _ = c.Close() })
		defer late.Stop()
	}
	for c.window <= 0 && !c.closed {
		c.libraryWaits = true
		c.yield()
		for (c.busy || c.window <= 0) && !c.closed {
			c.free.Wait()
		}
		c.busy = true
	}
	if c.closed {
		return want // the write will fail
	}
	n := int(min(int64(want), c.window))
	c.window -= int64(n)
	if c.libraryWaits {
		c.libraryWaits = false
		c.unblock()
	}
	return n
}
