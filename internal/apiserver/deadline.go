package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// bound gives a request its end: a deadline or, where it lives as long as its ends want, that of the server.
func (s *Server) bound(ctx context.Context, w http.ResponseWriter, info *requestInfo) (context.Context, context.CancelFunc, error) {
	if info.longRunning() {
		ctx, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(s.ctx, cancel)
		return ctx, func() { stop(); cancel() }, nil
	}
	limit, err := s.timeout(info)
	if err != nil {
		return ctx, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	release := s.breakOffAfter(ctx, w)
	return ctx, func() { release(); cancel() }, nil
}

// timeout is what the client asks for, but not more than the server allows.
func (s *Server) timeout(info *requestInfo) (time.Duration, error) {
	text := info.query.Get("timeout")
	if text == "" {
		return s.cfg.RequestTimeout, nil
	}
	asked, err := time.ParseDuration(text)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("invalid timeout specified in the request URL - %v", err))
	}
	if asked > 0 && asked < s.cfg.RequestTimeout {
		return asked, nil
	}
	return s.cfg.RequestTimeout, nil
}

// giveUpBody bounds the wait for what is left of a body that nobody wants any more: over HTTP/1, net/http reads some of it before it sends
// an answer that came early.
func (s *Server) giveUpBody(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 && r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.lastWords())) // the next request has its own
	}
}

// lastWords is how long a client may take over what is left when its request is over: 5 s of a minute, a second at least.
func (s *Server) lastWords() time.Duration { return max(time.Second, s.cfg.RequestTimeout/12) }

// breakOffAfter ends reading from the client when ctx ends, and writing to it a little later: who sends or reads slowly does not hold
// the request's seats, memory and goroutine for longer than its time. release is called when the answer has been given.
func (s *Server) breakOffAfter(ctx context.Context, w http.ResponseWriter) (release func()) {
	rc, done := http.NewResponseController(w), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		_ = rc.SetReadDeadline(time.Now())
		_ = rc.SetWriteDeadline(time.Now().Add(s.lastWords()))
	})
	return func() {
		if stop() {
			return
		}
		<-done
		// The connection may carry other requests; what is left of this one's answer is still under its deadline.
		_ = rc.Flush()
		_ = rc.SetReadDeadline(time.Time{})
		_ = rc.SetWriteDeadline(time.Time{})
	}
}
