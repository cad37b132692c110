package run

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/knarr-project/knarr/internal/pages"
)

// Go's garbage collector lets a heap grow to twice its live size. This suits a small heap: a
// collection costs the marking of everything live, and the growth decides how often. In a large
// cluster the same rule keeps as much garbage as live objects, memory that pods of a small machine
// could use. So the room for garbage grows more slowly than the live heap. It equals the live heap
// up to smallHeap and is half of it from largeHeap on. Collecting then costs at most twice as much
// per byte as with Go's rule.
const (
	smallHeap = 40 << 20
	largeHeap = 72 << 20

	mostRoom  = 100 // percent of the live heap
	leastRoom = 50
)

// When collections follow each other quickly, their cost matters: up to a third of the CPU time of
// writes goes into marking the same live objects repeatedly. During such a time, including the
// start, the room is at least busyGarbage. The additional garbage is returned in the next quiet
// period.
const (
	busyWithin  = 3 * time.Second // between two collections
	busyGarbage = 60 << 20
	// percent of the live heap, an upper limit: it may be larger by the next collection
	busyRoom  = 400
	startRoom = 1000 // percent of the 4 MB that Go starts with
)

// heapRoom returns how many percent of the live heap a heap may grow before it is collected.
func heapRoom(lives uint64, busy bool) int {
	if busy {
		return max(heapRoom(lives, false), min(busyRoom, int(busyGarbage*100/max(lives, 1))))
	}
	switch {
	case lives <= smallHeap:
		return mostRoom
	case lives >= largeHeap:
		return leastRoom
	}
	return mostRoom - int((mostRoom-leastRoom)*(lives-smallHeap)/(largeHeap-smallHeap))
}

// After a burst, such as the start, nothing is allocated for a while, so no collection runs.
// Garbage, free memory that Go keeps, and program pages that were needed for the burst stay. When a
// collection is followed by a quiet period, all of this is returned. If the process was still busy,
// it is checked once more, because the next collection may be minutes away.
const (
	quietAfter = 15 * time.Second
	// settlesAfter is the delay until work that waited for the program to be ready has started.
	settlesAfter = time.Second
	// worthwhile is the least amount of garbage and free memory for which a collection runs.
	worthwhile = 16 << 20
	// Data made for requests (compiled schemas and rules, decoded and encoded forms) is dropped
	// within a minute of its last use. Dropping allocates nothing, so it triggers no collection.
	// Therefore one more check follows this long after memory was returned, if the live heap is
	// large enough to contain such data.
	recheckAfter = 75 * time.Second
)

// keepHeapSmall adjusts the room after each collection and returns memory after bursts, until the
// returned function is called. Between those events it does nothing. The room is global, so
// concurrent callers share it, and the last one to stop restores the old value. An administrator's
// GOGC is not changed.
func keepHeapSmall() (stop func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	return heap.keep()
}

var heap heapManager

type heapManager struct {
	mu      sync.Mutex
	users   int
	era     int         // incremented when the room is restored; older sentinels then do nothing
	room    int         // in force
	since   time.Time   // time of the last collection, or of the start
	settled *time.Timer // runs once the program is ready
	calm    *time.Timer // runs since the last collection or check
	// bytes allocated at the last check; 0 if there was none since the last collection
	from      uint64
	returning bool // memory is being returned, which causes the next collection
	last      bool // the next check looks for data dropped since memory was returned

	resting sync.WaitGroup
}

func (k *heapManager) keep() (stop func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.users == 0 {
		before := debug.SetGCPercent(mostRoom)
		if before != mostRoom { // set by a program that embeds this package
			debug.SetGCPercent(before)
			return func() {}
		}
		debug.SetGCPercent(startRoom)
		k.room, k.since = startRoom, time.Now()
		era := k.era
		k.settled = time.NewTimer(settlesAfter)
		k.settled.Stop()
		k.calm = time.AfterFunc(quietAfter, func() { k.rest(era) })
		k.arm()
	}
	k.users++
	return sync.OnceFunc(k.release)
}

// started collects the start's garbage, which would otherwise stay for long. From then on the size
// of the live heap is known and quiet periods can be recognized.
func (k *heapManager) started() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.users > 0 {
		k.settled = time.AfterFunc(settlesAfter, runtime.GC)
	}
}

