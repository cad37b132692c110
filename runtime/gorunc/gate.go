//go:build inprocess

package runc

import (
	"sync"
	"time"
)

// patience is how long the reaper waits for starts. A longer start hangs, for example in a mount.
// It then fails because its helper's exit status is lost. Otherwise the shim would miss all other
// exits in the pod.
const patience = 10 * time.Second

// gate allows either starts of processes or the reaping of dead children. During a start,
// libcontainer waits for its helpers; a reaper of all dead children would take their exit statuses.
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

// start runs fn, which may start processes and wait for them.
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

// reap runs fn when no start is running, or after patience. Only one caller at a time.
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

// Reap calls reap, which takes the exit statuses of all dead children, when no start needs them.
// Not safe for concurrent use.
func Reap(reap func() error) error { return children.reap(patience, reap) }
