package taskpool

import (
	"runtime"
	"sync"
	"time"
)

// Lanes bound how many large answers have a piece made and sent at any moment: to one less than there are CPUs, at least one. Fifty lists that are sent side by
// side are fifty goroutines that a write has to wait behind, each for as long as its socket takes more. Piece by piece, in turn, all of them advance, and a
// write waits for one piece. Where there are few CPUs that costs lists much of their pace (two fifths with one lane on two CPUs); only those
// that are large enough to be in the way take lanes. A nil *Lanes sets no bound.
type Lanes struct {
	free     chan *lane
	patience time.Duration
	gap      time.Duration
}

// NewLanes makes lanes for this machine.
func NewLanes() *Lanes { return newLanes(max(1, runtime.GOMAXPROCS(0)-1), lanePatience) }

func newLanes(n int, patience time.Duration) *Lanes {
	l := &Lanes{make(chan *lane, n), patience, listenEvery}
	for range n {
		l.free <- newLane()
	}
	return l
}

// lanePatience is how long a lane is kept from others by somebody who waits for a slow client.
const lanePatience = 2 * time.Millisecond

// Take waits for a lane, first come, first served. leave gives it back; after the lanes' patience it is given back anyhow.
//
// Whoever has got a lane lets all go first that are ready to run: who leaves a lane wakes the next one, which Go runs at once, on the same CPU, before anything else that waits
// there, and so on from one to the next. Those that wait for a lane are not ready. So of all these answers no more than have lanes are ever in another goroutine's way. And it
// listens to the network, so that those go first as well whose request has come by now.
func (l *Lanes) Take() (leave func()) {
	if l == nil {
		return func() {}
	}
	taken := <-l.free
	runtime.Gosched()
	taken.listen(l.gap)
	var once sync.Once
	giveBack := func() { once.Do(func() { l.free <- taken }) }
	timer := time.AfterFunc(l.patience, giveBack)
	return func() {
		timer.Stop()
		giveBack()
	}
}

// listenEvery is how long lanes' holders, one after the other, may go on without listening to the network.
const listenEvery = time.Millisecond

// Turns are for work that goes on for long without sending anything: after so many steps it takes a lane, and takes it anew after as many again.
// What is over before that waits for nobody. The zero value takes none.
type Turns struct {
	lanes *Lanes
	every int
	n     int
	leave func()
}

// Turns begins such work. It has to be ended.
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

// End gives the lane back.
func (t *Turns) End() {
	if t.leave != nil {
		t.leave()
		t.leave = nil
	}
}
