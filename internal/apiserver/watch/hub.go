package watch

import (
	"errors"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/taskpool"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/cache"
)

// hubKey is what watches with equal bytes have in common: their interest and their format.
type hubKey struct {
	reader                    cache.Reader
	namespace, labels, fields string
	form                      string
	chunked                   bool // framed for HTTP/1.1
}

// hubs are the server's open hubs. The zero value is ready.
type hubs struct {
	mu   sync.Mutex
	open map[hubKey]*hub
}

// hub follows the cache for all watches of the same interest and format. An event is looked up,
// encoded and framed once, and the frames are stored back to back as they go over the wire. Each
// watch only has to encrypt and send a range of them.
type hub struct {
	hubs     *hubs
	key      hubKey
	pool     *taskpool.Pool
	task     taskpool.Task
	endpoint *registry.Endpoint

	mu       sync.Mutex // guards the following fields
	enc      eventEncoder
	cursor   *cache.Cursor
	members  []*member
	laggards int // number of members that have not taken every frame
	blocks   []*frameBlock
	bytes    int
	next     uint64 // number of the next frame
	revision int64  // every change up to this revision has, or had, a frame
	dropped  int64  // revision of the newest dropped frame
	err      error  // why there will be no more frames
	closed   bool   // the last member has left
	wake     []*taskpool.Task
}

// member is one watch in a hub. Its fields are guarded by hub.mu.
type member struct {
	hub    *hub
	task   *taskpool.Task
	index  int    // in hub.members
	next   uint64 // number of the next frame to take
	behind bool
}

// frameBlock is a run of frames. Its bytes never change.
type frameBlock struct {
	first uint64
	Data  []byte
	marks []registry.FrameMark
}

const (
	// maxHubBytes is how many bytes of frames wait for slow members. A member that needs older ones
	// continues with its own cursor.
	maxHubBytes = 4 << 20
	// A block grows with the events that arrive before every member has taken the previous ones.
	maxBlockBytes = 128 << 10
)

// errFramesDropped means that the member needs frames that were dropped.
var errFramesDropped = errors.New("frames were dropped")

// join makes m a member that has seen everything up to revision. If the hub is new, found creates
// it, and the hub follows the member's cursor, which is at that revision. join fails if frames
// after the revision were dropped; try again after the next events.
func (hs *hubs) join(key hubKey, m *member, revision int64, found func() *hub) bool {
	h, founded := hs.enter(key, revision, found)
	defer h.mu.Unlock()
	// Make the frames that are due first: m must not get what it has seen, and events that came
	// before a new hub had a member have woken no task.
	h.advance()
	if !founded {
		if revision < h.dropped || h.err != nil {
			return false
		}
		m.next = h.find(revision)
	} else {
		// Even if the first frames were dropped, or there will be none: take reports that.
		m.next = 0
	}
	m.hub, m.index, m.behind = h, len(h.members), m.next < h.next
	h.members = append(h.members, m)
	if m.behind {
		h.laggards++
	}
	return true
}

