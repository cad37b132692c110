package taskpool

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestSomethingLongTakesTurns(t *testing.T) {
	l := newLanes(1, lanePatience)
	turns := l.Turns(3)
	for range 3 {
		turns.Step()
	}
	if len(l.free) != 1 {
		t.Error("a lane was taken before the work is long")
	}
	turns.Step()
	for range 2 {
		turns.Step()
	}
	waits := make(chan struct{})
	go func() {
		defer close(waits)
		l.Take()()
	}()
	turns.Step() // the other one's turn comes, now or a little later
	<-waits
	turns.End()
	turns.End()
	if len(l.free) != 1 {
		t.Error("the lane was not given back")
	}
	var none Turns
	none.Step()
	none.End()
}

// crowd takes the lanes for piece after piece, from many goroutines, and counts them until it is ended.
func crowd(l *Lanes) (pieces *atomic.Int64, end func()) {
	pieces = new(atomic.Int64)
	var stop atomic.Bool
	var lists sync.WaitGroup
	for range 50 {
		lists.Go(func() {
			for !stop.Load() {
				leave := l.Take()
				pieces.Add(1)
				leave()
			}
		})
	}
	return pieces, func() { stop.Store(true); lists.Wait() }
}

func TestWhoIsReadyGoesBeforeALanesNextPiece(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	l := newLanes(1, time.Hour)
	pieces, end := crowd(l)
	for pieces.Load() < 100 {
		runtime.Gosched()
	}
	const rounds = 200
	before := pieces.Load()
	for range rounds {
		runtime.Gosched() // ready, and behind all that are
	}
	between := pieces.Load() - before
	end()
	if between > 3*rounds {
		t.Errorf("%d times ready, and waited for %d pieces", rounds, between)
	}
}

func TestWhatTheNetworkBringsGoesBeforeALanesNextPiece(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	l := newLanes(1, time.Hour)
	l.gap = 0
	requests, client, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer requests.Close()
	defer client.Close()
	pieces, end := crowd(l)
	const rounds = 100
	var sent, between int64
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		var b [1]byte
		for range rounds {
			if _, err := requests.Read(b[:]); err != nil {
				t.Error(err)
				return
			}
			between += pieces.Load() - sent
			heard <- struct{}{}
		}
	}()
	for range rounds {
		runtime.Gosched() // the reader waits again
		sent = pieces.Load()
		if _, err := client.Write([]byte{0}); err != nil {
			t.Fatal(err)
		}
		<-heard
	}
	end()
	<-heard
	if between > 10*rounds {
		t.Errorf("%d requests came, and waited for %d pieces", rounds, between)
	}
}

func TestALaneIsForOneAtATimeButNotForEver(t *testing.T) {
	l := newLanes(1, lanePatience)
	leave := l.Take()
	leave()
	leave() // once is enough
	waiting := l.Take()
	next := make(chan func())
	go func() { next <- l.Take() }()
	(<-next)() // though the first one has not left: it waits for its client
	waiting()
	l.Take()()
	if len(l.free) != 1 {
		t.Error("somebody has not left")
	}
}
