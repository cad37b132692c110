package taskpool

import (
	"runtime"
	"sync"
	"time"
)

// A turn returns how long its task rests, or one of these.
const (
	// Idle: the next turn comes when the task is woken.
	Idle time.Duration = 0
	// Again: there is more to do, after the turns of other tasks.
	Again time.Duration = -1
	// Ended: there is no next turn.
	Ended time.Duration = -2
)

// Task is work that is woken and then has a turn. Make one with NewTask or Group.Task.
type Task struct {
	turn  func() time.Duration
	group *Group // nil: the task belongs to no group
	// state and due are guarded by Pool.mu.
	state state
	due   time.Duration // when the task's rest is over, since Pool.since
}

// NewTask makes a task. turn returns how long the task rests before its next turn even if it is
// woken, or one of the constants above.
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
	since      time.Time
	maxWorkers int

	mu      sync.Mutex // guards what follows, and the states of tasks
	ready   queue
	resting queue // about in the order of their due times: all rests are about equally long
	workers int
	alarm   *time.Timer // nil: no task rests
}

// NewPool makes a pool with a worker for each CPU.
func NewPool() *Pool { return &Pool{since: time.Now(), maxWorkers: runtime.GOMAXPROCS(0)} }

// Wake gives each of the tasks a turn soon. A task that rests has it when its rest is over. A task
// that is having a turn has another one.
func (p *Pool) Wake(tasks ...*Task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range tasks {
		p.wake(t)
	}
}

// wake needs mu.
func (p *Pool) wake(t *Task) {
	switch t.state {
	case idle:
		p.enqueue(t)
	case running:
		t.state = wokenRunning
	}
}

// enqueue needs mu.
func (p *Pool) enqueue(t *Task) {
	t.state = queued
	if t.group != nil {
		t.group.ready.push(t)
		p.wake(&t.group.task)
		return
	}
	p.ready.push(t)
	if p.workers < p.maxWorkers {
		p.workers++
		go p.work()
	}
}

// work gives turns until no task is ready.
func (p *Pool) work() {
	for {
		t := p.next()
		if t == nil {
			return
		}
		p.finishTurn(t, t.turn())
		runtime.Gosched() // the goroutines that produce events run too
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

// finishTurn takes what a task's turn returned.
func (p *Pool) finishTurn(t *Task, rest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case rest == Ended:
		t.state = ended
	case rest > 0:
		t.state, t.due = resting, time.Since(p.since)+rest
		p.resting.push(t)
		if p.alarm == nil {
			p.alarm = time.AfterFunc(rest, p.endRests)
		}
	case rest == Again, t.state == wokenRunning:
		p.enqueue(t)
	default:
		t.state = idle
	}
}

// slack is how much too early a rest may end, so that the rests of a thousand tasks do not end one
// by one.
const slack = time.Millisecond

// endRests gives turns to the tasks that have rested.
func (p *Pool) endRests() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Since(p.since)
	for p.resting.len() > 0 {
		if left := p.resting.first().due - now; left > slack {
			p.alarm = time.AfterFunc(left, p.endRests)
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
