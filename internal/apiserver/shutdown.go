package apiserver

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

// shutDown ends the server without losing a request:
//
//  1. Report that the server is not ready, and leave the endpoints of the Service kubernetes, so
//     that clients and load balancers use other servers.
//  2. Accept no new connections, and end watches and streams; with ShutdownWatches, watches end
//     one after the other. Every answer is now the last on its connection. HTTP/2 clients get a
//     GOAWAY and repeat later requests elsewhere.
//  3. Close idle connections and wait for requests in progress.
//
// With ShutdownRetryAfter it accepts connections until the requests in progress are answered, and
// refuses new requests with Retry-After.
func (s *Server) shutDown(server *http.Server, listener net.Listener, connections *openConnections) {
	s.stopping.Store(true)
	s.living.leave(s.ctx)
	if s.cfg.ShutdownDelay > 0 {
		time.Sleep(s.cfg.ShutdownDelay)
	}
	s.leaving.Store(true)
	if !s.cfg.ShutdownRetryAfter {
		_ = listener.Close() // the HTTP server sees the error
	}
	if s.cfg.ShutdownWatches > 0 {
		s.endWatchesGradually(s.cfg.ShutdownWatches)
	}
	bounded, cancel := context.WithTimeout(context.Background(), s.cfg.ShutdownTimeout)
	defer cancel()
	s.endStreams()
	s.watches.Streams.Close()
	if s.cfg.ShutdownRetryAfter {
		waitForZero(bounded, &s.inProgress)
		_ = listener.Close()
	}
	connections.wait(bounded, s.cfg.ShutdownIdle)
	// Other errors only say that the listener is already closed.
	if err := server.Shutdown(bounded); err != nil && bounded.Err() != nil {
		s.log.Warn("requests are aborted: they did not end in time", "timeout", s.cfg.ShutdownTimeout)
		_ = server.Close()
	}
}

// maxWatchEndPause is the longest pause between the ends of two watches: as upstream, at least 200
// end per second.
const maxWatchEndPause = 5 * time.Millisecond

// endWatchesGradually ends watches spread over a time, so that their clients do not all reconnect
// to other servers at once. Watches that begin meanwhile end at once, or with the last.
func (s *Server) endWatchesGradually(over time.Duration) {
	end(append(s.watches.Streams.CloseToNew(), s.handled.all()...), over)
}

// end calls functions that end watches, spread over a time.
func end(ends []func(), over time.Duration) {
	if len(ends) == 0 {
		return
	}
	pause := time.NewTicker(max(min(over/time.Duration(len(ends)), maxWatchEndPause), time.Microsecond))
	defer pause.Stop()
	for i, end := range ends {
		if i > 0 {
			<-pause.C
		}
		end()
	}
}

// watchCancels are the cancel functions of watches that a handler serves. They are recorded with
// ShutdownWatches, and if there may be other servers.
type watchCancels struct {
	mu   sync.Mutex
	ends map[*context.CancelFunc]struct{}
}

// add adds a watch; gone must be called when it has ended.
func (h *watchCancels) add(end context.CancelFunc) (gone func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ends == nil {
		h.ends = map[*context.CancelFunc]struct{}{}
	}
	h.ends[&end] = struct{}{}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.ends, &end)
	}
}

func (h *watchCancels) all() (ends []func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for end := range h.ends {
		ends = append(ends, *end)
	}
	return ends
}

// openConnections counts the HTTP server's connections. The zero value is ready.
type openConnections struct{ n atomic.Int64 }

// changed is for http.Server.ConnState.
func (c *openConnections) changed(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		c.n.Add(1)
	case http.StateClosed, http.StateHijacked:
		c.n.Add(-1)
	}
}

// wait waits until there are no connections, at most for the given time.
func (c *openConnections) wait(ctx context.Context, most time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	waitForZero(ctx, &c.n)
}

// waitForZero waits until n is 0, or ctx ends.
func waitForZero(ctx context.Context, n *atomic.Int64) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for n.Load() > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// shuttingDownMessage is upstream's answer to requests that arrive during shutdown.
const shuttingDownMessage = "The apiserver is shutting down, please try again later."

// acceptRequest accepts a request, or answers it with Retry-After if the server accepts no more.
// The shutdown waits until done is called, except for long-running requests.
func (c *chain) acceptRequest(w http.ResponseWriter, r *http.Request, info *wire.RequestInfo) (done func(), ok bool) {
	// Count before reading leaving: a shutdown that sets it later then waits for this request.
	c.inProgress.Add(1)
	done = func() { c.inProgress.Add(-1) }
	if !c.leaving.Load() || exemptFromShutdown(r) {
		if info.LongRunning() {
			done()
			done = func() {}
		}
		return done, true
	}
	done()
	w.Header().Set("Audit-Id", auditID(r))
	w.Header().Set("Retry-After", "5")
	w.Header().Set("Connection", "close") // the HTTP/2 library turns it into a GOAWAY
	http.Error(w, shuttingDownMessage, http.StatusTooManyRequests)
	return nil, false
}

// servedDuringShutdown are the path prefixes of health checks and metrics.
var servedDuringShutdown = []string{"/healthz", "/livez", "/readyz", "/metrics"}

// exemptFromShutdown reports whether a request is served until the end, as upstream: health checks,
// metrics, and other API servers.
func exemptFromShutdown(r *http.Request) bool {
	return strings.HasPrefix(r.UserAgent(), "kube-apiserver/") || slices.ContainsFunc(servedDuringShutdown, func(path string) bool { return strings.HasPrefix(r.URL.Path, path) })
}
