package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// bound sets the end of a request: limit or, for a long-running request, the end of the server's
// streams.
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
	end, release := breakOff(w, s.cfg.RequestTimeout)
	timer := time.AfterFunc(limit, func() {
		<-ctx.Done() // at the same time; the reader of a body must find the context's error
		end()
	})
	return ctx, func() {
		timer.Stop()
		release()
		cancel()
	}
}

// timeoutOf returns the timeout that the client requests, limited to most. Long-running
// requests ignore it.
func timeoutOf(info *requestInfo, most time.Duration) (time.Duration, *apierrors.StatusError) {
	text := info.query.Get("timeout")
	if text == "" || info.longRunning() {
		return most, nil
	}
	asked, err := time.ParseDuration(text)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("invalid timeout specified in the request URL - %v", err))
	}
	if asked > 0 && asked < most {
		return asked, nil
	}
	return most, nil
}

// giveUpBody limits the wait for the rest of a body that is no longer needed: over HTTP/1, net/http
// reads some of it before it sends an early answer.
func giveUpBody(w http.ResponseWriter, r *http.Request, timeout time.Duration) {
	if r.ProtoMajor == 1 && r.ContentLength != 0 {
		// The next request sets its own deadline.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(lastWords(timeout)))
	}
}

// lastWords is how long a client may take for the remaining bytes when its request is over: 5 s of
// a minute, at least a second.
func lastWords(timeout time.Duration) time.Duration { return max(time.Second, timeout/12) }

// breakOff prepares the end of a request. end stops reading from the client at once, and writing a
// little later, so that a slow client does not hold the request's seats, memory and goroutine any
// longer. release is called after the response; then end does nothing.
func breakOff(w http.ResponseWriter, timeout time.Duration) (end, release func()) {
	var mu sync.Mutex // guards the following variables; held while deadlines are set
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
		_ = rc.SetWriteDeadline(time.Now().Add(lastWords(timeout)))
	}
	release = func() {
		mu.Lock()
		defer mu.Unlock()
		answered = true
		if !late {
			return
		}
		// The connection may carry other requests. The rest of this response keeps its deadline.
		rc := http.NewResponseController(w)
		_ = rc.Flush()
		_ = rc.SetReadDeadline(time.Time{})
		_ = rc.SetWriteDeadline(time.Time{})
	}
	return end, release
}
