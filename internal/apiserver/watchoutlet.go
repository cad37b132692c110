package apiserver

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/knarr-project/knarr/internal/apiserver/deliver"
	"github.com/knarr-project/knarr/internal/apiserver/h2"
)

// outlet is the connection of a watchStream. It is used only in the stream's turns.
type outlet interface {
	// room returns how many bytes may be written now. If it is 0, the stream is woken when that
	// changes.
	room() int
	// begin and end enclose the writes of a turn. sent reports whether there were any.
	begin(b *streamBuffer)
	write(p []byte) error
	end(b *streamBuffer) (sent bool, err error)
	// patience sets the deadline for the client to take the next writes.
	patience(until time.Time)
	// finish ends the response properly, or breaks it off, and then calls done.
	finish(brokenOff bool, done func())
	// chunked reports whether events are framed for HTTP/1.1.
	chunked() bool
}

// ownConnection is a connection that was hijacked from net/http.
type ownConnection struct {
	conn     net.Conn // the HTTP server's, TLS or not
	wire     *deliver.Conn
	ear      deliver.Ear // notices when the client closes it
	stream   *watchStream
	draining atomic.Bool // a goroutine waits for the socket
}

func (o *ownConnection) chunked() bool { return true }

func (o *ownConnection) room() int {
	if o.draining.Load() {
		return 0
	}
	return turnBytes
}

func (o *ownConnection) begin(b *streamBuffer) { o.wire.Hold(b.out) }

func (o *ownConnection) write(p []byte) error {
	_, err := o.conn.Write(p)
	return err
}

func (o *ownConnection) end(b *streamBuffer) (sent bool, err error) {
	out, all, err := o.wire.Push()
	b.out = out
	if err == nil && !all {
		o.drain()
	}
	return len(out) > 0, err
}

// drain waits in a goroutine until the socket has taken everything.
func (o *ownConnection) drain() {
	o.draining.Store(true)
	go func() {
		if o.wire.Drain() != nil {
			o.stream.gone.Store(true)
		}
		o.draining.Store(false)
		o.stream.wake()
	}()
}

func (o *ownConnection) patience(until time.Time) { _ = o.conn.SetWriteDeadline(until) }

func (o *ownConnection) finish(brokenOff bool, done func()) {
	o.ear.Close()
	go func() { // the final bytes may have to wait for the socket
		defer done()
		o.patience(time.Now().Add(time.Second)) // the client may be gone
		if !brokenOff {
			_, _ = o.conn.Write([]byte("0\r\n\r\n"))
		}
		_ = o.conn.Close()
	}()
}

// sharedConnection is a stream of HTTP/2 that was taken out of its request.
type sharedConnection struct {
	*h2.Stream
	sent bool // in this turn
}

func (o *sharedConnection) chunked() bool { return false }

func (o *sharedConnection) room() int { return min(o.Room(), turnBytes) }

func (o *sharedConnection) begin(*streamBuffer) { o.sent = false }

func (o *sharedConnection) write(p []byte) error {
	o.sent = true
	_, err := o.Write(p)
	return err
}

func (o *sharedConnection) end(*streamBuffer) (sent bool, err error) { return o.sent, nil }

// patience does nothing: the initial objects were sent before the stream was taken, and the watch's
// end is the limit for the rest.
func (o *sharedConnection) patience(time.Time) {}

func (o *sharedConnection) finish(_ bool, done func()) {
	o.End()
	done()
}
