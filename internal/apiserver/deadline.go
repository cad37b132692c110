package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// bound gives a request its end: its limit or, where it lives as long as its ends want, that of the server.
func (s *Server) bound(ctx context.Context, w http.ResponseWriter, info *requestInfo, limit time.Duration) (context.Context, context.CancelFunc) {
	if info.longRunning() {
		ctx, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(s.streaming, cancel)
		gone := func() {}
		if s.cfg.ShutdownWatches > 0 && info.verb == "watch" {
			gone = s.handled.add(cancel)
		}
		return ctx, func() { gone(); stop(); cancel() }
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	end, release := s.breakOff(w)
	timer := time.AfterFunc(limit, func() {
		<-ctx.Done() // at the same time; but whose reading ends is to find out why
		end()
	})
	return ctx, func() {
		timer.Stop()
		release()
		cancel()
	}
}

// timeout is what the client asks for, but not more than the server allows; of requests that live long it is not asked.
func (s *Server) timeout(info *requestInfo) (time.Duration, *apierrors.StatusError) {
	text := info.query.Get("timeout")
	if text == "" || info.longRunning() {
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

// breakOff prepares the end of a request's time: end stops reading from the client, and writing to it a little later, so that who sends or reads slowly
// does not hold the request's seats, memory and goroutine for longer than that. release is called when the answer has been given; from
// then on end does nothing.
func (s *Server) breakOff(w http.ResponseWriter) (end, release func()) {
	var mu sync.Mutex // guards what follows; held while deadlines are set
	var answered, late bool
	end = func() {
		mu.Lock()
		defer mu.Unlock()
		if answered {
			return
		}
		late = true
		rc := http.NewResponseController(w)
		_ = rc.SetReadDeadline(time.Now())
		_ = rc.SetWriteDeadline(time.Now().Add(s.lastWords()))
	}
	release = func() {
		mu.Lock()
		defer mu.Unlock()
		answered = true
		if !late {
			return
		}
		// The connection may carry other requests; what is left of this one's answer is still under its deadline.
		rc := http.NewResponseController(w)
		_ = rc.Flush()
		_ = rc.SetReadDeadline(time.Time{})
		_ = rc.SetWriteDeadline(time.Time{})
	}
	return end, release
}
