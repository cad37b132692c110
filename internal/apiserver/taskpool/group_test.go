package taskpool

import (
	"sync/atomic"
	"testing"
	"time"
)

func TestTasksOfAGroupHaveTheirTurnsWithinItsOwn(t *testing.T) {
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
				t.Error("a turn outside the group's")
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
