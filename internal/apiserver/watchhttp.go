package apiserver

import (
	"bufio"
	"context"
	"net/http"
	"sync"
	"time"
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
	// patience, if set, extends the client's deadline for the next piece, of about turnBytes; left
	// is the rest of the current piece.
	patience func()
	left     int
}

// frameBuffers are for watches that are sending.
var frameBuffers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 32*1024) }}

func newFrames(e *endpoint, f format, w http.ResponseWriter) *frames {
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
	fr.e.watched.sent(len(frame))
	return fr.putFrames(frame)
}

func (fr *frames) encoder() *eventEncoder { return &fr.eventEncoder }

func (fr *frames) putFrames(frames []byte) error {
	// The client has taken the last piece, except for buffers.
	if fr.left -= len(frames); fr.patience != nil && fr.left < 0 {
		fr.patience()
		fr.left = turnBytes
	}
	if fr.w == nil {
		fr.w = frameBuffers.Get().(*bufio.Writer)
		fr.w.Reset(fr.out)
	}
	_, err := fr.w.Write(frames)
	return err
}

// serve answers a watch request over plain HTTP.
func (s *watches) serve(ctx context.Context, w *codeWriter, r *http.Request, f format, wt *watcher) {
	w.Header().Set("Content-Type", f.contentType())
	w.Header().Set("Transfer-Encoding", "chunked")
	if r.ProtoMajor == 1 {
		// A detached watch owns its connection. The end of any other watch ends reading from the
		// client, by which net/http cancels the context of all later requests on the connection.
		w.Header().Set("Connection", "close")
	}
	if s.streamable(r, wt) {
		w.WriteHeader(http.StatusOK)
		if err := s.stream(w, r, f, wt); err != nil {
			s.log.Debug("a watch did not begin", "resource", wt.op.endpoint.gvr.String(), "err", err)
		}
		return
	}
	w.WriteHeader(http.StatusOK)
	fr := newFrames(wt.op.endpoint, f, w)
	if err := fr.flush(); err != nil {
		return
	}
	// As in streams, the client must read each piece of the initial objects within RequestTimeout,
	// because the watch holds seats until then.
	rc := http.NewResponseController(w)
	fr.patience = func() { _ = rc.SetWriteDeadline(time.Now().Add(s.timeout)) }
	fr.patience()
	seats := wt.begun
	wt.begun = func() {
		fr.patience = nil
		_ = rc.SetWriteDeadline(time.Time{})
		if seats != nil {
			seats()
		}
	}
	wt.bound = func(ctx context.Context) func() {
		end, release := breakOff(w, s.timeout)
		stop := context.AfterFunc(ctx, end)
		return func() {
			stop()
			release()
		}
	}
	wt.settle = func(end time.Time) bool { return s.settle(w, r, f, wt, end) }
	if err := wt.run(ctx, fr); err != nil {
		s.log.Debug("a watch ended early", "resource", wt.op.endpoint.gvr.String(), "err", err)
	}
}
