package watch

import (
	"errors"
	"math"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/knarr-project/knarr/internal/apiserver/taskpool"
	"github.com/knarr-project/knarr/internal/apiserver/telemetry"
	"github.com/knarr-project/knarr/internal/apiserver/transport"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/cache"
)

// stream is a watch without a goroutine: a task that the pool runs when there are events. It
// has its own connection (HTTP/1.1) or a stream of one (HTTP/2).
//
// It begins with the current objects, continues with its own cursor until it has caught up, and
// then joins the hub of all watches with the same interest. If it cannot keep up with the hub, it
// returns to a cursor of its own.
type stream struct {
	server  *Server
	task    taskpool.Task
	out     transport.Response
	watcher *Watcher
	format  wire.Format
	enc     *eventEncoder  // nil while a hub makes the frames
	pending []cache.Change // changes of cursor that did not fit
	member  member
	pace    taskpool.Paced

	end        time.Time
	lastWrite  time.Time // time of the last write
	timer      *time.Timer
	timerFired atomic.Bool // the timer has fired

	clientGone atomic.Bool // the client has gone
	onEnd      func()
}

// streams are all open streams. The zero value is ready.
type streams struct {
	mu     sync.Mutex
	open   map[*stream]struct{}
	closed bool
}

// add returns false if the server is closing, or lost the newest state since the watch began: Ends
// did not see the stream then. all counts the streams that the server has to wait for.
func (ss *streams) add(s *stream, lost *atomic.Bool, all *sync.WaitGroup) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.closed || lost.Load() {
		return false
	}
	all.Add(1)
	if ss.open == nil {
		ss.open = map[*stream]struct{}{}
	}
	ss.open[s] = struct{}{}
	return true
}

func (ss *streams) remove(s *stream) (known bool) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	_, known = ss.open[s]
	delete(ss.open, s)
	return known
}

// CloseToNew accepts no more streams, and returns functions that end the open ones.
func (ss *streams) CloseToNew() []func() {
	ss.mu.Lock()
	ss.closed = true
	ss.mu.Unlock()
	return ss.Ends()
}

// Ends returns functions that end the open streams.
func (ss *streams) Ends() (ends []func()) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for s := range ss.open {
		ends = append(ends, func() {
			ss.mu.Lock()
			defer ss.mu.Unlock()
			if _, open := ss.open[s]; open {
				s.stop()
			}
		})
	}
	return ends
}

// Close ends all streams.
func (ss *streams) Close() {
	ss.mu.Lock()
	ss.closed = true
	for s := range ss.open {
		s.stop()
	}
	ss.mu.Unlock()
}

// canDetach reports whether a watch can be a stream. A custom resource may need a webhook call for
// each object, which would block a worker.
func (s *Server) canDetach(r *http.Request, wt *Watcher) bool {
	return wt.op.Endpoint.Custom == nil && s.Transport.CanDetachConnection(r)
}

// detachConnection takes a watch, whose response has begun, out of its request, with its
// connection, audit record and metrics.
func (s *Server) detachConnection(w *telemetry.ResponseRecorder, r *http.Request, f wire.Format, wt *Watcher) error {
	out, err := s.Transport.DetachConnection(w, r)
	if err != nil {
		return err
	}
	st := s.newStream(w, f, wt, out, time.Now().Add(wt.duration()))
	// The client must read each turn of the initial objects within RequestTimeout, because the
	// watch holds seats until then. For the rest it has until the watch ends.
	st.extendDeadline()
	seats := wt.OnInitialSent
	wt.OnInitialSent = func() {
		out.SetWriteDeadline(st.end.Add(wire.CloseGrace(s.Timeout)))
		if seats != nil {
			seats()
		}
	}
	if !s.Streams.add(st, s.Lost, s.WaitGroup) {
		st.finish(errWatchOver)
		return nil
	}
	if err := out.Start(&st.task, st.stop); err != nil {
		if !errors.Is(err, net.ErrClosed) {
			s.Log.Warn("a watch cannot notice when its client hangs up, and ends", "resource", wt.op.Endpoint.GVR.String(), "err", err)
		}
		st.stop()
	}
	st.begin()
	return nil
}

// detachStream takes an HTTP/2 watch that has sent the initial objects and has caught up out of its
// request. Its handler then returns.
func (s *Server) detachStream(w *telemetry.ResponseRecorder, r *http.Request, f wire.Format, wt *Watcher, end time.Time) bool {
	if s.Leaving.Load() {
		return false
	}
	out := s.Transport.DetachStream(w.ResponseWriter, r)
	if out == nil {
		return false
	}
	st := s.newStream(w, f, wt, out, end)
	// No longer needed, and they hold the request.
	wt.OnInitialSent, wt.limitClient, wt.detach, wt.Bookmark = nil, nil, nil, false
	if !s.Streams.add(st, s.Lost, s.WaitGroup) || out.Start(&st.task, st.stop) != nil {
		st.stop()
		return true
	}
	st.begin()
	return true
}

