package apiserver

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// takeLeave ends the server without losing a request. First it says that it is not ready any more, so that whoever spreads requests goes elsewhere. Then it
// takes no new connections and ends watches and streams; every answer from now on is its connection's last (HTTP/2 is told to go away, and what comes after that is for the
// client to send again, elsewhere). A connection on which nothing comes for a while is closed, and requests come to their end.
func (s *Server) takeLeave(server *http.Server, listener net.Listener, connections *openConnections) {
	s.stopping.Store(true)
	if s.cfg.ShutdownDelay > 0 {
		time.Sleep(s.cfg.ShutdownDelay)
	}
	bounded, cancel := context.WithTimeout(context.Background(), s.cfg.ShutdownTimeout)
	defer cancel()
	s.leaving.Store(true)
	_ = listener.Close() // the HTTP server sees the error
	s.endStreams()
	s.streams.close()
	connections.wait(bounded, s.cfg.ShutdownIdle)
	if err := server.Shutdown(bounded); err != nil {
		s.log.Warn("requests are broken off: they did not end in time", "timeout", s.cfg.ShutdownTimeout)
		_ = server.Close()
	}
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
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for c.n.Load() > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
