package taskpool

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestLongWorkTakesALaneAgainAndAgain(t *testing.T) {
	l := newLanes(1, maxLaneHold)
	turns := l.Turns(3)
	for range 3 {
		turns.Step()
	}
	if len(l.free) != 1 {
		t.Error("short work has taken a lane")
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
	turns.Step() // the other goroutine gets the lane, now or a little later
	<-waits
	turns.End()
	turns.End()
	if len(l.free) != 1 {
		t.Error("the lane was not returned")
	}
	var none Turns
	none.Step()
	none.End()
}

// crowd takes lanes from many goroutines, for piece after piece, until end. It counts the pieces.
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

func TestAReadyGoroutineRunsBeforeTheNextPiece(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	l := newLanes(1, time.Hour)
	pieces, end := crowd(l)
	for pieces.Load() < 100 {
		runtime.Gosched()
	}
	const rounds = 200
	before := pieces.Load()
	for range rounds {
		runtime.Gosched() // ready again, behind all that are ready now
	}
	between := pieces.Load() - before
	end()
	if between > 3*rounds {
		t.Errorf("a goroutine was ready %d times, and waited for %d pieces", rounds, between)
	}
}

func TestARequestIsReadBeforeTheNextPiece(t *testing.T) {
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
	got := make(chan struct{})
	go func() {
		defer close(got)
		var b [1]byte
		for range rounds {
			if _, err := requests.Read(b[:]); err != nil {
				t.Error(err)
				return
			}
			between += pieces.Load() - sent
			got <- struct{}{}
		}
	}()
	for range rounds {
		runtime.Gosched() // until the reader waits again
		sent = pieces.Load()
		if _, err := client.Write([]byte{0}); err != nil {
			t.Fatal(err)
		}
		<-got
	}
	end()
	<-got
	if between > 10*rounds {
		t.Errorf("%d requests arrived, and waited for %d pieces", rounds, between)
	}
}

func TestALaneIsTakenFromASlowHolder(t *testing.T) {
	l := newLanes(1, maxLaneHold)
	leave := l.Take()
	leave()
	leave() // the second call does nothing
	waiting := l.Take()
	next := make(chan func())
	go func() { next <- l.Take() }()
	(<-next)() // before waiting was called
	waiting()
	l.Take()()
	if len(l.free) != 1 {
		t.Error("the lane was not returned")
	}
}
