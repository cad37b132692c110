package watch

import (
	"bufio"
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/telemetry"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

// frames writes watch events as a stream of JSON documents or of length-delimited protobuf
// messages.
type frames struct {
	eventEncoder
	out       http.ResponseWriter
	flushHTTP func() error
	// w exists from the first event to the next flush, because most watches are idle most of the
	// time.
	w *bufio.Writer
	// extendDeadline, if set, extends the client's deadline for the next piece, of about turnBytes;
	// left is the rest of the current piece.
	extendDeadline func()
	pieceLeft      int
}

// frameBuffers are for watches that are sending.
var frameBuffers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 32*1024) }}

// newFrames returns a sink that writes events to w.
func newFrames(e *registry.Endpoint, f wire.Format, w http.ResponseWriter) *frames {
	return &frames{eventEncoder: newEventEncoder(e, f), out: w, flushHTTP: http.NewResponseController(w).Flush}
}

func (fr *frames) flush() error {
	if fr.w != nil {
		err := fr.w.Flush()
		fr.w.Reset(nil)
		frameBuffers.Put(fr.w)
		fr.w = nil
		if err != nil {
			return err
		}
	}
	return fr.flushHTTP()
}

func (fr *frames) put(ev watchEvent) error {
	frame, err := fr.frame(ev)
	if err != nil {
		return err
	}
	fr.Endpoint.Watched.Sent(len(frame))
	return fr.putFrames(frame)
}

func (fr *frames) encoder() *eventEncoder { return &fr.eventEncoder }

func (fr *frames) putFrames(frames []byte) error {
	// The client has taken the last piece, except for buffers.
	if fr.pieceLeft -= len(frames); fr.extendDeadline != nil && fr.pieceLeft < 0 {
		fr.extendDeadline()
		fr.pieceLeft = turnBytes
	}
	if fr.w == nil {
		fr.w = frameBuffers.Get().(*bufio.Writer)
		fr.w.Reset(fr.out)
	}
	_, err := fr.w.Write(frames)
	return err
}

// Serve answers a watch request over plain HTTP.
func (s *Server) Serve(ctx context.Context, w *telemetry.ResponseRecorder, r *http.Request, f wire.Format, wt *Watcher) {
	w.Header().Set("Content-Type", f.ContentType())
	w.Header().Set("Transfer-Encoding", "chunked")
	if r.ProtoMajor == 1 {
		// A detached watch owns its connection. The end of any other watch ends reading from the
		// client, by which net/http cancels the context of all later requests on the connection.
		w.Header().Set("Connection", "close")
	}
	if s.canDetach(r, wt) {
		w.WriteHeader(http.StatusOK)
		if err := s.detachConnection(w, r, f, wt); err != nil {
			s.Log.Debug("a watch did not begin", "resource", wt.op.Endpoint.GVR.String(), "err", err)
		}
		return
	}
	w.WriteHeader(http.StatusOK)
	fr := newFrames(wt.op.Endpoint, f, w)
	if err := fr.flush(); err != nil {
		return
	}
	// As in streams, the client must read each piece of the initial objects within RequestTimeout,
	// because the watch holds seats until then.
	rc := http.NewResponseController(w)
	fr.extendDeadline = func() { _ = rc.SetWriteDeadline(time.Now().Add(s.Timeout)) }
	fr.extendDeadline()
	seats := wt.OnInitialSent
	wt.OnInitialSent = func() {
		fr.extendDeadline = nil
		_ = rc.SetWriteDeadline(time.Time{})
		if seats != nil {
			seats()
		}
	}
	wt.limitClient = func(ctx context.Context) func() {
		end, release := wire.SetDeadlines(w, s.Timeout)
		stop := context.AfterFunc(ctx, end)
		return func() {
			stop()
			release()
		}
	}
	wt.detach = func(end time.Time) bool { return s.detachStream(w, r, f, wt, end) }
	if err := wt.run(ctx, fr); err != nil {
		s.Log.Debug("a watch ended early", "resource", wt.op.Endpoint.GVR.String(), "err", err)
	}
}
