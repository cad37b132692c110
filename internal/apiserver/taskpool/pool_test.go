package taskpool

import (
	"sync/atomic"
	"testing"
	"time"
)

func TestATaskHasATurnAfterEachTimeItIsWoken(t *testing.T) {
	p := NewPool()
	// told is up to where the task was woken, done up to where a turn has seen it.
	var told, done atomic.Int64
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

func TestTasksHaveTheirTurnsInOrderUntilTheyEnd(t *testing.T) {
	p := NewPool()
	p.maxWorkers = 1
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
		t.Error("an ended task had another turn")
	}
}

func TestAQueueKeepsNoMoreThanItHolds(t *testing.T) {
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
