package taskpool

import (
	"runtime"
	"sync/atomic"
	"time"
)

const (
	// Tick is how often the busy watches are counted, and the longest that an event waits for others to go with it.
	Tick = 50 * time.Millisecond
	// flushesPerCPU is how many times a second each CPU may write to busy watches: about a fifth of its time.
	flushesPerCPU = 10000
	// shortestGather: below that, gathering gains nothing.
	shortestGather = time.Millisecond
)

// Pace lets watches that get events faster than they can be written one by one gather some for each write. A write to a socket
// (a system call, a packet, the reader's wake-up) costs as much as thirty events in it. A watch that has had no event for
// Tick gets its next one at once; one that has just had some waits for the time that writing to all watches as busy as itself takes.
type Pace struct {
	since time.Time
	tick  atomic.Int64 // number of the running tick
	busy  atomic.Int64 // watches written to in it
	// gap is the time, in ns, between two writes to the same watch.
	gap atomic.Int64
}

// NewPace makes a Pace.
func NewPace() *Pace { return &Pace{since: time.Now()} }

// Paced is one watch's part.
type Paced struct {
	tick int64
	last time.Duration // since Pace.since
}

// Wrote notes a write, and says how long to gather before the next.
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

// adjust takes over the number of watches that were busy in a tick; ticks is how long ago it began.
func (p *Pace) adjust(busy, ticks int64) {
	gap := time.Duration(busy) * time.Second / time.Duration(flushesPerCPU*runtime.GOMAXPROCS(0))
	if gap < shortestGather || ticks > 1 {
		gap = 0
	}
	p.gap.Store(int64(min(gap, Tick)))
}
