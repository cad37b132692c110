package apiserver

import (
	"errors"
	"math"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/knarr-project/knarr/internal/apiserver/deliver"
	"github.com/knarr-project/knarr/internal/apiserver/h2"
	"github.com/knarr-project/knarr/internal/cache"
)

// watchStream is a watch without a goroutine: a task that the pool runs when there are events. It has a connection of its own (HTTP/1.1) or a stream of one (HTTP/2).
//
// It begins with the objects that there are, goes on with a cursor of its own until it has caught up, and then joins the hub of all watches
// that want the same. When it cannot keep up with the hub it has a cursor of its own again.
type watchStream struct {
	server *Server
	task   deliver.Task
	out    outlet
	w      *watcher
	f      format
	enc    *eventEncoder  // nil while a hub makes the frames
	todo   []cache.Change // of cursor, that did not fit
	member member
	pace   deliver.Paced

	end   time.Time
	quiet time.Time // when it was last written to
	timer *time.Timer
	rang  atomic.Bool // the timer has

	gone  atomic.Bool // the client is
	ended func()
}

// streams are all that are open. The zero value is ready.
type streams struct {
	mu     sync.Mutex
	open   map[*watchStream]struct{}
	closed bool
}

// add is false when the server closes. all counts what close has to wait for.
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

// goOn runs fn aside, for a stream that is open.
func (ss *streams) goOn(s *watchStream, all *sync.WaitGroup, fn func()) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if _, open := ss.open[s]; open {
		all.Go(fn)
	}
}

// close ends all of them.
func (ss *streams) close() {
	ss.mu.Lock()
	ss.closed = true
	for s := range ss.open {
		s.hangUp()
	}
	ss.mu.Unlock()
}

// streamable tells whether a watch can be a stream. Custom resources may have to ask a webhook for each object, which would keep a worker.
func (s *Server) streamable(r *http.Request, wt *watcher) bool {
	return r.ProtoMajor == 1 && r.ProtoMinor == 1 && wt.op.endpoint.custom == nil && deliver.From(r.Context()) != nil
}

// stream takes a watch, whose answer has begun, out of its request: with its connection, its audit record and its place in the metrics.
func (s *Server) stream(w *codeWriter, r *http.Request, f format, wt *watcher) error {
	conn, _, err := w.Hijack()
	if err != nil {
		return err
	}
	out := &ownConnection{conn: conn, wire: deliver.From(r.Context())}
	st := s.newStream(w, f, wt, out, time.Now().Add(wt.duration()))
	out.stream = st
	st.task = deliver.NewTask(st.turn)
	// Each turn's worth of what is there already is to be read in a request's time, since until then the watch has seats; the rest before it is over.
	st.patience()
	seats := wt.begun
	wt.begun = func() {
		out.patience(st.end.Add(s.lastWords()))
		if seats != nil {
			seats()
		}
	}
	out.ear = s.ears.Open(st.heard)
	deliver.ForgetHandshake(conn)
	if !s.streams.add(st, &s.wg) {
		st.finish(errStreamOver)
		return nil
	}
	if err := out.ear.Listen(out.wire, true); err != nil {
		if !errors.Is(err, os.ErrClosed) && !errors.Is(err, net.ErrClosed) {
			s.log.Warn("a watch can not hear when its client leaves, and ends", "resource", wt.op.endpoint.gvr.String(), "err", err)
		}
		st.hangUp()
	}
	st.begin()
	return nil
}

// settle takes a watch that has sent what was there, and has caught up, out of its request, if it came over HTTP/2. Then its handler is to return.
func (s *Server) settle(w *codeWriter, r *http.Request, f format, wt *watcher, end time.Time) bool {
	if s.leaving.Load() {
		return false
	}
	answer := h2.Answer(r.Context(), w.ResponseWriter)
	if answer == nil {
		return false
	}
	st := s.newStream(w, f, wt, &sharedConnection{Stream: answer}, end)
	st.task = answer.Task(st.turn)
	wt.begun, wt.bound, wt.settle, wt.bookmark = nil, nil, nil, false // done, and they hold the request
	if !s.streams.add(st, &s.wg) || !answer.Take(&st.task, st.hangUp) {
		st.hangUp()
		return true
	}
	st.begin()
	return true
}

// newStream makes what the handler of a watch leaves behind.
func (s *Server) newStream(w *codeWriter, f format, wt *watcher, out outlet, end time.Time) *watchStream {
	wt.op.warn = nil // which holds the request
	enc := newEventEncoder(wt.op.endpoint, f)
	st := &watchStream{server: s, out: out, w: wt, f: f, enc: &enc, quiet: time.Now(), end: end}
	record, ended := w.audit, w.ended
	w.taken = true
	st.ended = func() {
		record.Stage(auditv1.StageResponseComplete, http.StatusOK)
		ended()
	}
	st.member.task = &st.task
	st.timer = time.AfterFunc(math.MaxInt64, func() { // set by begin: from add on the stream may have its turns, and its end
		st.rang.Store(true)
		st.wake()
	})
	return st
}

