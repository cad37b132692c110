package apiserver

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
	"github.com/knarr-project/knarr/internal/apiserver/transport"
	"github.com/knarr-project/knarr/internal/cache"
)

// watchStream is a watch without a goroutine: a task that the pool runs when there are events. It
// has its own connection (HTTP/1.1) or a stream of one (HTTP/2).
//
// It begins with the current objects, continues with its own cursor until it has caught up, and
// then joins the hub of all watches with the same interest. If it cannot keep up with the hub, it
// returns to a cursor of its own.
type watchStream struct {
	server *watches
	task   taskpool.Task
	out    transport.Response
	w      *watcher
	f      format
	enc    *eventEncoder  // nil while a hub makes the frames
	todo   []cache.Change // changes of cursor that did not fit
	member member
	pace   taskpool.Paced

	end   time.Time
	quiet time.Time // time of the last write
	timer *time.Timer
	rang  atomic.Bool // the timer has fired

	gone  atomic.Bool // the client has gone
	ended func()
}

// streams are all open streams. The zero value is ready.
type streams struct {
	mu     sync.Mutex
	open   map[*watchStream]struct{}
	closed bool
}

// add returns false if the server is closing. all counts the streams that the server has to wait
// for.
func (ss *streams) add(s *watchStream, all *sync.WaitGroup) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.closed {
		return false
	}
	all.Add(1)
	if ss.open == nil {
		ss.open = map[*watchStream]struct{}{}
	}
	ss.open[s] = struct{}{}
	return true
}

func (ss *streams) remove(s *watchStream) (known bool) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	_, known = ss.open[s]
	delete(ss.open, s)
	return known
}

// leave accepts no more streams, and returns functions that end the open ones.
func (ss *streams) leave() (ends []func()) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.closed = true
	for s := range ss.open {
		ends = append(ends, func() {
			ss.mu.Lock()
			defer ss.mu.Unlock()
			if _, open := ss.open[s]; open {
				s.hangUp()
			}
		})
	}
	return ends
}

// close ends all streams.
func (ss *streams) close() {
	ss.mu.Lock()
	ss.closed = true
	for s := range ss.open {
		s.hangUp()
	}
	ss.mu.Unlock()
}

// streamable reports whether a watch can be a stream. A custom resource may need a webhook call for
// each object, which would block a worker.
func (s *watches) streamable(r *http.Request, wt *watcher) bool {
	return wt.op.endpoint.custom == nil && s.transport.CanDetachConnection(r)
}

// stream takes a watch, whose response has begun, out of its request, with its connection, audit
// record and metrics.
func (s *watches) stream(w *codeWriter, r *http.Request, f format, wt *watcher) error {
	out, err := s.transport.DetachConnection(w, r)
	if err != nil {
		return err
	}
	st := s.newStream(w, f, wt, out, time.Now().Add(wt.duration()))
	// The client must read each turn of the initial objects within RequestTimeout, because the
	// watch holds seats until then. For the rest it has until the watch ends.
	st.patience()
	seats := wt.begun
	wt.begun = func() {
		out.SetWriteDeadline(st.end.Add(lastWords(s.timeout)))
		if seats != nil {
			seats()
		}
	}
	if !s.streams.add(st, s.wg) {
		st.finish(errStreamOver)
		return nil
	}
	if err := out.Start(&st.task, st.hangUp); err != nil {
		if !errors.Is(err, net.ErrClosed) {
			s.log.Warn("a watch cannot notice when its client hangs up, and ends", "resource", wt.op.endpoint.gvr.String(), "err", err)
		}
		st.hangUp()
	}
	st.begin()
	return nil
}

// settle takes an HTTP/2 watch that has sent the initial objects and has caught up out of its
// request. Its handler then returns.
func (s *watches) settle(w *codeWriter, r *http.Request, f format, wt *watcher, end time.Time) bool {
	if s.leaving.Load() {
		return false
	}
	out := s.transport.DetachStream(w.ResponseWriter, r)
	if out == nil {
		return false
	}
	st := s.newStream(w, f, wt, out, end)
	// No longer needed, and they hold the request.
	wt.begun, wt.bound, wt.settle, wt.bookmark = nil, nil, nil, false
	if !s.streams.add(st, s.wg) || out.Start(&st.task, st.hangUp) != nil {
		st.hangUp()
		return true
	}
	st.begin()
	return true
}

// newStream creates the stream that remains after the watch's handler has returned.
func (s *watches) newStream(w *codeWriter, f format, wt *watcher, out transport.Response, end time.Time) *watchStream {
	wt.op.warn = nil // which holds the request
	enc := newEventEncoder(wt.op.endpoint, f)
	st := &watchStream{server: s, out: out, w: wt, f: f, enc: &enc, quiet: time.Now(), end: end}
	record, ended := w.audit, w.ended
	w.taken = true
	st.ended = func() {
		record.Stage(auditv1.StageResponseComplete, http.StatusOK)
		ended()
	}
	st.task = out.Task(st.turn)
	st.member.task = &st.task
	// Begin sets the time: once added, the stream may have turns and may end.
	st.timer = time.AfterFunc(math.MaxInt64, func() {
		st.rang.Store(true)
		st.wake()
	})
	return st
}

