package taskpool

import (
	"runtime"
	"sync"
	"time"
)

// Lanes bound how many large lists have a piece encoded and sent at the same time: one less than
// there are CPUs, but at least one. A nil *Lanes sets no bound.
//
// Without a bound, fifty lists are fifty goroutines that a write has to wait for, each until its
// socket is full. With lanes all lists advance piece by piece, and a write waits for one piece.
// On a machine with few CPUs, lists pay for that (with one lane on two CPUs up to two fifths of
// their rate), so only lists that are large enough to delay others take lanes.
type Lanes struct {
	free    chan *lane
	maxHold time.Duration
	gap     time.Duration // between two polls of the network
}

// NewLanes makes the lanes of this machine.
func NewLanes() *Lanes { return newLanes(max(1, runtime.GOMAXPROCS(0)-1), maxLaneHold) }

func newLanes(n int, maxHold time.Duration) *Lanes {
	l := &Lanes{make(chan *lane, n), maxHold, pollEvery}
	for range n {
		l.free <- newLane()
	}
	return l
}

const (
	// maxLaneHold is how long a list that waits for a slow client keeps its lane from others.
	maxLaneHold = 2 * time.Millisecond
	// pollEvery is how long successive holders of a lane may run without polling the network.
	pollEvery = time.Millisecond
)

// Take waits for a lane, first come, first served. leave returns the lane; after maxLaneHold it is
// returned anyway.
//
// A list that has got a lane first lets all other ready goroutines run. Otherwise, when one list
// leaves a lane, Go would run the next one at once on the same CPU, before anything else that is
// ready there, and so on. Lists that wait for a lane are not ready, so no more lists than there are
// lanes delay other goroutines. The list also polls the network, so that requests that have just
// arrived run first too.
func (l *Lanes) Take() (leave func()) {
	if l == nil {
		return func() {}
	}
	taken := <-l.free
	runtime.Gosched()
	taken.poll(l.gap)
	var once sync.Once
	giveBack := func() { once.Do(func() { l.free <- taken }) }
	timer := time.AfterFunc(l.maxHold, giveBack)
	return func() {
		timer.Stop()
		giveBack()
	}
}

// Turns divide long work that sends nothing: after a number of steps the work takes a lane, and
// takes it anew after as many steps again. Shorter work never waits. The zero value takes no lanes.
type Turns struct {
	lanes *Lanes
	every int
	n     int
	leave func()
}

// Turns begins work that takes a lane every so many steps. Call End when the work is done.
func (l *Lanes) Turns(every int) Turns { return Turns{lanes: l, every: every} }

// Step is called before each step.
func (t *Turns) Step() {
	if t.lanes == nil {
		return
	}
	if t.n > 0 && t.n%t.every == 0 {
		t.End()
		t.leave = t.lanes.Take()
	}
	t.n++
}

// End returns the lane.
func (t *Turns) End() {
	if t.leave != nil {
		t.leave()
		t.leave = nil
	}
}
