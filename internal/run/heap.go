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
	largeHeap = 96 << 20

	mostRoom  = 100 // percent of what lives
	leastRoom = 50
)

// heapRoom is how many percent of what lives a heap may grow by before it is collected.
func heapRoom(lives uint64) int {
	switch {
	case lives <= smallHeap:
		return mostRoom
	case lives >= largeHeap:
		return leastRoom
	}
	return mostRoom - int((mostRoom-leastRoom)*(lives-smallHeap)/(largeHeap-smallHeap))
}

// After a burst (starting is one) nothing is allocated for a while, so nothing is collected, and what the burst has left stays: garbage, free memory that Go keeps for the
// next one, and pages of the program that were needed for it. When a collection is followed by calm, all that is given back.
const (
	calmAfter = 15 * time.Second
	// worthwhile is how much garbage and free memory are worth a collection.
	worthwhile = 16 << 20
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
	mu    sync.Mutex
	users int
	era   int         // how often the room has been put back: sentinels from before do nothing
	room  int         // in force
	calm  *time.Timer // runs since the last collection
	rests bool        // memory is being given back, for which the next collection is

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
		k.room = mostRoom
		era := k.era
		k.calm = time.AfterFunc(calmAfter, func() { k.rest(era) })
		k.arm()
	}
	k.users++
	return sync.OnceFunc(k.release)
}

func (k *heapKeeper) release() {
	k.mu.Lock()
	k.users--
	last := k.users == 0
	if last {
		k.era++
		k.calm.Stop()
		debug.SetGCPercent(mostRoom)
	}
	k.mu.Unlock()
	if last {
		k.resting.Wait()
	}
}

// sentinel is garbage at once: it goes with the next collection.
type sentinel struct{ _ [16]byte }

func (k *heapKeeper) arm() { runtime.AddCleanup(new(sentinel), k.collected, k.era) }

func (k *heapKeeper) collected(era int) {
	lives := sizes("/gc/heap/live:bytes")[0]
	k.mu.Lock()
	defer k.mu.Unlock()
	if era != k.era {
		return
	}
	// Setting it stops the world for a moment, so not for little.
	if room := heapRoom(lives); room-k.room >= 5 || k.room-room >= 5 {
		debug.SetGCPercent(room)
		k.room = room
	}
	if !k.rests {
		k.calm.Reset(calmAfter)
	}
	k.rests = false
	k.arm()
}

// rest gives memory back, if there is calm and it is worthwhile.
func (k *heapKeeper) rest(era int) {
	k.mu.Lock()
	rests := era == k.era && isCalm(heapNow(), k.room)
	k.rests = rests
	if rests {
		k.resting.Add(1)
	}
	k.mu.Unlock()
	if !rests {
		return
	}
	defer k.resting.Done()
	debug.FreeOSMemory()
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

// isCalm says whether there is something to give back and little of the room has been used since the last collection: the next one is far.
func isCalm(h heapSizes, room int) bool {
	return h.held >= h.live+worthwhile && h.allocated <= h.live+h.live*uint64(room)/200
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
