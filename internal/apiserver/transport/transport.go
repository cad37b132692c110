package transport

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/knarr-project/knarr/internal/apiserver/h2"
	"github.com/knarr-project/knarr/internal/apiserver/socket"
	"github.com/knarr-project/knarr/internal/apiserver/taskpool"
)

// Kind names a transport, as the flag --http-transport does. The zero value is Fast.
type Kind string

// The kinds of transports.
const (
	Fast  Kind = "fast"
	Plain Kind = "plain"
)

// Transport serves HTTP for the API server. Make one with New.
type Transport interface {
	// Prepare sets up a server and returns the listener that it is to serve. If the server has a
	// TLSConfig, connections of that listener are TLS connections. Call it once, before Serve.
	Prepare(server *http.Server, listener net.Listener) (net.Listener, error)
	// Close stops the transport's goroutines and waits for them. It may be called twice,
	// and without Prepare.
	Close() error

	// Lanes bound how many large lists are sent at a time; nil sets no bound.
	Lanes() *taskpool.Lanes
	// GoAway asks the client of r, over HTTP/2, to make its next requests over another connection.
	// Requests and responses on this connection go on. Call it before w's header is written.
	GoAway(w http.ResponseWriter, r *http.Request)

	// CanDetachConnection says whether DetachConnection works for the response to r.
	CanDetachConnection(r *http.Request) bool
	// DetachConnection detaches a response over HTTP/1.1, of which the header and nothing else was
	// written, together with its connection. The header must say "Connection: close".
	DetachConnection(w http.ResponseWriter, r *http.Request) (Response, error)
	// DetachStream detaches a response over HTTP/2 that has begun. w must be the library's own.
	// It returns nil if the handler has to write the rest itself.
	DetachStream(w http.ResponseWriter, r *http.Request) Response
}

// Response is the rest of a detached response. All methods but Task and Start are for turns of its
// task. The turn that calls Finish must be the last one.
type Response interface {
	// Task makes the task that writes the response.
	Task(turn func() time.Duration) taskpool.Task
	// Start begins the detached response: from now on the task is woken when there is room to write
	// that there was not before, and hungUp is called when the client has hung up. hungUp must not
	// block. Start fails with net.ErrClosed if the client has hung up or Finish was called before.
	// Over HTTP/2 the handler must not write any more.
	Start(task *taskpool.Task, hungUp func()) error

	// Chunked says whether the caller has to frame what it writes as chunks (RFC 9112, 7.1).
	Chunked() bool
	// Room returns how many bytes can be written now. If 0, the task is woken when there is room.
	Room() int
	// Begin begins the writes of a turn; buffer is room for them. End ends them, and hands the
	// buffer back, which may have grown. sent says whether anything was written.
	Begin(buffer []byte)
	Write(p []byte) (int, error)
	End(buffer *[]byte) (sent bool, err error)
	// SetWriteDeadline sets until when the client may take what is written next. Over HTTP/2 it
	// does nothing: other responses share the connection.
	SetWriteDeadline(until time.Time)
	// Finish ends the response: as HTTP wants it, or broken off, so that the client notices. It
	// calls done when nothing of the response runs any more, which may be later.
	Finish(brokenOff bool, done func())
}

// Config is what a Transport is made of. All fields are required.
type Config struct {
	// Pool runs the tasks of Responses.
	Pool *taskpool.Pool
	// WriteTimeout is how long an HTTP/2 client may take to receive what was written in a turn.
	WriteTimeout time.Duration
	// HandshakeGrace is how long a TLS handshake may still take after the listener was closed.
	HandshakeGrace time.Duration
	Logger         *slog.Logger
}

// New makes a transport. Instead of a Fast one it makes a Plain one if a library does not have the
// expected layout, and logs that.
func New(kind Kind, c Config) (Transport, error) { return choose(kind, c, knownLayout) }

func choose(kind Kind, c Config, knownLayout func() error) (Transport, error) {
	switch kind {
	case Fast, "":
		if err := knownLayout(); err != nil {
			c.Logger.Warn("serving with the plain transport: the fast one does not know this "+
				"version of a library", "err", err)
			return plain{}, nil
		}
		return newFast(c), nil
	case Plain:
		return plain{}, nil
	}
	return nil, fmt.Errorf("transport %q: must be %q or %q", kind, Fast, Plain)
}

// knownLayout returns an error if a private field that the Fast transport needs is not there.
var knownLayout = sync.OnceValue(func() error {
	return errors.Join(socket.CheckLayout(), h2.CheckLayout())
})
