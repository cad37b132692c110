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

// WatchStream is a watch without a goroutine: a task that the pool runs when there are events. It
// has its own connection (HTTP/1.1) or a stream of one (HTTP/2).
//
// It begins with the current objects, continues with its own cursor until it has caught up, and
// then joins the hub of all watches with the same interest. If it cannot keep up with the hub, it
// returns to a cursor of its own.
type WatchStream struct {
	Server  *Server
	Task    taskpool.Task
	Out     transport.Response
	Watcher *Watcher
	Format  wire.Format
	Enc     *EventEncoder  // nil while a hub makes the frames
	pending []cache.Change // changes of cursor that did not fit
	Member  Member
	pace    taskpool.Paced

	End        time.Time
	lastWrite  time.Time // time of the last write
	Timer      *time.Timer
	timerFired atomic.Bool // the timer has fired

	clientGone atomic.Bool // the client has gone
	OnEnd      func()
}

// streams are all open streams. The zero value is ready.
type streams struct {
	Mu     sync.Mutex
	Open   map[*WatchStream]struct{}
	closed bool
}

// add returns false if the server is closing. all counts the streams that the server has to wait
// for.
func (ss *streams) add(s *WatchStream, all *sync.WaitGroup) bool {
	ss.Mu.Lock()
	defer ss.Mu.Unlock()
	if ss.closed {
		return false
	}
	all.Add(1)
	if ss.Open == nil {
		ss.Open = map[*WatchStream]struct{}{}
	}
	ss.Open[s] = struct{}{}
	return true
}

func (ss *streams) remove(s *WatchStream) (known bool) {
	ss.Mu.Lock()
	defer ss.Mu.Unlock()
	_, known = ss.Open[s]
	delete(ss.Open, s)
	return known
}

// CloseToNew accepts no more streams, and returns functions that end the open ones.
func (ss *streams) CloseToNew() (ends []func()) {
	ss.Mu.Lock()
	defer ss.Mu.Unlock()
	ss.closed = true
	for s := range ss.Open {
		ends = append(ends, func() {
			ss.Mu.Lock()
			defer ss.Mu.Unlock()
			if _, open := ss.Open[s]; open {
				s.Stop()
			}
		})
	}
	return ends
}

// Close ends all streams.
func (ss *streams) Close() {
	ss.Mu.Lock()
	ss.closed = true
	for s := range ss.Open {
		s.Stop()
	}
	ss.Mu.Unlock()
}

// canDetach reports whether a watch can be a stream. A custom resource may need a webhook call for
// each object, which would block a worker.
func (s *Server) canDetach(r *http.Request, wt *Watcher) bool {
	return wt.Op.Endpoint.Custom == nil && s.Transport.CanDetachConnection(r)
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
		out.SetWriteDeadline(st.End.Add(wire.CloseGrace(s.Timeout)))
		if seats != nil {
			seats()
		}
	}
	if !s.Streams.add(st, s.WaitGroup) {
		st.finish(errWatchOver)
		return nil
	}
	if err := out.Start(&st.Task, st.Stop); err != nil {
		if !errors.Is(err, net.ErrClosed) {
			s.Log.Warn("a watch cannot notice when its client hangs up, and ends", "resource", wt.Op.Endpoint.GVR.String(), "err", err)
		}
		st.Stop()
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
	if !s.Streams.add(st, s.WaitGroup) || out.Start(&st.Task, st.Stop) != nil {
		st.Stop()
		return true
	}
	st.begin()
	return true
}

// newStream creates the stream that remains after the watch's handler has returned.
func (s *Server) newStream(w *telemetry.ResponseRecorder, f wire.Format, wt *Watcher, out transport.Response, end time.Time) *WatchStream {
	wt.Op.Warn = nil // which holds the request
	enc := NewEventEncoder(wt.Op.Endpoint, f)
	st := &WatchStream{Server: s, Out: out, Watcher: wt, Format: f, Enc: &enc, lastWrite: time.Now(), End: end}
	record, ended := w.Audit, w.OnEnd
	w.Detached = true
	st.OnEnd = func() {
		record.Stage(auditv1.StageResponseComplete, http.StatusOK)
		ended()
	}
	st.Task = out.Task(st.Turn)
	st.Member.Task = &st.Task
	// The method begin sets the time: once added, the stream may have turns and may end.
	st.Timer = time.AfterFunc(math.MaxInt64, func() {
		st.timerFired.Store(true)
		st.Wake()
	})
	return st
}

