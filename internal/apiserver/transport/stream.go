package transport

import (
	"net"
	"time"

	"github.com/knarr-project/knarr/internal/apiserver/h2"
	"github.com/knarr-project/knarr/internal/apiserver/taskpool"
)

// stream is a Response over HTTP/2: one stream of a connection that others share.
type stream struct {
	stream *h2.Stream
	sent   bool // in this turn
}

// Task implements Response.
func (s *stream) Task(turn func() time.Duration) taskpool.Task { return s.stream.Task(turn) }

// Start implements Response.
func (s *stream) Start(task *taskpool.Task, hungUp func()) error {
	if !s.stream.Detach(task, hungUp) {
		return net.ErrClosed
	}
	return nil
}

// Chunked implements Response.
func (*stream) Chunked() bool { return false }

// Room implements Response.
func (s *stream) Room() int { return s.stream.Room() }

// Begin implements Response. The connection has a buffer for all its streams.
func (s *stream) Begin([]byte) { s.sent = false }

// Write implements Response.
func (s *stream) Write(p []byte) (int, error) {
	s.sent = true
	return s.stream.Write(p)
}

// End implements Response.
func (s *stream) End(*[]byte) (sent bool, err error) { return s.sent, nil }

// SetWriteDeadline implements Response.
func (*stream) SetWriteDeadline(time.Time) {}

// Finish implements Response.
func (s *stream) Finish(_ bool, done func()) {
	s.stream.End()
	done()
}