// enter returns the locked hub of a key. Other members cannot enter a new hub before its founder
// has unlocked it. hubs.mu is never held while a hub encodes frames, which it does locked.
func (hs *hubs) enter(key hubKey, revision int64, found func() *hub) (h *hub, founded bool) {
	for {
		hs.mu.Lock()
		h, ok := hs.open[key]
		if !ok {
			h = found()
			h.hubs, h.key, h.revision, h.dropped = hs, key, revision, revision
			h.mu.Lock() // no other goroutine has it, but events may wake it from now on
			h.cursor.Notify(h.wakeUp)
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

// canShare reports whether the watch can share frames: its cursor must do all the selection. Custom
// objects may have to be sent to a webhook, which would block a worker.
func (w *Watcher) canShare(f wire.Format) bool {
	return w.op.Endpoint.Custom == nil && w.req.FieldsOf == nil && f.As == "" && f.Media != wire.MediaYAML
}

// join makes m a member of the hub of all watches like this one, which has seen everything up to
// its revision. If the hub has dropped frames since, the watch keeps its cursor. So does a watch
// whose revision comes from another server of the same store and is not in this cache yet: the hub
// would send what it has seen there.
func (w *Watcher) join(m *member, enc *eventEncoder, chunked bool) bool {
	if w.revision > w.reader.Revision() {
		return false
	}
	form := w.op.Endpoint.JSONForm
	if enc.format.Media == wire.MediaProtobuf {
		form = w.op.Endpoint.ProtobufForm
	}
	key := hubKey{reader: w.reader, namespace: w.op.Namespace, labels: w.req.Labels.String(), fields: w.req.Fields.String(), form: form, chunked: chunked}
	s, taken := w.server, false
	joined := s.hubs.join(key, m, w.revision, func() *hub {
		taken = true
		return newHub(s.Pool, *enc, w.Cursor)
	})
	if joined && !taken {
		w.Cursor.Close()
	}
	if joined {
		w.Cursor = nil
	}
	return joined
}

// reopen gives the watch its own cursor again; nil if its revision is too old.
func (w *Watcher) reopen() (err error) {
	w.Cursor, err = w.reader.Watch(w.revision, w.interest())
	if errors.Is(err, cache.ErrTooOld) {
		w.Cursor, err = nil, nil
	}
	return err
}

// newHub creates a hub that takes over the cursor; enter makes it follow the cursor.
func newHub(pool *taskpool.Pool, enc eventEncoder, cursor *cache.Cursor) *hub {
	h := &hub{pool: pool, endpoint: enc.Endpoint, enc: enc, cursor: cursor}
	h.task = taskpool.NewTask(h.turn)
	return h
}

func (h *hub) wakeUp() { h.pool.Wake(&h.task) }

// leave ends a membership. The last one closes the hub.
func (m *member) leave() {
	h := m.hub
	m.hub = nil
	if h.removeMember(m) {
		h.hubs.remove(h)
	}
}

// removeMember removes a member, and closes the hub if it was the last one.
func (h *hub) removeMember(m *member) (closed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.members[len(h.members)-1]
	h.members[m.index], last.index = last, m.index
	h.members[len(h.members)-1] = nil
	h.members = h.members[:len(h.members)-1]
	if m.behind {
		h.laggards--
	}
	if len(h.members) > 0 {
		h.dropTaken()
		return false
	}
	h.closed = true
	h.cursor.Close()
	h.blocks, h.bytes = nil, 0
	return true
}

// turn encodes the new events and wakes the members.
func (h *hub) turn() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.advance()
	}
	return taskpool.Idle
}

// advance encodes the cursor's changes; mu is held.
func (h *hub) advance() {
	h.pump()
	h.pool.Wake(h.wake...)
	clear(h.wake)
	h.wake = h.wake[:0]
}

// pump makes the frames. A panic ends the hub; it may happen in the turn of a member.
func (h *hub) pump() {
	defer func() {
		if v := recover(); v != nil {
			h.endpoint.LogPanic("panic while encoding events for watches", v)
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
		h.revision = reached
		if len(changes) == 0 {
			return
		}
	}
}

// fail ends the hub: there will be no more frames.
func (h *hub) fail(err error) {
	h.err = err
	for _, m := range h.members {
		h.wake = append(h.wake, m.task)
	}
}

func (h *hub) append(changes []cache.Change) error {
	for i := range changes {
		ch := &changes[i]
		frame, err := h.enc.frame(watchEvent{typ: eventType(ch.Type), entry: ch.Entry})
		if err != nil {
			return err
		}
		h.add(frame, ch.Revision)
	}
	h.dropOldest()
	for _, m := range h.members {
		if !m.behind {
			m.behind = true
			h.laggards++
			h.wake = append(h.wake, m.task)
		}
	}
	return nil
}

// add appends a frame.
func (h *hub) add(frame []byte, revision int64) {
	b := h.room(len(frame) + chunkOverhead)
	before := len(b.Data)
	if h.key.chunked {
		b.Data = appendChunk(b.Data, frame)
	} else {
		b.Data = append(b.Data, frame...)
	}
	h.bytes += len(b.Data) - before
	b.marks = append(b.marks, registry.FrameMark{End: len(b.Data), Revision: revision})
	h.next++
}

// room returns a block with room for size bytes.
func (h *hub) room(size int) *frameBlock {
	want := size
	if n := len(h.blocks); n > 0 {
		last := h.blocks[n-1]
		if cap(last.Data)-len(last.Data) >= size {
			return last
		}
		want = max(size, min(2*cap(last.Data), maxBlockBytes))
	}
	b := &frameBlock{first: h.next, Data: make([]byte, 0, want)}
	h.blocks = append(h.blocks, b)
	return b
}

// dropOldest drops the oldest blocks if the hub has more than maxHubBytes bytes.
func (h *hub) dropOldest() {
	n := 0
	for h.bytes > maxHubBytes && n < len(h.blocks)-1 {
		h.bytes -= len(h.blocks[n].Data)
		h.dropped = h.blocks[n].last()
		n++
	}
	if n > 0 {
		clear(h.blocks[:n])
		h.blocks = append(h.blocks[:0], h.blocks[n:]...)
	}
}

// dropTaken drops all frames if every member has taken them.
func (h *hub) dropTaken() {
	if h.laggards == 0 && len(h.blocks) > 0 {
		h.dropped = h.blocks[len(h.blocks)-1].last()
		h.blocks, h.bytes = nil, 0
	}
}

func (b *frameBlock) last() int64 { return b.marks[len(b.marks)-1].Revision }

// find returns the number of the first frame after the revision.
func (h *hub) find(revision int64) uint64 {
	for _, b := range h.blocks {
		if b.last() > revision {
			return b.first + uint64(sort.Search(len(b.marks), func(i int) bool { return b.marks[i].Revision > revision }))
		}
	}
	return h.next
}

// take returns the member's next adjacent frames and the revision of the last one: at least one if
// there are any, and more up to most bytes.
func (m *member) take(most int) (frames []byte, revision int64, err error) {
	h := m.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if m.next == h.next {
		if h.err != nil {
			return nil, 0, h.err
		}
		return nil, h.revision, nil
	}
	i := sort.Search(len(h.blocks), func(i int) bool { return h.blocks[i].first > m.next }) - 1
	if i < 0 {
		return nil, 0, errFramesDropped
	}
	b := h.blocks[i]
	at, start := int(m.next-b.first), 0
	if at > 0 {
		start = b.marks[at-1].End
	}
	end := at + sort.Search(len(b.marks)-at, func(k int) bool { return b.marks[at+k].End-start > most })
	end = max(end, at+1)
	h.endpoint.Watched.SentAll(b.marks[at:end], start)
	frames, revision = b.Data[start:b.marks[end-1].End:b.marks[end-1].End], b.marks[end-1].Revision
	if m.next = b.first + uint64(end); m.next == h.next {
		m.behind = false
		h.laggards--
		h.dropTaken()
	}
	return frames, revision, nil
}

// progress returns the revision up to which the member has seen everything; false if there are
// frames to take.
func (m *member) progress() (int64, bool) {
	h := m.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	h.advance()
	return h.revision, m.next == h.next && h.err == nil
}

// chunkOverhead is the most that appendChunk adds.
const chunkOverhead = 2*2 + 16

// appendChunk frames data in HTTP/1.1's chunked encoding (RFC 9112, 7.1).
func appendChunk(b, data []byte) []byte {
	b = strconv.AppendUint(b, uint64(len(data)), 16)
	b = append(append(b, "\r\n"...), data...)
	return append(b, "\r\n"...)
}