func (k *heapManager) release() {
	k.mu.Lock()
	k.users--
	last := k.users == 0
	if last {
		k.era++
		k.calm.Stop()
		k.settled.Stop()
		debug.SetGCPercent(mostRoom)
	}
	k.mu.Unlock()
	if last {
		k.resting.Wait()
	}
}

// sentinel becomes garbage at once, so the next collection finds it. It is large enough to have
// pages of its own, because after a collection the runtime sweeps those first. A cleanup would only
// run when the runtime has swept everything. On a busy machine that is when the next collection
// begins, and the room would lag behind a growing heap.
type sentinel struct{ _ [40 << 10]byte }

func (k *heapManager) arm() { k.post(new(sentinel), k.era) }

func (k *heapManager) post(s *sentinel, era int) {
	runtime.SetFinalizer(s, func(s *sentinel) { k.collected(s, era) })
}

func (k *heapManager) collected(s *sentinel, era int) {
	lives := sizes("/gc/heap/live:bytes")[0]
	k.mu.Lock()
	defer k.mu.Unlock()
	if era != k.era {
		return
	}
	busy := !k.returning && time.Since(k.since) < busyWithin
	k.since = time.Now()
	// Setting the percentage stops the world for a moment, so ignore small changes.
	if room := heapRoom(lives, busy); room-k.room >= 5 || k.room-room >= 5 {
		debug.SetGCPercent(room)
		k.room = room
	}
	if !k.returning {
		k.calm.Reset(quietAfter)
		k.last = false
	}
	k.returning, k.from = false, 0
	k.post(s, era)
}

// rest returns memory if the process is quiet and it is worthwhile. If the live heap is still
// large, one more check follows.
func (k *heapManager) rest(era int) {
	k.mu.Lock()
	last := k.last
	returning := era == k.era && k.look(heapNow())
	k.returning, k.last = returning, false
	if returning {
		k.resting.Add(1)
	}
	k.mu.Unlock()
	if !returning {
		return
	}
	defer k.resting.Done()
	debug.FreeOSMemory()
	forgetProgram()
	if !last && heapNow().live > smallHeap {
		k.scheduleCheck(era)
	}
}

func (k *heapManager) scheduleCheck(era int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if era == k.era {
		k.last = true
		k.calm.Reset(recheckAfter)
	}
}

// look reports whether the process is quiet and there is enough to return. The last check assumes
// the latter, because dropped data counts as live until it is collected. If memory could be
// returned but the process is busy, look schedules another check.
func (k *heapManager) look(h heapSizes) bool {
	calm := isQuiet(h, k.from, k.room)
	switch {
	case calm && k.last:
		return true
	case h.held < h.live+worthwhile:
		return false
	case calm:
		return true
	}
	k.from = h.allocated
	k.calm.Reset(quietAfter)
	return false
}

// forgetProgram returns the program's pages, half of which are only needed to start. It also runs
// after the start. After a restart all clients reconnect at once, and then this memory is free.
func forgetProgram() {
	if program, err := os.Executable(); err == nil {
		// A program's mappings do not change while it runs. If an error leaves pages in place,
		// nothing else suffers.
		_ = pages.Forget(program)
	}
}

// heapSizes are in bytes: the live heap at the last collection, the bytes allocated including since
// then, and everything that Go holds for the heap.
type heapSizes struct{ live, allocated, held uint64 }

func heapNow() heapSizes {
	m := sizes("/gc/heap/live:bytes", "/memory/classes/heap/objects:bytes", "/memory/classes/heap/unused:bytes", "/memory/classes/heap/free:bytes")
	return heapSizes{live: m[0], allocated: m[1], held: m[1] + m[2] + m[3]}
}

// isQuiet reports whether little of the room has been used since the last collection, or since from
// bytes were allocated.
func isQuiet(h heapSizes, from uint64, room int) bool {
	return h.allocated <= max(h.live, from)+max(h.live*uint64(min(room, mostRoom))/200, worthwhile/2)
}

func sizes(names ...string) []uint64 {
	samples, values := make([]metrics.Sample, len(names)), make([]uint64, len(names))
	for i, name := range names {
		samples[i].Name = name
	}
	metrics.Read(samples)
	for i := range samples {
		values[i] = samples[i].Value.Uint64()
	}
	return values
}
