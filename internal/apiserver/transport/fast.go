package transport

import (
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"

	"github.com/knarr-project/knarr/internal/apiserver/h2"
	"github.com/knarr-project/knarr/internal/apiserver/handshake"
	"github.com/knarr-project/knarr/internal/apiserver/socket"
	"github.com/knarr-project/knarr/internal/apiserver/taskpool"
)

// fast detaches the responses of watches from their handlers.
type fast struct {
	Config
	lanes   *taskpool.Lanes
	hangups *socket.HangupWatcher // nil before Prepare
	close   sync.Once             // of hangups
	wg      sync.WaitGroup        // the watcher's goroutine
}

func newFast(c Config) *fast { return &fast{Config: c, lanes: taskpool.NewLanes()} }

// Prepare implements Transport.
func (f *fast) Prepare(server *http.Server, listener net.Listener) (net.Listener, error) {
	secure := server.TLSConfig != nil // h2.Configure sets it
	server.ConnContext = socket.Context
	if err := h2.Configure(server, f.Pool, f.WriteTimeout); err != nil {
		return nil, err
	}
	if err := f.watchHangups(); err != nil {
		return nil, err
	}
	listener = socket.Listen(listener)
	if !secure {
		return listener, nil
	}
	return handshake.Listen(listener, handshake.Config{
		TLS: server.TLSConfig, Timeout: server.ReadHeaderTimeout, Grace: f.HandshakeGrace,
		OnPanic: func(v any) { logPanic(f.Logger, v) },
	}), nil
}

func logPanic(log *slog.Logger, v any) {
	log.Error("panic in a TLS handshake", "panic", v, "stack", string(debug.Stack()))
}

func (f *fast) watchHangups() (err error) {
	if f.hangups, err = socket.NewHangupWatcher(); err != nil {
		return err
	}
	f.wg.Go(func() {
		if err := f.hangups.Run(); err != nil {
			f.Logger.Error("watches over HTTP/1.1 do not notice when clients hang up", "err", err)
		}
	})
	return nil
}

// Close implements Transport.
func (f *fast) Close() error {
	if f.hangups == nil {
		return nil
	}
	var err error
	f.close.Do(func() { err = f.hangups.Close() })
	f.wg.Wait()
	return err
}

// Lanes implements Transport.
func (f *fast) Lanes() *taskpool.Lanes { return f.lanes }

// GoAway implements Transport.
func (*fast) GoAway(_ http.ResponseWriter, r *http.Request) { h2.GoAway(r.Context()) }

// CanDetachConnection implements Transport.
func (f *fast) CanDetachConnection(r *http.Request) bool {
	return r.ProtoMajor == 1 && r.ProtoMinor == 1 && socket.From(r.Context()) != nil
}

// DetachConnection implements Transport.
func (f *fast) DetachConnection(w http.ResponseWriter, r *http.Request) (Response, error) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	socket.ForgetHandshake(conn)
	return &connection{
		conn: conn, socket: socket.From(r.Context()), pool: f.Pool, hangups: f.hangups,
	}, nil
}

// DetachStream implements Transport.
func (*fast) DetachStream(w http.ResponseWriter, r *http.Request) Response {
	detachable := h2.StreamOf(r.Context(), w)
	if detachable == nil {
		return nil
	}
	return &stream{stream: detachable}
}
