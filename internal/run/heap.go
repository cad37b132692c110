package run

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// Go's collector lets a heap grow to twice what lives in it. That is right for a small one: the price of collecting is that of marking what lives, once for
// every so many bytes allocated. With a large cluster the same rule keeps as much again as garbage, which on a small machine is memory that pods
// could have. So the room for garbage grows more slowly than what lives: all of it up to smallHeap, half of it from largeHeap on, with which
// collecting costs twice as much a byte as with Go's own rule, at most.
const (
	smallHeap = 64 << 20
	largeHeap = 128 << 20

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

// keepHeapSmall sets the room after each collection, until the function that it returns is called. Nothing runs in between. There is one room for the whole
// program, so whoever else keeps it small at the same time shares it, and the last to stop puts it back. An administrator's GOGC is left as it is.
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
	era   int // how often the room has been put back: sentinels from before do nothing
	room  int // in force
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
		k.arm()
	}
	k.users++
	return sync.OnceFunc(k.release)
}

func (k *heapKeeper) release() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.users--; k.users == 0 {
		k.era++
		debug.SetGCPercent(mostRoom)
	}
}

// sentinel is garbage at once: it goes with the next collection.
type sentinel struct{ _ [16]byte }

func (k *heapKeeper) arm() { runtime.AddCleanup(new(sentinel), k.collected, k.era) }

func (k *heapKeeper) collected(era int) {
	lives := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(lives)
	k.mu.Lock()
	defer k.mu.Unlock()
	if era != k.era {
		return
	}
	// Setting it stops the world for a moment, so not for little.
	if room := heapRoom(lives[0].Value.Uint64()); room-k.room >= 5 || k.room-room >= 5 {
		debug.SetGCPercent(room)
		k.room = room
	}
	k.arm()
}
