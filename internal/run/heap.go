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

// Go's collector lets a heap grow to twice what lives in it. That is right for a small one: the price of collecting is that of marking what lives, once for
// every so many bytes allocated. With a large cluster the same rule keeps as much again as garbage, which on a small machine is memory that pods
// could have. So the room for garbage grows more slowly than what lives: all of it up to smallHeap, half of it from largeHeap on, with which
// collecting costs twice as much a byte as with Go's own rule, at most.
const (
	smallHeap = 40 << 20
	largeHeap = 72 << 20

	mostRoom  = 100 // percent of what lives
	leastRoom = 50
)

// Where one collection comes soon after the other, their price is what counts: a fifth of the CPU time of creates and patches was marking the same 30 MB again and again.
// So as long as that goes on, a small heap is collected no sooner than one of smallHeap is. Starting is such a time. What that keeps as garbage is given back when there is calm.
const (
	busyWithin = 3 * time.Second // between two collections
	busyRoom   = 400             // of what lives, at most: it may be more by the next collection
	startRoom  = 1000            // of the 4 MB that Go begins with
)

// heapRoom is how many percent of what lives a heap may grow by before it is collected.
func heapRoom(lives uint64, busy bool) int {
	switch {
	case busy && lives < smallHeap:
		return min(busyRoom, int((2*smallHeap-lives)*100/max(lives, 1)))
	case lives <= smallHeap:
		return mostRoom
	case lives >= largeHeap:
		return leastRoom
	}
	return mostRoom - int((mostRoom-leastRoom)*(lives-smallHeap)/(largeHeap-smallHeap))
}

// After a burst (starting is one) nothing is allocated for a while, so nothing is collected, and what the burst has left stays: garbage, free memory that Go keeps for the
// next one, and pages of the program that were needed for it. When a collection is followed by calm, all that is given back. Who had much to do for a while yet after it is looked at
// once more: the next collection may be minutes away.
const (
	calmAfter = 15 * time.Second
	// settlesAfter is when what has been waiting for a program to be ready has begun.
	settlesAfter = time.Second
	// worthwhile is how much garbage and free memory are worth a collection.
	worthwhile = 16 << 20
	// What is made for requests (compiled schemas and rules, decoded and encoded forms) is forgotten within a minute of its last use. Forgetting allocates nothing, so no
	// collection would come: there is one more look that long after memory was given back, if enough lives for some of it to be such.
	forgottenAfter = 75 * time.Second
)

// keepHeapSmall sets the room after each collection, and gives memory back after bursts, until the function that it returns is called. Nothing runs in between.
// There is one room for the whole program, so whoever else keeps it small at the same time shares it, and the last to stop puts it back. An administrator's GOGC
// is left as it is.
func keepHeapSmall() (stop func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	return theHeap.keep()
}

var theHeap heapKeeper

type heapKeeper struct {
	mu      sync.Mutex
	users   int
	era     int         // how often the room has been put back: sentinels from before do nothing
	room    int         // in force
	since   time.Time   // the last collection, or the start
	settled *time.Timer // runs since the program was ready
	calm    *time.Timer // runs since the last collection or look
	from    uint64      // what was allocated at the last look; 0 when there was none since the last collection
	rests   bool        // memory is being given back, for which the next collection is
	last    bool        // the next look is for what has been forgotten since memory was given back

	resting sync.WaitGroup
}

func (k *heapKeeper) keep() (stop func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.users == 0 {
		before := debug.SetGCPercent(mostRoom)
		if before != mostRoom { // somebody's who embeds this
			debug.SetGCPercent(before)
			return func() {}
		}
		debug.SetGCPercent(startRoom)
		k.room, k.since = startRoom, time.Now()
		era := k.era
		k.settled = time.NewTimer(settlesAfter)
		k.settled.Stop()
		k.calm = time.AfterFunc(calmAfter, func() { k.rest(era) })
		k.arm()
	}
	k.users++
	return sync.OnceFunc(k.release)
}

// started has the start's garbage collected, since nothing else would do that soon: from then on it is known what lives, and calm can be told.
func (k *heapKeeper) started() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.users > 0 {
		k.settled = time.AfterFunc(settlesAfter, runtime.GC)
	}
}

func (k *heapKeeper) release() {
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

// sentinel is garbage at once: the next collection finds it. It is large enough to have pages of its own, because after a collection the runtime goes through those first. A cleanup would
// only run when it has gone through everything, which on a busy machine is when the next collection begins: the room would lag behind a growing heap.
type sentinel struct{ _ [40 << 10]byte }

func (k *heapKeeper) arm() { k.post(new(sentinel), k.era) }

func (k *heapKeeper) post(s *sentinel, era int) {
	runtime.SetFinalizer(s, func(s *sentinel) { k.collected(s, era) })
}

func (k *heapKeeper) collected(s *sentinel, era int) {
	lives := sizes("/gc/heap/live:bytes")[0]
	k.mu.Lock()
	defer k.mu.Unlock()
	if era != k.era {
		return
	}
	busy := !k.rests && time.Since(k.since) < busyWithin
	k.since = time.Now()
	// Setting it stops the world for a moment, so not for little.
	if room := heapRoom(lives, busy); room-k.room >= 5 || k.room-room >= 5 {
		debug.SetGCPercent(room)
		k.room = room
	}
	if !k.rests {
		k.calm.Reset(calmAfter)
		k.last = false
	}
	k.rests, k.from = false, 0
	k.post(s, era)
}

// rest gives memory back, if there is calm and it is worthwhile. If much still lives, there will be one more look.
func (k *heapKeeper) rest(era int) {
	k.mu.Lock()
	last := k.last
	rests := era == k.era && k.look(heapNow())
	k.rests, k.last = rests, false
	if rests {
		k.resting.Add(1)
	}
	k.mu.Unlock()
	if !rests {
		return
	}
	defer k.resting.Done()
	debug.FreeOSMemory()
	forgetProgram()
	if !last && heapNow().live > smallHeap {
		k.lookAgain(era)
	}
}

func (k *heapKeeper) lookAgain(era int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if era == k.era {
		k.last = true
		k.calm.Reset(forgottenAfter)
	}
}

// look says whether there is calm and something to give back, which the last look takes for granted: what has been forgotten counts as alive until it is collected. Where there
// is only the latter, it will be looked again.
func (k *heapKeeper) look(h heapSizes) bool {
	calm := isCalm(h, k.from, k.room)
	switch {
	case calm && k.last:
		return true
	case h.held < h.live+worthwhile:
		return false
	case calm:
		return true
	}
	k.from = h.allocated
	k.calm.Reset(calmAfter)
	return false
}

// forgetProgram gives back the program's pages. Half of them are only needed to start, so this is done when it has, too: who comes then (after a restart, all clients at once) finds
// that memory free.
func forgetProgram() {
	if program, err := os.Executable(); err == nil {
		// The mappings of a program stay as they are as long as it runs. What is not given back costs nothing else.
		_ = pages.Forget(program)
	}
}

// heapSizes are bytes: what lived at the last collection, what has been allocated of it and since, and all that Go holds for that.
type heapSizes struct{ live, allocated, held uint64 }

func heapNow() heapSizes {
	m := sizes("/gc/heap/live:bytes", "/memory/classes/heap/objects:bytes", "/memory/classes/heap/unused:bytes", "/memory/classes/heap/free:bytes")
	return heapSizes{live: m[0], allocated: m[1], held: m[1] + m[2] + m[3]}
}

// isCalm says whether little of the room has been used since the last collection, or since as much as from was allocated.
func isCalm(h heapSizes, from uint64, room int) bool {
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
