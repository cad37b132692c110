package deliver

import (
	"bytes"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// pair is a Conn and its other end.
func pair(t *testing.T) (*Conn, net.Conn) {
	t.Helper()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Listen(plain)
	defer l.Close()
	other, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.Close(), other.Close() })
	return c.(*Conn), other
}

func write(t *testing.T, c *Conn, b []byte) {
	t.Helper()
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
}

func TestHeldWritesLeaveTogether(t *testing.T) {
	c, other := pair(t)
	c.Hold(nil)
	write(t, c, []byte("one "))
	write(t, c, []byte("two "))
	buffer, all, err := c.Push()
	if err != nil || !all || string(buffer) != "one two " {
		t.Fatalf("%q %v %v", buffer, all, err)
	}
	write(t, c, []byte("three"))
	got := make([]byte, len("one two three"))
	if _, err := io.ReadFull(other, got); err != nil || string(got) != "one two three" {
		t.Fatalf("%q %v", got, err)
	}
}

func TestAFullSocketKeepsNobodyWaitingAndNothingIsLost(t *testing.T) {
	c, other := pair(t)
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // more than any socket takes
	c.Hold(nil)
	write(t, c, data)
	if _, all, err := c.Push(); err != nil || all {
		t.Fatalf("all %v, %v", all, err)
	}
	drained := make(chan error, 1)
	go func() {
		if err := c.Drain(); err != nil {
			drained <- err
			return
		}
		_, err := c.Write([]byte("end"))
		drained <- err
	}()
	got := make([]byte, len(data)+len("end"))
	if _, err := io.ReadFull(other, got); err != nil || !bytes.Equal(got[:len(data)], data) || string(got[len(data):]) != "end" {
		t.Fatalf("something else came: %v", err)
	}
	if err := <-drained; err != nil {
		t.Fatal(err)
	}
}

func TestATaskHasATurnForEveryTimeItWasWoken(t *testing.T) {
	p := NewPool()
	var told, done atomic.Int64 // what was asked for, and up to where turns have seen it
	var inside atomic.Int32
	task := NewTask(func() time.Duration {
		if inside.Add(1) != 1 {
			t.Error("two turns at once")
		}
		defer inside.Add(-1)
		done.Store(told.Load())
		if done.Load()%100 == 0 {
			return time.Microsecond
		}
		return Idle
	})
	for n := range int64(10000) {
		told.Store(n + 1)
		p.Wake(&task)
	}
	for deadline := time.Now().Add(time.Minute); done.Load() != told.Load(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the last turn saw %d of %d", done.Load(), told.Load())
		}
	}
}

func TestTurnsAreGivenInOrderAndEnd(t *testing.T) {
	p := NewPool()
	p.most = 1
	order := make(chan int, 100)
	left := 3
	again := NewTask(func() time.Duration {
		order <- 0
		if left--; left == 0 {
			return Ended
		}
		return Again
	})
	other := NewTask(func() time.Duration {
		order <- 1
		return Idle
	})
	p.mu.Lock() // both are woken before the worker begins
	p.enqueue(&again)
	p.enqueue(&other)
	p.mu.Unlock()
	for i, want := range []int{0, 1, 0, 0} {
		if got := <-order; got != want {
			t.Fatalf("turn %d was the task's %d", i, got)
		}
	}
	p.Wake(&again, &other)
	if got := <-order; got != 1 {
		t.Error("a task that had ended had another turn")
	}
}

func TestAQueueForgetsWhatItHasGiven(t *testing.T) {
	var q queue
	tasks := make([]Task, 5000)
	for i := range tasks {
		q.push(&tasks[i])
	}
	for i := range tasks {
		if q.pop() != &tasks[i] {
			t.Fatalf("task %d is out of turn", i)
		}
		if i%2 == 0 {
			q.push(&tasks[i])
		}
	}
	if q.len() != len(tasks)/2 || len(q.tasks) > len(tasks) {
		t.Errorf("%d left, %d kept", q.len(), len(q.tasks))
	}
}

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

func TestAGroupsTasksHaveTheirTurnsWithinItsOwn(t *testing.T) {
	p := NewPool()
	const tasks = 100
	var inside atomic.Int32
	var told, done [tasks]atomic.Int64
	members := make([]Task, tasks)
	g := p.NewGroup(func(g *Group) time.Duration {
		if inside.Add(1) != 1 {
			t.Error("two turns at once")
		}
		defer inside.Add(-1)
		ran := 0
		if g.Run(func() bool { ran++; return ran > 10 }) {
			return Again
		}
		return Idle
	})
	for i := range members {
		members[i] = g.Task(func() time.Duration {
			if inside.Load() != 1 {
				t.Error("a turn outside of the group's")
			}
			done[i].Store(told[i].Load())
			if i%3 == 0 {
				return time.Microsecond
			}
			return Idle
		})
	}
	for n := range int64(100) {
		for i := range members {
			told[i].Store(n + 1)
			p.Wake(&members[i])
		}
	}
	g.Wake()
	for i := range members {
		for deadline := time.Now().Add(time.Minute); done[i].Load() != 100; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("task %d saw %d of 100", i, done[i].Load())
			}
		}
	}
}
