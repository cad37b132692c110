package apiserver

import (
	"errors"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/knarr-project/knarr/internal/apiserver/deliver"
	"github.com/knarr-project/knarr/internal/cache"
)

// hubKey is what watches have in common that get the same bytes: what they are interested in, and in which form.
type hubKey struct {
	reader                    cache.Reader
	namespace, labels, fields string
	form                      string
	chunked                   bool // framed for HTTP/1.1
}

// hubs are the server's hubs. The zero value is ready.
type hubs struct {
	mu   sync.Mutex
	open map[hubKey]*hub
}

// hub follows the cache for all watches of the same interest and form: an event is looked up, encoded and framed once, and its frames lie one
// after the other as they go over the wire. What is left for each watch is to encrypt a stretch of them and to send it.
type hub struct {
	hubs *hubs
	key  hubKey
	pool *deliver.Pool
	task deliver.Task
	of   *endpoint

	mu      sync.Mutex // guards what follows
	enc     eventEncoder
	cursor  *cache.Cursor
	members []*member
	behind  int // members that have not taken everything
	blocks  []*frameBlock
	bytes   int
	next    uint64 // number of the next frame
	reached int64  // revision up to which everything has a frame, or had one
	dropped int64  // of the newest frame that is gone
	err     error  // why there will be no more frames
	closed  bool   // the last member has left
	wake    []*deliver.Task
}

// member is one watch's place in a hub. Its fields are guarded by hub.mu.
type member struct {
	hub    *hub
	task   *deliver.Task
	index  int    // in hub.members
	next   uint64 // number of the next frame that it takes
	behind bool
}

// frameBlock is a stretch of frames. Bytes that are in it never change.
type frameBlock struct {
	first uint64
	data  []byte
	marks []frameMark
}

type frameMark struct {
	end      int
	revision int64
}

const (
	// hubKeeps is how many bytes of frames wait for slow members; who needs older ones goes on with a cursor of its own.
	hubKeeps = 4 << 20
	// A block grows with the events that come before everybody has taken the last ones.
	largestBlock = 128 << 10
)

// errBehind: the member needs frames that are gone.
var errBehind = errors.New("frames are gone")

// join makes m a member, from the revision on, up to which it has got everything. The first one brings the cursor that the hub follows, which is at that revision.
// It fails when frames in between are gone: try again after the next events.
func (hs *hubs) join(key hubKey, m *member, revision int64, found func() *hub) bool {
	h, founded := hs.enter(key, revision, found)
	defer h.mu.Unlock()
	// Nothing that m has got comes later; and what came to a new hub before it had a member has waked nobody.
	h.advance()
	if !founded {
		if revision < h.dropped || h.err != nil {
			return false
		}
		m.next = h.find(revision)
	} else {
		m.next = 0 // also when the first frames are gone already, or there will be none: it hears of that when it takes them
	}
	m.hub, m.index, m.behind = h, len(h.members), m.next < h.next
	h.members = append(h.members, m)
	if m.behind {
		h.behind++
	}
	return true
}

// enter gives the hub of a key, locked. A new one is not entered by others before its founder has left it. hubs.mu is never held while a hub
// makes frames, which is as long as that hub is locked.
func (hs *hubs) enter(key hubKey, revision int64, found func() *hub) (h *hub, founded bool) {
	for {
		hs.mu.Lock()
		h, ok := hs.open[key]
		if !ok {
			h = found()
			h.hubs, h.key, h.reached, h.dropped = hs, key, revision, revision
			h.mu.Lock() // nobody else knows it; but events may wake it from now on
			h.cursor.Notify(h.woken)
			if hs.open == nil {
				hs.open = map[hubKey]*hub{}
			}
			hs.open[key] = h
			hs.mu.Unlock()
			return h, true
		}
		hs.mu.Unlock()
		h.mu.Lock()
		if !h.closed {
			return h, false
		}
		h.mu.Unlock()
		hs.remove(h)
	}
}

// remove forgets a hub that was closed.
func (hs *hubs) remove(h *hub) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.open[h.key] == h {
		delete(hs.open, h.key)
	}
}

