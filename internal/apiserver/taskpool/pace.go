package taskpool

import (
	"runtime"
	"sync/atomic"
	"time"
)

const (
	// Tick is how often the busy watches are counted. It is also the longest time for which an
	// event waits for others.
	Tick = 50 * time.Millisecond
	// flushesPerCPU is how many writes to busy watches each CPU may make in a second. They take
	// about a fifth of its time.
	flushesPerCPU = 10000
	// minGather is the shortest gathering that gains anything.
	minGather = time.Millisecond
)

// Pace lets watches gather events for each write if the events come faster than they can be written
// one by one. A write to a socket (a system call, a packet, the reader's wake-up) costs as much as
// thirty of its events. A watch without an event for a Tick gets its next event at once. A watch
// that has just had some waits for as long as it takes to write to all equally busy watches.
type Pace struct {
	since time.Time
	tick  atomic.Int64 // number of the running tick
	busy  atomic.Int64 // watches that were written to in it
	// gap is the time between two writes to the same watch, in nanoseconds.
	gap atomic.Int64
}

// NewPace makes a Pace.
func NewPace() *Pace { return &Pace{since: time.Now()} }

// Paced is what a Pace knows of one watch.
type Paced struct {
	tick int64
	last time.Duration // since Pace.since
}

// Wrote notes a write, and returns how long to gather before the next one.
func (p *Pace) Wrote(w *Paced) time.Duration {
	w.last = time.Since(p.since)
	tick := int64(w.last / Tick)
	if old := p.tick.Load(); tick > old && p.tick.CompareAndSwap(old, tick) {
		p.adjust(p.busy.Swap(0), tick-old)
	}
	if w.tick != tick {
		w.tick = tick
		p.busy.Add(1)
	}
	return time.Duration(p.gap.Load())
}

// adjust sets the gap from the number of watches that were busy in a tick, which began so many
// ticks ago.
func (p *Pace) adjust(busy, ticks int64) {
	gap := time.Duration(busy) * time.Second / time.Duration(flushesPerCPU*runtime.GOMAXPROCS(0))
	if gap < minGather || ticks > 1 {
		gap = 0
	}
	p.gap.Store(int64(min(gap, Tick)))
}
