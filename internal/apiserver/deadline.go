package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

// withDeadline sets the end of a request: limit or, for a long-running request, the end of the
// server's streams.
func (s *Server) withDeadline(ctx context.Context, w http.ResponseWriter, info *wire.RequestInfo, limit time.Duration) (context.Context, context.CancelFunc) {
	if info.LongRunning() {
		ctx, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(s.streaming, cancel)
		gone := func() {}
		if info.Verb == "watch" && (s.cfg.ShutdownWatches > 0 || !s.cfg.Alone()) {
			gone = s.handled.add(cancel)
		}
		return ctx, func() { gone(); stop(); cancel() }
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	end, release := wire.SetDeadlines(w, s.cfg.RequestTimeout)
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
func timeoutOf(r *http.Request, info *wire.RequestInfo, most time.Duration) (time.Duration, *apierrors.StatusError) {
	query := info.Query
	if !info.IsResource && r.URL.RawQuery != "" {
		query = r.URL.Query()
	}
	text := query.Get("timeout")
	if text == "" || info.LongRunning() {
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

// limitBodyDrain limits the wait for the rest of a body that is no longer needed: over HTTP/1,
// net/http reads some of it before it sends an early answer.
func limitBodyDrain(w http.ResponseWriter, r *http.Request, timeout time.Duration) {
	if r.ProtoMajor == 1 && r.ContentLength != 0 {
		// The next request sets its own deadline.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(wire.CloseGrace(timeout)))
	}
}
