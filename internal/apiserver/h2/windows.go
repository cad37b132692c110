package h2

import "time"

// windows are those of the connection (RFC 9113, 5.2): how much the client takes until it says that it takes more. Streams that were taken send out of the same window as the library, which does not know of
// that, and may believe that there is more than there is; what it writes then waits (see grant). Clients say that they take more when half of the window, or even all of it, is used up: so there is
// no part of it that one of the two could not use. Guarded by Conn.mu.
type windows struct {
	initial int64 // of a stream
	real    int64 // the connection's, less what both have sent
	debt    int64 // how much more than that the library believes in: what streams that were taken have sent
	wide    bool  // it has been wide enough for streams to be taken
	blocked int   // streams that wait for a window
	hungry  bool  // the library waits for a window, and comes first
}

// A client with a smaller window has it for the library alone, and none of its streams can be taken: where a window is used up often, waiting for it would keep back what needs none.
const smallWindow = 1 << 20

// widened is told that the client takes more, and gives how much of that the library is told. mu is held.
func (c *Conn) widened(more int64) int64 {
	c.real += more
	c.wide = c.wide || c.real >= smallWindow
	paid := min(more, c.debt)
	c.debt -= paid
	if c.hungry {
		c.free.Broadcast()
	} else {
		c.unblock()
	}
	return more - paid
}

// available is how much of the connection's window streams that were taken may use. mu is held.
func (c *Conn) available() int64 {
	if c.hungry {
		return 0
	}
	return max(0, c.real)
}

// unblock wakes the streams that wait for a window. mu is held.
func (c *Conn) unblock() {
	if c.blocked == 0 || c.real <= 0 {
		return
	}
	for _, st := range c.streams {
		if st.blocked {
			st.wake()
		}
	}
}

// grant waits until some of what the library wants to send has room in the window, and gives how much. Others may have the turn meanwhile.
func (c *Conn) grant(want int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.real <= 0 && c.patience > 0 {
		late := time.AfterFunc(c.patience, func() { _ = c.Close() }) // nothing else of the library's can leave meanwhile
		defer late.Stop()
	}
	for c.real <= 0 && !c.closed {
		c.hungry = true
		c.yield()
		for (c.busy || c.real <= 0) && !c.closed {
			c.free.Wait()
		}
		c.busy = true
	}
	if c.closed {
		return want // what is written now gets nowhere
	}
	n := int(min(int64(want), c.real))
	c.real -= int64(n)
	if c.hungry {
		c.hungry = false
		c.unblock()
	}
	return n
}