// begin gives the stream its first turn. It may have had others already.
func (st *watchStream) begin() {
	if st.w.cursor != nil {
		st.w.cursor.Notify(st.wake)
	}
	st.timer.Reset(time.Until(st.alarm()))
	if st.gone.Load() {
		st.timer.Stop() // it may have finished already
	}
	st.wake()
}

func (st *watchStream) wake() { st.server.pool.Wake(&st.task) }

// hangUp ends the stream.
func (st *watchStream) hangUp() {
	st.gone.Store(true)
	st.wake()
}

// alarm returns when something is due without an event: a bookmark or the end.
func (st *watchStream) alarm() time.Time {
	if !st.w.req.opts.AllowWatchBookmarks {
		return st.end
	}
	due := st.quiet.Add(bookmarkEvery)
	if last := st.end.Add(-bookmarkBeforeEnd); due.After(last) && last.After(st.quiet) {
		due = last
	}
	if due.After(st.end) {
		due = st.end
	}
	return due
}

// errStreamOver is the normal end of a watch.
var errStreamOver = errors.New("the watch is over")

// errSlowReader means that the client has not read what it was sent.
var errSlowReader = errors.New("the client does not read")

// errPanic means that our code panicked, perhaps on a particular object.
var errPanic = errors.New("panic, see the log")

// turn sends what is due. It recovers panics, which nothing else does here: they would end the
// process.
func (st *watchStream) turn() (rest time.Duration) {
	defer func() {
		if v := recover(); v != nil {
			st.w.op.endpoint.logPanic("panic while watching", v)
			st.finish(errPanic)
			rest = taskpool.Ended
		}
	}()
	return st.serve()
}

func (st *watchStream) serve() time.Duration {
	if st.gone.Load() {
		st.finish(errStreamOver)
		return taskpool.Ended
	}
	room := min(st.out.Room(), turnBytes)
	if room == 0 {
		return st.stuck()
	}
	// Not returned to the pool after a panic: the connection may still write into it.
	b := streamBuffers.Get().(*streamBuffer)
	st.out.Begin(b.out)
	b.frames, b.room = b.frames[:0], room
	more, err := st.fill(b)
	if err == nil || errors.Is(err, errStreamOver) {
		err = errors.Join(err, st.send(b))
	}
	if st.w.begun != nil { // the socket has taken the earlier writes
		st.patience()
	}
	sent, failed := st.out.End(&b.out)
	streamBuffers.Put(b)
	if err = errors.Join(err, failed); err != nil {
		st.finish(err)
		return taskpool.Ended
	}
	if sent {
		st.quiet = time.Now()
	}
	switch {
	case more:
		return taskpool.Again
	case sent:
		return st.server.pace.Wrote(&st.pace)
	}
	return taskpool.Idle
}

// stuck is a turn in which nothing can be written. A client that reads nothing keeps its watch
// until its end, and a little longer for the final bytes.
func (st *watchStream) stuck() time.Duration {
	last := time.Until(st.end.Add(lastWords(st.server.timeout)))
	if last <= 0 {
		st.finish(errSlowReader)
		return taskpool.Ended
	}
	if st.rang.Load() {
		st.timer.Reset(last)
	}
	return taskpool.Idle // woken when there is room
}

// patience gives the client RequestTimeout for the next writes: a client that reads slowly still
// gets everything.
func (st *watchStream) patience() {
	st.out.SetWriteDeadline(time.Now().Add(st.server.timeout))
}

// streamBuffer is the memory of a turn.
type streamBuffer struct {
	frames, out []byte
	room        int // upper limit of the bytes to send, except for the last event
}

var streamBuffers = sync.Pool{New: func() any { return &streamBuffer{} }}

// finish closes everything. Only after errStreamOver is the HTTP response ended properly.
func (st *watchStream) finish(cause error) {
	known := st.server.streams.remove(st)
	if cause != nil && !errors.Is(cause, errStreamOver) {
		st.server.log.Debug("a watch ended early", "resource", st.w.op.endpoint.gvr.String(), "err", cause)
	}
	st.timer.Stop()
	if st.member.hub != nil {
		st.member.leave()
	}
	if st.w.cursor != nil {
		st.w.cursor.Close()
	}
	if st.w.begun != nil {
		st.w.begun()
	}
	st.ended()
	st.out.Finish(cause != nil && !errors.Is(cause, errStreamOver), func() {
		if known {
			st.server.wg.Done()
		}
	})
}
