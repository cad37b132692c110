package taskpool

import "time"

// Group is tasks that share what only one worker can have at a time, such as a connection. A task that is woken wakes its group, and has its turn within that of
// the group, which is a task too. Make one with NewGroup.
type Group struct {
	pool  *Pool
	task  Task
	ready queue // guarded by Pool.mu
}

// NewGroup makes a group. In its turn it calls Run, or leaves that for another turn.
func (p *Pool) NewGroup(turn func(*Group) time.Duration) *Group {
	g := &Group{pool: p}
	g.task = NewTask(func() time.Duration { return turn(g) })
	return g
}

// Task makes one of the group's tasks; turn is as for NewTask.
func (g *Group) Task(turn func() time.Duration) Task { return Task{turn: turn, group: g} }

// Wake gives the group a turn, soon, though none of its tasks is woken.
func (g *Group) Wake() { g.pool.Wake(&g.task) }

// Run gives turns to the tasks that have been woken, at most one to each, until it is enough. It tells whether there are others. It is for the group's turn.
func (g *Group) Run(enough func() bool) (more bool) {
	for left := g.waiting(); left > 0 && !enough(); left-- {
		t := g.next()
		g.pool.took(t, t.turn())
	}
	return g.waiting() > 0
}

func (g *Group) waiting() int {
	g.pool.mu.Lock()
	defer g.pool.mu.Unlock()
	return g.ready.len()
}

func (g *Group) next() *Task {
	g.pool.mu.Lock()
	defer g.pool.mu.Unlock()
	t := g.ready.pop()
	t.state = running
	return t
}
