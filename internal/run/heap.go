package run

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
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

// keepHeapSmall sets the room after each collection, until the function that it returns is called. Nothing runs in between. An administrator's GOGC is left
// as it is.
func keepHeapSmall() (stop func()) {
	k := &heapKeeper{room: mostRoom}
	if before := debug.SetGCPercent(mostRoom); before != mostRoom {
		debug.SetGCPercent(before)
		return func() {}
	}
	k.arm()
	return func() {
		k.stopped.Store(true)
		debug.SetGCPercent(mostRoom)
	}
}

type heapKeeper struct {
	room    int // in force; only the collection's cleanup touches it
	stopped atomic.Bool
}

// sentinel is garbage at once: it goes with the next collection.
type sentinel struct{ _ [16]byte }

func (k *heapKeeper) arm() { runtime.AddCleanup(new(sentinel), (*heapKeeper).collected, k) }

func (k *heapKeeper) collected() {
	if k.stopped.Load() {
		return
	}
	lives := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(lives)
	// Setting it stops the world for a moment, so not for little.
	if room := heapRoom(lives[0].Value.Uint64()); room-k.room >= 5 || k.room-room >= 5 {
		debug.SetGCPercent(room)
		k.room = room
	}
	k.arm()
}
