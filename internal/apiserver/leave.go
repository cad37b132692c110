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
)

// takeLeave ends the server without losing a request. First it says that it is not ready any more, so that whoever spreads requests goes elsewhere. Then it
// takes no new connections and ends watches (one after the other, where ShutdownWatches is set) and streams; every answer from now on is its connection's last (HTTP/2 is told to go away, and what comes after that is for the
// client to send again, elsewhere). A connection on which nothing comes for a while is closed, and requests come to their end. With ShutdownRetryAfter it goes on to take
// connections until the requests that it had are answered, and tells those who come meanwhile to come again.
func (s *Server) takeLeave(server *http.Server, listener net.Listener, connections *openConnections) {
	s.stopping.Store(true)
	if s.cfg.ShutdownDelay > 0 {
		time.Sleep(s.cfg.ShutdownDelay)
	}
	s.leaving.Store(true)
	if !s.cfg.ShutdownRetryAfter {
		_ = listener.Close() // the HTTP server sees the error
	}
	if s.cfg.ShutdownWatches > 0 {
		s.endWatches(s.cfg.ShutdownWatches)
	}
	bounded, cancel := context.WithTimeout(context.Background(), s.cfg.ShutdownTimeout)
	defer cancel()
	s.endStreams()
	s.streams.close()
	if s.cfg.ShutdownRetryAfter {
		waitForNone(bounded, &s.underWay)
		_ = listener.Close()
	}
	connections.wait(bounded, s.cfg.ShutdownIdle)
	// Its other errors are of closing a listener that is closed already.
	if err := server.Shutdown(bounded); err != nil && bounded.Err() != nil {
		s.log.Warn("requests are broken off: they did not end in time", "timeout", s.cfg.ShutdownTimeout)
		_ = server.Close()
	}
}

// mostPause is between the ends of two watches: 200 of them end in a second at least, as with upstream.
const mostPause = 5 * time.Millisecond

// endWatches ends watches over a time, so that their clients do not all come to other servers at once. Those that begin meanwhile end at once, or with the last.
func (s *Server) endWatches(over time.Duration) {
	ends := append(s.streams.leave(), s.handled.all()...)
	if len(ends) == 0 {
		return
	}
	pause := time.NewTicker(max(min(over/time.Duration(len(ends)), mostPause), time.Microsecond))
	defer pause.Stop()
	for i, end := range ends {
		if i > 0 {
			<-pause.C
		}
		end()
	}
}

// handledWatches are the ends of watches that a handler serves; only where they are to end one after the other.
type handledWatches struct {
	mu   sync.Mutex
	ends map[*context.CancelFunc]struct{}
}

// add is for one that begins; gone is to be called when it has ended.
func (h *handledWatches) add(end context.CancelFunc) (gone func()) {
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

func (h *handledWatches) all() (ends []func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for end := range h.ends {
		ends = append(ends, *end)
	}
	return ends
}

// openConnections counts those that the HTTP server has. The zero value is ready.
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

// wait waits until there are none, for a while at most.
func (c *openConnections) wait(ctx context.Context, most time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	waitForNone(ctx, &c.n)
}

// waitForNone waits until n is 0, or ctx ends.
func waitForNone(ctx context.Context, n *atomic.Int64) {
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

// turnedAway is what those are told who come too late, in upstream's words.
const turnedAway = "The apiserver is shutting down, please try again later."

// takeIn lets a request in, or tells its client to come again if the server takes no more. A request that is let in is waited for, unless it lives long.
func (s *Server) takeIn(w http.ResponseWriter, r *http.Request, info *requestInfo) (done func(), ok bool) {
	s.underWay.Add(1) // before looking, so that whoever sees the flag set later waits for it
	done = func() { s.underWay.Add(-1) }
	if !s.leaving.Load() || neverTurnedAway(r) {
		if info.longRunning() {
			done()
			done = func() {}
		}
		return done, true
	}
	done()
	w.Header().Set("Audit-Id", auditID(r))
	w.Header().Set("Retry-After", "5")
	w.Header().Set("Connection", "close") // over HTTP/2 the library makes a GOAWAY of it
	http.Error(w, turnedAway, http.StatusTooManyRequests)
	return nil, false
}

// stillServed are the beginnings of paths that tell whoever watches over the server how it is.
var stillServed = []string{"/healthz", "/livez", "/readyz", "/metrics"}

// neverTurnedAway are requests that are served to the end, as upstream has it: of those that look at the server, and of other API servers.
func neverTurnedAway(r *http.Request) bool {
	return strings.HasPrefix(r.UserAgent(), "kube-apiserver/") || slices.ContainsFunc(stillServed, func(path string) bool { return strings.HasPrefix(r.URL.Path, path) })
}