// joins tells whether the watch's frames are like others', and chosen by what the cursor looks at. Custom objects may have to be sent to a webhook first, which would keep a worker.
func (w *watcher) joins(f format) bool {
	return w.op.endpoint.custom == nil && w.req.fieldsOf == nil && f.as == "" && f.media != mediaYAML
}

// join makes m a member of the hub of all watches like this one, which has got everything up to its revision. Without success, because the hub
// has forgotten some frames, the watch keeps its cursor. So does one from a revision that is known to another server of the store but has not come here yet: the hub would
// give it what it has got there.
func (w *watcher) join(m *member, enc *eventEncoder, chunked bool) bool {
	if w.revision > w.reader.Revision() {
		return false
	}
	form := w.op.endpoint.jsonForm
	if enc.f.media == mediaProtobuf {
		form = w.op.endpoint.protobufForm
	}
	key := hubKey{reader: w.reader, namespace: w.op.namespace, labels: w.req.labels.String(), fields: w.req.fields.String(), form: form, chunked: chunked}
	s, taken := w.op.server, false
	joined := s.hubs.join(key, m, w.revision, func() *hub {
		taken = true
		return found(s.pool, *enc, w.cursor)
	})
	if joined && !taken {
		w.cursor.Close()
	}
	if joined {
		w.cursor = nil
	}
	return joined
}

// reopen gives the watch a cursor of its own again; none when it is too late for that.
func (w *watcher) reopen() (err error) {
	w.cursor, err = w.reader.Watch(w.revision, w.interest())
	if errors.Is(err, cache.ErrTooOld) {
		w.cursor, err = nil, nil
	}
	return err
}

// found makes a hub that takes over the cursor; enter lets it follow that.
func found(pool *deliver.Pool, enc eventEncoder, cursor *cache.Cursor) *hub {
	h := &hub{pool: pool, of: enc.e, enc: enc, cursor: cursor}
	h.task = deliver.NewTask(h.turn)
	return h
}

func (h *hub) woken() { h.pool.Wake(&h.task) }

// leave ends a membership. The last one closes the hub.
func (m *member) leave() {
	h := m.hub
	m.hub = nil
	if h.without(m) {
		h.hubs.remove(h)
	}
}

// without takes out a member, and closes the hub if it was the last one.
func (h *hub) without(m *member) (closed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.members[len(h.members)-1]
	h.members[m.index], last.index = last, m.index
	h.members[len(h.members)-1] = nil
	h.members = h.members[:len(h.members)-1]
	if m.behind {
		h.behind--
	}
	if len(h.members) > 0 {
		h.tidy()
		return false
	}
	h.closed = true
	h.cursor.Close()
	h.blocks, h.bytes = nil, 0
	return true
}

// turn makes frames of the new events and wakes the members.
func (h *hub) turn() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.advance()
	}
	return deliver.Idle
}

// advance makes frames of what the cursor has; mu is held.
func (h *hub) advance() {
	h.pump()
	h.pool.Wake(h.wake...)
	clear(h.wake)
	h.wake = h.wake[:0]
}

// pump ends the hub if it panics, which may be in one of its members' turns.
func (h *hub) pump() {
	defer func() {
		if v := recover(); v != nil {
			h.of.server.logPanic("panic while encoding events for watches", v, h.of)
			h.fail(errPanic)
		}
	}()
	for h.err == nil {
		changes, reached, err := h.cursor.Poll()
		if err == nil && len(changes) > 0 {
			err = h.append(changes)
		}
		if err != nil {
			h.fail(err)
			return
		}
		h.reached = reached
		if len(changes) == 0 {
			return
		}
	}
}

// fail says that there will be no more frames.
func (h *hub) fail(err error) {
	h.err = err
	for _, m := range h.members {
		h.wake = append(h.wake, m.task)
	}
}