// begin gives the stream its first turn. It may have had others already.
func (st *WatchStream) begin() {
	if st.Watcher.Cursor != nil {
		st.Watcher.Cursor.Notify(st.Wake)
	}
	st.Timer.Reset(time.Until(st.nextDue()))
	if st.clientGone.Load() {
		st.Timer.Stop() // it may have finished already
	}
	st.Wake()
}

// Wake gives the stream a turn.
func (st *WatchStream) Wake() { st.Server.Pool.Wake(&st.Task) }

// Stop ends the stream.
func (st *WatchStream) Stop() {
	st.clientGone.Store(true)
	st.Wake()
}

// nextDue returns when something is due without an event: a bookmark or the end.
func (st *WatchStream) nextDue() time.Time {
	if !st.Watcher.req.Opts.AllowWatchBookmarks {
		return st.End
	}
	due := st.lastWrite.Add(bookmarkEvery)
	if last := st.End.Add(-bookmarkBeforeEnd); due.After(last) && last.After(st.lastWrite) {
		due = last
	}
	if due.After(st.End) {
		due = st.End
	}
	return due
}

// errWatchOver is the normal end of a watch.
var errWatchOver = errors.New("the watch is over")

// errClientNotReading means that the client has not read what it was sent.
var errClientNotReading = errors.New("the client does not read")

// errPanic means that our code panicked, perhaps on a particular object.
var errPanic = errors.New("panic, see the log")

// Turn sends what is due. It recovers panics, which nothing else does here: they would end the
// process.
func (st *WatchStream) Turn() (rest time.Duration) {
	defer func() {
		if v := recover(); v != nil {
			st.Watcher.Op.Endpoint.LogPanic("panic while watching", v)
			st.finish(errPanic)
			rest = taskpool.Ended
		}
	}()
	return st.serve()
}

func (st *WatchStream) serve() time.Duration {
	if st.clientGone.Load() {
		st.finish(errWatchOver)
		return taskpool.Ended
	}
	room := min(st.Out.Room(), turnBytes)
	if room == 0 {
		return st.waitForRoom()
	}
	// Not returned to the pool after a panic: the connection may still write into it.
	b := streamBuffers.Get().(*streamBuffer)
	st.Out.Begin(b.out)
	b.frames, b.room = b.frames[:0], room
	more, err := st.fill(b)
	if err == nil || errors.Is(err, errWatchOver) {
		err = errors.Join(err, st.send(b))
	}
	if st.Watcher.OnInitialSent != nil { // the socket has taken the earlier writes
		st.extendDeadline()
	}
	sent, failed := st.Out.End(&b.out)
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
		return st.Server.Pace.Wrote(&st.pace)
	}
	return taskpool.Idle
}

// waitForRoom is a turn in which nothing can be written. A client that reads nothing keeps its
// watch until its end, and a little longer for the final bytes.
func (st *WatchStream) waitForRoom() time.Duration {
	last := time.Until(st.End.Add(wire.CloseGrace(st.Server.Timeout)))
	if last <= 0 {
		st.finish(errClientNotReading)
		return taskpool.Ended
	}
	if st.timerFired.Load() {
		st.Timer.Reset(last)
	}
	return taskpool.Idle // woken when there is room
}

// extendDeadline gives the client RequestTimeout for the next writes: a client that reads slowly
// still gets everything.
func (st *WatchStream) extendDeadline() {
	st.Out.SetWriteDeadline(time.Now().Add(st.Server.Timeout))
}

// streamBuffer is the memory of a turn.
type streamBuffer struct {
	frames, out []byte
	room        int // upper limit of the bytes to send, except for the last event
}

var streamBuffers = sync.Pool{New: func() any { return &streamBuffer{} }}

// finish closes everything. Only after errWatchOver is the HTTP response ended properly.
func (st *WatchStream) finish(cause error) {
	known := st.Server.Streams.remove(st)
	if cause != nil && !errors.Is(cause, errWatchOver) {
		st.Server.Log.Debug("a watch ended early", "resource", st.Watcher.Op.Endpoint.GVR.String(), "err", cause)
	}
	st.Timer.Stop()
	if st.Member.hub != nil {
		st.Member.Leave()
	}
	if st.Watcher.Cursor != nil {
		st.Watcher.Cursor.Close()
	}
	if st.Watcher.OnInitialSent != nil {
		st.Watcher.OnInitialSent()
	}
	st.OnEnd()
	st.Out.Finish(cause != nil && !errors.Is(cause, errWatchOver), func() {
		if known {
			st.Server.WaitGroup.Done()
		}
	})
}
