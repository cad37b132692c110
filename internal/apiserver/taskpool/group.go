package taskpool

import "time"

// Group is tasks that share what one worker at a time can use, such as a connection. The group is a
// task too: a woken task wakes its group and has its turn within the group's. Make one with
// NewGroup.
type Group struct {
	pool  *Pool
	task  Task
	ready queue // guarded by Pool.mu
}

// NewGroup makes a group. Its turn calls Run, or leaves that to a later turn.
func (p *Pool) NewGroup(turn func(*Group) time.Duration) *Group {
	g := &Group{pool: p}
	g.task = NewTask(func() time.Duration { return turn(g) })
	return g
}

// Task makes a task of the group; turn is as for NewTask.
func (g *Group) Task(turn func() time.Duration) Task { return Task{turn: turn, group: g} }

// Wake gives the group a turn soon, even if none of its tasks was woken.
func (g *Group) Wake() { g.pool.Wake(&g.task) }

// Run gives each task that was woken one turn, until enough returns true. It says whether tasks are
// left. Call it in the group's turn.
func (g *Group) Run(enough func() bool) (more bool) {
	for left := g.waiting(); left > 0 && !enough(); left-- {
		t := g.next()
		g.pool.finishTurn(t, t.turn())
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