// begin gives the stream its first turn. There may have been others already.
func (st *watchStream) begin() {
	if st.w.cursor != nil {
		st.w.cursor.Notify(st.wake)
	}
	st.timer.Reset(time.Until(st.alarm()))
	if st.gone.Load() {
		st.timer.Stop() // it may have been finished before
	}
	st.wake()
}

func (st *watchStream) wake() { st.server.pool.Wake(&st.task) }

// hangUp ends the stream.
func (st *watchStream) hangUp() {
	st.gone.Store(true)
	st.wake()
}

// heard is told that the client has sent something, or hung up.
func (st *watchStream) heard() {
	out := st.out.(*ownConnection)
	st.server.streams.goOn(st, &st.server.wg, func() {
		var ignored [64]byte // it has nothing to say
		if _, err := out.conn.Read(ignored[:]); err != nil || out.ear.Listen(out.wire, false) != nil {
			st.hangUp()
		}
	})
}

// alarm is when something is due though nothing happens: a bookmark or the end.
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

// errStreamOver: nothing is wrong.
var errStreamOver = errors.New("the watch is over")

// errSlowReader: the client has not taken what it was sent.
var errSlowReader = errors.New("the client does not read")

// errPanic: something in our code, or in an object, is.
var errPanic = errors.New("panic, see the log")

// turn sends what there is. Nothing else recovers a panic here: it would take the process along.
func (st *watchStream) turn() (rest time.Duration) {
	defer func() {
		if v := recover(); v != nil {
			st.server.logPanic("panic while watching", v, st.w.op.endpoint)
			st.finish(errPanic)
			rest = deliver.Ended
		}
	}()
	return st.serve()
}

func (st *watchStream) serve() time.Duration {
	if st.gone.Load() {
		st.finish(errStreamOver)
		return deliver.Ended
	}
	room := st.out.room()
	if room == 0 {
		return st.stuck()
	}
	b := streamBuffers.Get().(*streamBuffer) // not given back after a panic: the connection may still write into it
	st.out.begin(b)
	b.frames, b.room = b.frames[:0], room
	more, err := st.fill(b)
	if err == nil || errors.Is(err, errStreamOver) {
		err = errors.Join(err, st.send(b))
	}
	if st.w.begun != nil { // the socket has taken what was sent before
		st.patience()
	}
	sent, failed := st.out.end(b)
	streamBuffers.Put(b)
	if err = errors.Join(err, failed); err != nil {
		st.finish(err)
		return deliver.Ended
	}
	if sent {
		st.quiet = time.Now()
	}
	switch {
	case more:
		return deliver.Again
	case sent:
		return st.server.pace.Wrote(&st.pace)
	}
	return deliver.Idle
}

// stuck is a turn in which nothing can be written. A client that takes nothing has its watch until that would be over, and some time for what is left.
func (st *watchStream) stuck() time.Duration {
	last := time.Until(st.end.Add(st.server.lastWords()))
	if last <= 0 {
		st.finish(errSlowReader)
		return deliver.Ended
	}
	if st.rang.Load() {
		st.timer.Reset(last)
	}
	return deliver.Idle // woken when there is room
}

// patience gives the client a request's time for what is sent next: who reads slowly, but reads, gets all.
func (st *watchStream) patience() {
	st.out.patience(time.Now().Add(st.server.cfg.RequestTimeout))
}

// streamBuffer is what a turn needs room for.
type streamBuffer struct {
	frames, out []byte
	room        int // how much is to be sent at most, but for the last event
}

var streamBuffers = sync.Pool{New: func() any { return &streamBuffer{} }}

// turnBytes is about how much is sent in a turn at most.
const turnBytes = 96 << 10

// fill puts events into the buffer, or writes those that are shared; more says that there are others.
func (st *watchStream) fill(b *streamBuffer) (more bool, err error) {
	w := st.w
	if w.cursor == nil && st.member.hub == nil {
		return false, errors.Join(st.put(b, w.expiry()), errStreamOver) // it had begun too late
	}
	if more, err := st.fillInitial(b); more || err != nil {
		return more, err
	}
	if st.member.hub == nil {
		if more, err = st.fillOwn(b); more || err != nil {
			return more, err
		}
	}
	if st.member.hub != nil {
		if more, err = st.fillShared(b); more || err != nil {
			return more, err
		}
	}
	return false, st.fillDue(b)
}

