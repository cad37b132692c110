//go:build inprocess

package runc

import (
	"sync"
	"time"
)

// patience is how long the reaper waits for starts under way. A start that takes longer hangs (in a mount, say); it then fails for
// want of its helper's exit status, which is better than that no other exit in the pod is noticed.
const patience = 10 * time.Second

// gate lets either processes be started or dead children be reaped. libcontainer waits for the helpers of a start itself; a reaper
// that takes any dead child would take them away.
type gate struct {
	mu       sync.Mutex
	changed  sync.Cond
	starting int
	reaping  bool
}

func newGate() *gate {
	g := &gate{}
	g.changed.L = &g.mu
	return g
}

// start runs fn, which may start and wait for processes.
func (g *gate) start(fn func() error) error {
	g.mu.Lock()
	for g.reaping {
		g.changed.Wait()
	}
	g.starting++
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		g.starting--
		g.changed.Broadcast()
		g.mu.Unlock()
	}()
	return fn()
}

// reap runs fn once no start is under way, or patience is over. One caller at a time.
func (g *gate) reap(patience time.Duration, fn func() error) error {
	g.mu.Lock()
	g.reaping = true
	over := false
	timer := time.AfterFunc(patience, func() {
		g.mu.Lock()
		over = true
		g.changed.Broadcast()
		g.mu.Unlock()
	})
	for g.starting > 0 && !over {
		g.changed.Wait()
	}
	timer.Stop()
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		g.reaping = false
		g.changed.Broadcast()
		g.mu.Unlock()
	}()
	return fn()
}

var children = newGate()

// Reap calls reap, which takes the exit statuses of all dead children, at a time when no start needs them. Not for concurrent use.
func Reap(reap func() error) error { return children.reap(patience, reap) }
