package wasm

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// gate is a log that holds up the goroutine that writes to it.
type gate struct {
	slog.Handler
	mu      sync.Mutex
	open    bool
	arrived chan struct{}
	opened  chan struct{}
}

func (g *gate) Enabled(context.Context, slog.Level) bool { return true }

func (g *gate) Handle(context.Context, slog.Record) error {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	if !open {
		g.arrived <- struct{}{}
		<-g.opened
	}
	return nil
}

// slowStart returns a guest whose start function writes to a log, which is open for the first
// instance only.
func slowStart(t *testing.T) (plugin, *gate) {
	g := &gate{open: true, arrived: make(chan struct{}), opened: make(chan struct{})}
	module := assemble([]imported{{moduleKlog, "log", write3}},
		defined{"_initialize", toNone, callImport(0, 0, 0, 1)}, defined{"prefilter", toI32, constI32(0)}, defined{"filter", toI32, constI32(0)})
	p := load(t, module, Settings{Log: slog.New(g)})
	g.mu.Lock()
	g.open = false
	g.mu.Unlock()
	return p, g
}

func TestAnInstanceThatStartsHoldsUpNoOtherCycle(t *testing.T) {
	p, gate := slowStart(t)
	snapshot := nodes(nil)
	begin := func(name string) framework.State {
		state := framework.State{}
		if _, status := p.PreFilter(state, podInfo(name, nil), snapshot); !status.OK() {
			t.Error(status)
		}
		return state
	}
	first := begin("first")
	var slow sync.WaitGroup
	slow.Go(func() { begin("slow").End() })
	<-gate.arrived
	if status := p.Filter(first, podInfo("first", nil), snapshot.Nodes.At(0)); !status.OK() {
		t.Error(status)
	}
	first.End()
	begin("second").End()
	close(gate.opened)
	slow.Wait()
	if p.pool.live != 2 || len(p.pool.free) != 2 || p.pool.starting != 0 {
		t.Errorf("there are %d instances, %d free, %d start", p.pool.live, len(p.pool.free), p.pool.starting)
	}
}

func TestInstancesThatStartCountForTheBound(t *testing.T) {
	p, gate := slowStart(t)
	snapshot := nodes(nil)
	first := framework.State{} // has the instance that is there already
	p.PreFilter(first, podInfo("first", nil), snapshot)
	const cycles = 2 * maxInstances
	var running sync.WaitGroup
	for i := range cycles {
		running.Go(func() {
			state := framework.State{}
			if _, status := p.PreFilter(state, podInfo(fmt.Sprint("pod", i), nil), snapshot); !status.OK() {
				t.Error(status)
			}
			state.End()
		})
	}
	for range maxInstances - 1 {
		<-gate.arrived
	}
	p.pool.mu.Lock()
	live, starting := p.pool.live, p.pool.starting
	p.pool.mu.Unlock()
	if live != maxInstances || starting != maxInstances-1 {
		t.Errorf("%d instances, %d of them start", live, starting)
	}
	close(gate.opened)
	running.Wait()
	first.End()
}

func TestAStartThatFailsLeavesItsPlace(t *testing.T) {
	p, gate := slowStart(t)
	p.settings.IgnoreFailures = true
	first := framework.State{}
	p.PreFilter(first, podInfo("first", nil), nodes(nil))
	defer first.End()
	p.settings.Deadline = -1
	close(gate.arrived)
	close(gate.opened)
	other := framework.State{}
	p.PreFilter(other, podInfo("other", nil), nodes(nil))
	other.End()
	if p.pool.live != 1 || p.pool.starting != 0 {
		t.Errorf("there are %d instances, %d start", p.pool.live, p.pool.starting)
	}
}
