package h2

// windows are those of the connection (RFC 9113, 5.2): how much the client takes until it says that it takes more. What the library is told of and what streams that were taken may use are two
// parts of it, so that neither has to ask the other. Guarded by Conn.mu.
type windows struct {
	initial int64 // of a stream
	real    int64 // the connection's, less what both sides have sent
	spare   int64 // what of it is for streams that were taken
	keep    int64 // what spare is to be
	blocked int   // streams that wait for a window
}

const (
	// A client with a small window has it for the library alone, and none of its streams can be taken.
	smallWindow = 1 << 20
	mostSpare   = 16 << 20
)

// widened is told that the client takes more, and gives how much of that is the library's. mu is held.
func (c *Conn) widened(more int64) int64 {
	c.real += more
	if c.real >= smallWindow {
		c.keep = max(c.keep, min(c.real/4, mostSpare))
	}
	ours := min(more, max(0, c.keep-c.spare))
	c.spare += ours
	if ours > 0 {
		c.unblock()
	}
	return more - ours
}

// unblock wakes the streams that wait for a window. mu is held.
func (c *Conn) unblock() {
	if c.blocked == 0 {
		return
	}
	for _, st := range c.streams {
		if st.blocked {
			st.wake()
		}
	}
}