// newStream creates the stream that remains after the watch's handler has returned.
func (s *Server) newStream(w *telemetry.ResponseRecorder, f wire.Format, wt *Watcher, out transport.Response, end time.Time) *stream {
	wt.op.Warn = nil // which holds the request
	enc := newEventEncoder(wt.op.Endpoint, f)
	st := &stream{server: s, out: out, watcher: wt, format: f, enc: &enc, lastWrite: time.Now(), end: end}
	record, ended := w.Audit, w.OnEnd
	w.Detached = true
	st.onEnd = func() {
		record.Stage(auditv1.StageResponseComplete, http.StatusOK)
		ended()
	}
	st.task = out.Task(st.turn)
	st.member.task = &st.task
	// The method begin sets the time: once added, the stream may have turns and may end.
	st.timer = time.AfterFunc(math.MaxInt64, func() {
		st.timerFired.Store(true)
		st.wake()
	})
	return st
}

// begin gives the stream its first turn. It may have had others already.
func (st *stream) begin() {
	if st.watcher.Cursor != nil {
		st.watcher.Cursor.Notify(st.wake)
	}
	st.timer.Reset(time.Until(st.nextDue()))
	if st.clientGone.Load() {
		st.timer.Stop() // it may have finished already
	}
	st.wake()
}

// wake gives the stream a turn.
func (st *stream) wake() { st.server.Pool.Wake(&st.task) }

// stop ends the stream.
func (st *stream) stop() {
	st.clientGone.Store(true)
	st.wake()
}

// nextDue returns when something is due without an event: a bookmark or the end.
func (st *stream) nextDue() time.Time {
	if !st.watcher.req.Opts.AllowWatchBookmarks {
		return st.end
	}
	due := st.lastWrite.Add(bookmarkEvery)
	if last := st.end.Add(-bookmarkBeforeEnd); due.After(last) && last.After(st.lastWrite) {
		due = last
	}
	if due.After(st.end) {
		due = st.end
	}
	return due
}

// errWatchOver is the normal end of a watch.
var errWatchOver = errors.New("the watch is over")

// errClientNotReading means that the client has not read what it was sent.
var errClientNotReading = errors.New("the client does not read")

// errPanic means that our code panicked, perhaps on a particular object.
var errPanic = errors.New("panic, see the log")

// turn sends what is due. It recovers panics, which nothing else does here: they would end the
// process.
func (st *stream) turn() (rest time.Duration) {
	defer func() {
		if v := recover(); v != nil {
			st.watcher.op.Endpoint.LogPanic("panic while watching", v)
			st.finish(errPanic)
			rest = taskpool.Ended
		}
	}()
	return st.serve()
}

func (st *stream) serve() time.Duration {
	if st.clientGone.Load() {
		st.finish(errWatchOver)
		return taskpool.Ended
	}
	room := min(st.out.Room(), turnBytes)
	if room == 0 {
		return st.waitForRoom()
	}
	// Not returned to the pool after a panic: the connection may still write into it.
	b := streamBuffers.Get().(*streamBuffer)
	st.out.Begin(b.out)
	b.frames, b.room = b.frames[:0], room
	more, err := st.fill(b)
	if err == nil || errors.Is(err, errWatchOver) {
		err = errors.Join(err, st.send(b))
	}
	if st.watcher.OnInitialSent != nil { // the socket has taken the earlier writes
		st.extendDeadline()
	}
	sent, failed := st.out.End(&b.out)
	streamBuffers.Put(b)
	if err = errors.Join(err, failed); err != nil {
		st.finish(err)
		return taskpool.Ended
	}
	if sent {
		st.lastWrite = time.Now()
	}
	switch {
	case more:
		return taskpool.Again
	case sent:
		return st.server.Pace.Wrote(&st.pace)
	}
	return taskpool.Idle
}

// waitForRoom is a turn in which nothing can be written. A client that reads nothing keeps its
// watch until its end, and a little longer for the final bytes.
func (st *stream) waitForRoom() time.Duration {
	last := time.Until(st.end.Add(wire.CloseGrace(st.server.Timeout)))
	if last <= 0 {
		st.finish(errClientNotReading)
		return taskpool.Ended
	}
	if st.timerFired.Load() {
		st.timer.Reset(last)
	}
	return taskpool.Idle // woken when there is room
}

// extendDeadline gives the client RequestTimeout for the next writes: a client that reads slowly
// still gets everything.
func (st *stream) extendDeadline() {
	st.out.SetWriteDeadline(time.Now().Add(st.server.Timeout))
}

// streamBuffer is the memory of a turn.
type streamBuffer struct {
	frames, out []byte
	room        int // upper limit of the bytes to send, except for the last event
}

var streamBuffers = sync.Pool{New: func() any { return &streamBuffer{} }}

// finish closes everything. Only after errWatchOver is the HTTP response ended properly.
func (st *stream) finish(cause error) {
	known := st.server.Streams.remove(st)
	if cause != nil && !errors.Is(cause, errWatchOver) {
		st.server.Log.Debug("a watch ended early", "resource", st.watcher.op.Endpoint.GVR.String(), "err", cause)
	}
	st.timer.Stop()
	if st.member.hub != nil {
		st.member.leave()
	}
	if st.watcher.Cursor != nil {
		st.watcher.Cursor.Close()
	}
	if st.watcher.OnInitialSent != nil {
		st.watcher.OnInitialSent()
	}
	st.onEnd()
	st.out.Finish(cause != nil && !errors.Is(cause, errWatchOver), func() {
		if known {
			st.server.WaitGroup.Done()
		}
	})
}