func (h *hub) append(changes []cache.Change) error {
	for i := range changes {
		ch := &changes[i]
		frame, err := h.enc.frame(watchEvent{what: eventType(ch.Type), entry: ch.Entry})
		if err != nil {
			return err
		}
		h.add(frame, ch.Revision)
	}
	h.forget()
	for _, m := range h.members {
		if !m.behind {
			m.behind = true
			h.behind++
			h.wake = append(h.wake, m.task)
		}
	}
	return nil
}

// add puts a frame behind the others.
func (h *hub) add(frame []byte, revision int64) {
	b := h.room(len(frame) + chunkOverhead)
	before := len(b.data)
	if h.key.chunked {
		b.data = appendChunk(b.data, frame)
	} else {
		b.data = append(b.data, frame...)
	}
	h.bytes += len(b.data) - before
	b.marks = append(b.marks, frameMark{len(b.data), revision})
	h.next++
}

// room is a block with room for size bytes.
func (h *hub) room(size int) *frameBlock {
	want := size
	if n := len(h.blocks); n > 0 {
		last := h.blocks[n-1]
		if cap(last.data)-len(last.data) >= size {
			return last
		}
		want = max(size, min(2*cap(last.data), largestBlock))
	}
	b := &frameBlock{first: h.next, data: make([]byte, 0, want)}
	h.blocks = append(h.blocks, b)
	return b
}

// forget drops the oldest blocks when there is too much.
func (h *hub) forget() {
	n := 0
	for h.bytes > hubKeeps && n < len(h.blocks)-1 {
		h.bytes -= len(h.blocks[n].data)
		h.dropped = h.blocks[n].last()
		n++
	}
	if n > 0 {
		clear(h.blocks[:n])
		h.blocks = append(h.blocks[:0], h.blocks[n:]...)
	}
}

// tidy drops everything when everybody has taken it.
func (h *hub) tidy() {
	if h.behind == 0 && len(h.blocks) > 0 {
		h.dropped = h.blocks[len(h.blocks)-1].last()
		h.blocks, h.bytes = nil, 0
	}
}

func (b *frameBlock) last() int64 { return b.marks[len(b.marks)-1].revision }

// find is the number of the first frame after the revision.
func (h *hub) find(revision int64) uint64 {
	for _, b := range h.blocks {
		if b.last() > revision {
			return b.first + uint64(sort.Search(len(b.marks), func(i int) bool { return b.marks[i].revision > revision }))
		}
	}
	return h.next
}

// take gives the member the next frames that lie together, at least one if there are any and more up to most bytes, and the revision of the last one.
func (m *member) take(most int) (frames []byte, revision int64, err error) {
	h := m.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if m.next == h.next {
		if h.err != nil {
			return nil, 0, h.err
		}
		return nil, h.reached, nil
	}
	i := sort.Search(len(h.blocks), func(i int) bool { return h.blocks[i].first > m.next }) - 1
	if i < 0 {
		return nil, 0, errBehind
	}
	b := h.blocks[i]
	at, start := int(m.next-b.first), 0
	if at > 0 {
		start = b.marks[at-1].end
	}
	end := at + sort.Search(len(b.marks)-at, func(k int) bool { return b.marks[at+k].end-start > most })
	end = max(end, at+1)
	h.of.watched.sentAll(b.marks[at:end], start)
	frames, revision = b.data[start:b.marks[end-1].end:b.marks[end-1].end], b.marks[end-1].revision
	if m.next = b.first + uint64(end); m.next == h.next {
		m.behind = false
		h.behind--
		h.tidy()
	}
	return frames, revision, nil
}

// progress is the revision up to which the member has got everything; false when there is something to take.
func (m *member) progress() (int64, bool) {
	h := m.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	h.advance()
	return h.reached, m.next == h.next && h.err == nil
}

// chunkOverhead is the most that appendChunk adds.
const chunkOverhead = 2*2 + 16

// appendChunk frames data as HTTP/1.1's chunked encoding does (RFC 9112, 7.1).
func appendChunk(b, data []byte) []byte {
	b = strconv.AppendUint(b, uint64(len(data)), 16)
	b = append(append(b, "\r\n"...), data...)
	return append(b, "\r\n"...)
}
