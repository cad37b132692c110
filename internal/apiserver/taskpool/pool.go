package taskpool

import (
	"runtime"
	"sync"
	"time"
)

// What a task's turn may give besides the time to rest.
const (
	// Idle: the next turn is when somebody wakes the task.
	Idle time.Duration = 0
	// Again: there is more to do, after others had their turns.
	Again time.Duration = -1
	// Ended: there is no next turn.
	Ended time.Duration = -2
)

// Task is woken and then has a turn. Make one with NewTask.
type Task struct {
	turn  func() time.Duration
	group *Group // that it has its turns in; nil: it is on its own
	// state and due are guarded by Pool.mu.
	state state
	due   time.Duration // when its rest is over, since Pool.since
}

// NewTask makes a task. Its turn gives how long it rests before the next one though it is woken, or one of the constants above.
func NewTask(turn func() time.Duration) Task { return Task{turn: turn} }

type state uint8

const (
	idle state = iota
	queued
	running
	wokenRunning
	resting
	ended
)

// Pool gives tasks their turns. Make one with NewPool.
type Pool struct {
	since time.Time
	most  int // workers

	mu      sync.Mutex // guards what follows, and the states of tasks
	ready   queue
	resting queue // about in the order of their due times: rests are about equally long
	workers int
	alarm   *time.Timer // nil: nobody rests
}

// NewPool makes a pool with a worker for each CPU.
func NewPool() *Pool { return &Pool{since: time.Now(), most: runtime.GOMAXPROCS(0)} }

// Wake gives tasks a turn, soon. One that rests has it when its rest is over, one that is having a turn has another one.
func (p *Pool) Wake(tasks ...*Task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range tasks {
		p.wake(t)
	}
}

// wake; mu is held.
func (p *Pool) wake(t *Task) {
	switch t.state {
	case idle:
		p.enqueue(t)
	case running:
		t.state = wokenRunning
	}
}

// enqueue; mu is held.
func (p *Pool) enqueue(t *Task) {
	t.state = queued
	if t.group != nil {
		t.group.ready.push(t)
		p.wake(&t.group.task)
		return
	}
	p.ready.push(t)
	if p.workers < p.most {
		p.workers++
		go p.work()
	}
}

// work gives turns until there are none to give.
func (p *Pool) work() {
	for {
		t := p.next()
		if t == nil {
			return
		}
		p.took(t, t.turn())
		runtime.Gosched() // those who write the events have their turns too
	}
}

func (p *Pool) next() *Task {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ready.len() == 0 {
		p.workers--
		return nil
	}
	t := p.ready.pop()
	t.state = running
	return t
}

// took is told what a task's turn gave.
func (p *Pool) took(t *Task, rest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case rest == Ended:
		t.state = ended
	case rest > 0:
		t.state, t.due = resting, time.Since(p.since)+rest
		p.resting.push(t)
		if p.alarm == nil {
			p.alarm = time.AfterFunc(rest, p.rested)
		}
	case rest == Again, t.state == wokenRunning:
		p.enqueue(t)
	default:
		t.state = idle
	}
}

// together is how much earlier than it is due a rest may end, so that those of a thousand tasks do not end one by one.
const together = time.Millisecond

// rested gives turns to those whose rest is over.
func (p *Pool) rested() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Since(p.since)
	for p.resting.len() > 0 {
		if left := p.resting.first().due - now; left > together {
			p.alarm = time.AfterFunc(left, p.rested)
			return
		}
		p.enqueue(p.resting.pop())
	}
	p.alarm = nil
}

// queue is first in, first out.
type queue struct {
	tasks []*Task
	head  int
}

func (q *queue) len() int     { return len(q.tasks) - q.head }
func (q *queue) first() *Task { return q.tasks[q.head] }
func (q *queue) push(t *Task) { q.tasks = append(q.tasks, t) }

func (q *queue) pop() *Task {
	t := q.tasks[q.head]
	q.tasks[q.head] = nil
	q.head++
	if q.head == len(q.tasks) {
		q.tasks, q.head = q.tasks[:0], 0
	} else if q.head > 1024 && q.head > len(q.tasks)/2 {
		n := copy(q.tasks, q.tasks[q.head:])
		clear(q.tasks[n:])
		q.tasks, q.head = q.tasks[:n], 0
	}
	return t
}
