package cache

import (
	"sync/atomic"
	"time"
)

// event is one change of one object in a kind's log.
type event struct {
	revision int64
	at       time.Time
	old, new *Entry // one of them may be nil
	gone     atomic.Pointer[Entry]
}

// deleted returns the old state with the event's revision. All watchers share it.
func (e *event) deleted() *Entry {
	if g := e.gone.Load(); g != nil {
		return g
	}
	e.gone.CompareAndSwap(nil, e.old.Restamp(e.revision))
	return e.gone.Load()
}

// The log keeps at least minEvents. It keeps up to maxEvents and maxBytes (of states that only the
// log holds) while the events are younger than freshFor.
const (
	minEvents = 256
	maxEvents = 32 << 10
	maxBytes  = 32 << 20
	freshFor  = 75 * time.Second // as long as upstream keeps events

	// hotEvents is the number of newest events whose old states keep their decoded and encoded
	// forms, unless those states exceed hotBytes. The forms are ten times the size of the stored
	// bytes; a later reader makes them again.
	hotEvents = 256
	hotBytes  = 1 << 20
)

// eventLog holds a kind's recent changes in order. Events are numbered from 0 since the start of
// the process; ring[n%len(ring)] is event n. Guarded by Kind.mu.
type eventLog struct {
	ring  []*event
	first uint64 // number of the oldest event kept
	next  uint64 // number of the next event
	// dropped is the revision up to which the log contains no events.
	dropped int64
	bytes   int // of the old states held

	// The old states of events before packed are packed. Those from packed to hot wait for packing
	// and have pending bytes. Those from hot on are hot and stay unpacked.
	packed, hot       uint64
	pending, hotBytes int
	interner          interner

	grown, shrunk uint64 // how often the ring has grown and shrunk
}

// start empties the log, which then holds the changes after the revision.
func (l *eventLog) start(revision int64) {
	clear(l.ring)
	l.first, l.dropped, l.bytes = l.next, revision, 0
	l.packed, l.hot, l.pending, l.hotBytes = l.next, l.next, 0, 0
}

func (l *eventLog) end() uint64 { return l.next }

func (l *eventLog) append(e *event) {
	n := int(l.next - l.first)
	for n > 0 && l.mayDrop(n, e.at) {
		l.drop()
		n--
	}
	if n == len(l.ring) {
		l.grow()
	}
	l.ring[l.next%uint64(len(l.ring))] = e
	l.next++
	l.bytes += held(e)
	l.hotBytes += e.oldBytes()
	for l.next-l.hot > hotEvents || l.hotBytes > hotBytes {
		l.coolOldest()
	}
}

// coolOldest drops the forms of the oldest hot event, which few readers will need.
func (l *eventLog) coolOldest() {
	e := l.at(l.hot)
	e.dropForms()
	l.hotBytes -= e.oldBytes()
	l.pending += e.oldBytes()
	l.hot++
	if l.pending >= packBytes {
		l.pack(l.packed, l.hot)
		l.packed, l.pending = l.hot, 0
	}
}

// oldBytes returns the size of the old state's stored bytes; 0 if it is packed.
func (e *event) oldBytes() int {
	if e.old == nil {
		return 0
	}
	return len(e.old.stored)
}

// dropForms drops the forms of states that only the log holds.
func (e *event) dropForms() {
	if e.old != nil {
		e.old.dropForms()
	}
	if g := e.gone.Load(); g != nil {
		g.dropForms()
	}
}

// mayDrop reports whether the oldest of n events may be dropped for another one.
func (l *eventLog) mayDrop(n int, now time.Time) bool {
	if n >= maxEvents || n >= minEvents && l.bytes > maxBytes {
		return true
	}
	return n >= minEvents && now.Sub(l.ring[l.first%uint64(len(l.ring))].at) > freshFor
}

func (l *eventLog) drop() {
	e := l.at(l.first)
	switch {
	case l.first == l.hot:
		l.hotBytes -= e.oldBytes()
		l.hot++
	case l.first >= l.packed:
		l.pending -= e.oldBytes()
	}
	l.bytes -= held(e)
	l.dropped = e.revision
	l.ring[l.first%uint64(len(l.ring))] = nil
	l.first++
}

// entryOverhead is the approximate memory of an entry besides its stored bytes: itself, labels and
// fields (BenchmarkMemory).
const entryOverhead = 1000

func held(e *event) int {
	if e.old == nil {
		return 0
	}
	if where := e.old.packed; where != nil {
		return where.held() + entryOverhead
	}
	return len(e.old.stored) + entryOverhead
}

func (l *eventLog) grow() {
	if len(l.ring) > 0 {
		l.grown++
	}
	bigger := make([]*event, max(16, 2*len(l.ring)))
	for n := l.first; n < l.next; n++ {
		bigger[n%uint64(len(bigger))] = l.ring[n%uint64(len(l.ring))]
	}
	l.ring = bigger
}

// trim drops events that are neither fresh nor within minEvents, and shrinks the ring.
func (l *eventLog) trim(now time.Time) {
	for n := int(l.next - l.first); n > minEvents && now.Sub(l.at(l.first).at) > freshFor; n-- {
		l.drop()
	}
	if n := int(l.next - l.first); len(l.ring) > 1024 && n < len(l.ring)/4 {
		smaller := make([]*event, len(l.ring)/2)
		for i := l.first; i < l.next; i++ {
			smaller[i%uint64(len(smaller))] = l.ring[i%uint64(len(l.ring))]
		}
		l.ring = smaller
		l.shrunk++
	}
}

func (l *eventLog) at(n uint64) *event { return l.ring[n%uint64(len(l.ring))] }

// find returns the number of the first event after the revision.
func (l *eventLog) find(revision int64) uint64 {
	lo, hi := l.first, l.next
	for lo < hi {
		if mid := (lo + hi) / 2; l.at(mid).revision <= revision {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// since returns the events after the revision; false if the log does not have all of them.
func (l *eventLog) since(revision int64) ([]*event, bool) {
	if revision < l.dropped {
		return nil, false
	}
	n := l.find(revision)
	out := make([]*event, 0, l.next-n)
	for ; n < l.next; n++ {
		out = append(out, l.at(n))
	}
	return out, true
}
