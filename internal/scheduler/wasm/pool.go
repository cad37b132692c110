package wasm

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// maxInstances is the number of instances of a guest. If all belong to cycles, the oldest cycle
// that waits loses its instance.
const maxInstances = 32

// cycle is the scheduling of one pod with a guest. It keeps its instance, since guests keep what
// they compute for later calls of the same pod.
type cycle struct {
	guest    *Guest
	snapshot *framework.Snapshot
	pod      *corev1.Pod

	mu       sync.Mutex // guards the fields below, and serializes the calls
	instance *instance
	began    bool // prefilter was called
	ended    bool
	podProto []byte
	spent    time.Duration
}

// End implements framework.Ender.
func (c *cycle) End() {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return
	}
	c.ended = true
	in := c.instance
	c.instance = nil
	c.mu.Unlock()
	c.guest.pool.end(c, in)
}

// release returns the instance before the cycle ends. A later call takes another one.
func (c *cycle) release() {
	c.mu.Lock()
	in := c.instance
	c.instance = nil
	c.mu.Unlock()
	c.guest.pool.release(c, in)
}

// pool has the instances of a guest.
type pool struct {
	guest *Guest

	mu       sync.Mutex  // guards the fields below
	changed  sync.Cond   // an instance has started, or is free or gone; its L is mu
	free     []*instance // the last one is used first, since its memory is warm
	held     []*cycle    // cycles with an instance; the oldest first
	live     int         // instances, those that start included
	starting int
	cycles   int
	closed   bool
}

func (p *pool) init(g *Guest) { p.guest, p.changed.L = g, &p.mu }

// begin starts a cycle.
func (p *pool) begin(snapshot *framework.Snapshot, pod *corev1.Pod) *cycle {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cycles++
	return &cycle{guest: p.guest, snapshot: snapshot, pod: pod}
}

// end ends a cycle that had the instance, or none. The last one closes a closed guest.
func (p *pool) end(c *cycle, in *instance) {
	p.release(c, in)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cycles--
	p.closeUnused()
}

// release takes the instance back that the cycle had; nil is none.
func (p *pool) release(c *cycle, in *instance) {
	if in == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave(c)
	p.changed.Broadcast()
	if p.live > maxInstances || p.closed {
		p.live--
		in.close()
		return
	}
	p.free = append(p.free, in)
}

// put adds a new instance.
func (p *pool) put(in *instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live++
	p.free = append(p.free, in)
}

// take gives a cycle an instance. The caller holds the cycle's lock. A new instance starts without
// the pool's lock, since the guest's start function may be slow, and other cycles go on meanwhile.
func (p *pool) take(c *cycle) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.reuse(c) {
		if p.live >= maxInstances && p.starting > 0 {
			p.changed.Wait()
			continue
		}
		if err := p.start(c); err != nil {
			return err
		}
		break
	}
	c.began = false
	p.held = append(p.held, c)
	return nil
}

// reuse gives a cycle a free instance, or that of another cycle if there are as many as allowed.
func (p *pool) reuse(c *cycle) bool {
	if n := len(p.free); n > 0 {
		c.instance, p.free = p.free[n-1], p.free[:n-1]
		return true
	}
	return p.live >= maxInstances && p.steal(c)
}

// start starts an instance. The caller holds the pool's lock, which start leaves for that time. If
// all other instances are in a call, there may be more than maxInstances.
func (p *pool) start(c *cycle) (err error) {
	p.live++
	p.starting++
	p.mu.Unlock()
	c.instance, err = p.guest.newInstance()
	p.mu.Lock()
	p.starting--
	if err != nil {
		p.live--
	}
	p.changed.Broadcast()
	return err
}

// steal takes the instance of a cycle that is not in a call. That cycle starts again in another
// instance if it goes on.
func (p *pool) steal(c *cycle) bool {
	for i, other := range p.held {
		if !other.mu.TryLock() {
			continue
		}
		c.instance, other.instance = other.instance, nil
		other.mu.Unlock()
		if c.instance == nil {
			continue // it is ending, and about to leave
		}
		p.held = slices.Delete(p.held, i, i+1)
		return true
	}
	return false
}

// drop closes the instance of a cycle after a failure: its memory may be in any state.
func (p *pool) drop(c *cycle) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave(c)
	p.live--
	p.changed.Broadcast()
	c.instance.close()
	c.instance = nil
}

func (p *pool) leave(c *cycle) {
	if i := slices.Index(p.held, c); i >= 0 {
		p.held = slices.Delete(p.held, i, i+1)
	}
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.closeUnused()
}

func (p *pool) closeUnused() {
	if !p.closed {
		return
	}
	for _, in := range p.free {
		in.close()
		p.live--
	}
	p.free = nil
	if p.cycles == 0 {
		_ = p.guest.runtime.Close(context.Background())
	}
}