// fillInitial is about the objects that were there at the beginning.
func (st *watchStream) fillInitial(b *streamBuffer) (more bool, err error) {
	w := st.w
	for ; len(w.initial) > 0; w.initial = w.initial[1:] {
		if len(b.frames) >= b.room {
			return true, nil
		}
		if err := st.put(b, watchEvent{what: watch.Added, entry: w.initial[0], initial: true}); err != nil {
			return false, err
		}
	}
	w.initial = nil
	if w.bookmark {
		w.bookmark = false
		if err := st.put(b, watchEvent{what: watch.Bookmark, obj: w.bookmarkObject(w.revision, true)}); err != nil {
			return false, err
		}
	}
	if w.begun != nil {
		w.begun()
		w.begun = nil
	}
	return false, nil
}

// fillOwn takes events from the stream's own cursor. With the last one it goes over to the hub.
func (st *watchStream) fillOwn(b *streamBuffer) (more bool, err error) {
	w := st.w
	for {
		if len(st.todo) == 0 {
			changes, revision, err := w.cursor.Poll()
			if errors.Is(err, cache.ErrTooOld) {
				return false, errors.Join(st.put(b, w.expiry()), errStreamOver)
			}
			if err != nil {
				return false, err
			}
			w.revision = max(w.revision, revision)
			if len(changes) == 0 {
				if w.joins(st.f) && w.join(&st.member, st.enc, st.out.chunked()) {
					st.enc = nil
				}
				return false, nil
			}
			if st.todo = changes; w.req.fieldsOf != nil {
				if st.todo, err = w.req.narrow(changes); err != nil {
					return false, errors.Join(st.put(b, watchEvent{what: watch.Error, obj: statusOf(err)}), errStreamOver)
				}
			}
		}
		for ; len(st.todo) > 0; st.todo = st.todo[1:] {
			if len(b.frames) >= b.room {
				return true, nil
			}
			if err := st.put(b, watchEvent{what: eventType(st.todo[0].Type), entry: st.todo[0].Entry}); err != nil {
				return false, err
			}
		}
	}
}

// fillShared writes the hub's frames.
func (st *watchStream) fillShared(b *streamBuffer) (more bool, err error) {
	if err := st.send(b); err != nil { // what comes first
		return false, err
	}
	for sent := 0; sent < b.room; {
		frames, revision, err := st.member.take(b.room - sent)
		st.w.revision = max(st.w.revision, revision)
		switch {
		case errors.Is(err, errBehind):
			return true, st.fallBack()
		case errors.Is(err, cache.ErrTooOld):
			return false, errors.Join(st.put(b, st.w.expiry()), errStreamOver)
		case err != nil:
			return false, err
		case len(frames) == 0:
			return false, nil
		}
		if err := st.out.write(frames); err != nil {
			return false, err
		}
		sent += len(frames)
	}
	return true, nil
}

// fallBack leaves the hub for a cursor of the stream's own.
func (st *watchStream) fallBack() error {
	st.member.leave()
	enc := newEventEncoder(st.w.op.endpoint, st.f)
	st.enc = &enc
	if err := st.w.reopen(); err != nil || st.w.cursor == nil {
		return err // the next turn says that it is too late
	}
	st.w.cursor.Notify(st.wake)
	return nil
}

// fillDue is what time brings.
func (st *watchStream) fillDue(b *streamBuffer) error {
	now := time.Now()
	if !now.Before(st.end) {
		return errStreamOver
	}
	if !st.rang.Swap(false) {
		return nil
	}
	defer func() { st.timer.Reset(time.Until(st.alarm())) }()
	if !st.w.req.opts.AllowWatchBookmarks || now.Before(st.alarm()) {
		return nil
	}
	if st.member.hub != nil {
		revision, ok := st.member.progress()
		if !ok {
			return nil // events come first
		}
		st.w.revision = max(st.w.revision, revision)
	}
	st.quiet = now
	return st.put(b, watchEvent{what: watch.Bookmark, obj: st.w.bookmarkObject(st.w.revision, false)})
}

func (st *watchStream) put(b *streamBuffer, ev watchEvent) error {
	if st.enc != nil {
		return st.putAs(b, ev, st.enc)
	}
	enc := newEventEncoder(st.w.op.endpoint, st.f) // a hub makes the frames, but for this one
	return st.putAs(b, ev, &enc)
}

func (st *watchStream) putAs(b *streamBuffer, ev watchEvent, enc *eventEncoder) error {
	frame, err := enc.frame(ev)
	if err != nil {
		return err
	}
	st.w.op.endpoint.watched.sent(len(frame))
	if st.out.chunked() {
		b.frames = appendChunk(b.frames, frame)
	} else {
		b.frames = append(b.frames, frame...)
	}
	return nil
}

// send writes the buffer's frames.
func (st *watchStream) send(b *streamBuffer) error {
	if len(b.frames) == 0 {
		return nil
	}
	err := st.out.write(b.frames)
	b.frames = b.frames[:0]
	return err
}

// finish closes everything. errStreamOver ends the answer as HTTP wants it.
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
	st.out.finish(cause != nil && !errors.Is(cause, errStreamOver), func() {
		if known {
			st.server.wg.Done()
		}
	})
}
